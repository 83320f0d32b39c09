"""Cost of a call, by hand in USD per million tokens; the wire formats and what they name."""

from collections.abc import Callable
from decimal import Decimal
from itertools import product
from typing import Any, get_args, get_type_hints

import pytest
from msgspec import ValidationError, convert

from aegish_dist.core.model import (
    HTTP_FORMATS,
    HttpApi,
    MaxTokensField,
    ModelSpec,
    Price,
    Rate,
    WireFormat,
    cost_usd,
)
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Usage
from aegish_dist.providers.contract import Codec, codec
from aegish_dist.simulator.dialect import WORDS, Dialect, dialect_of
from aegish_dist.simulator.personas import PERSONAS
from tests.defined import defined
from tests.recorded import lines_of

PLAIN = Price(input=Rate(Decimal(3)), output=Rate(Decimal(15)))
CACHED = Price(
    input=Rate(Decimal(3)),
    output=Rate(Decimal(15)),
    cache_read=Rate(Decimal("0.30")),
    cache_write=Rate(Decimal("3.75")),
    cache_write_1h=Rate(Decimal(6)),
)
TIERED = Price(
    input=Rate(Decimal("1.25"), ((400_000, Decimal(5)), (200_000, Decimal("2.50")))),
    output=Rate(Decimal(10), ((200_000, Decimal(15)),)),
    cache_read=Rate(Decimal("0.125"), ((200_000, Decimal("0.25")),)),
)


def batched(price: Price | None) -> Price | None:
    spec = ModelSpec("lab/m", WireFormat.OPENAI, "m", price=price, batch_share=Decimal("0.5"))
    return spec.batch_price


PRICES: dict[str, Price | None] = {
    "none": None,
    "free": Price(),
    "plain": PLAIN,
    "cached": CACHED,
    "tiered": TIERED,
    "flat": Price(input=PLAIN.input, output=PLAIN.output, per_call=Decimal("0.0012")),
    "by the hour": Price(per_hour=Decimal(1)),
}
PRICES |= {f"{name}, batched": batched(price) for name, price in PRICES.items()}
PRICES["plain, without a share"] = ModelSpec("m", WireFormat.OPENAI, "m", price=PLAIN).batch_price


@pytest.mark.parametrize("case", lines_of("costs.jsonl"))
def test_tokens_are_charged_at_their_rate(case: dict[str, Any]) -> None:
    """Where a sum does not show, `why` holds it."""
    cost = None if case["cost"] is None else Decimal(case["cost"])
    assert cost_usd(Usage(*case["usage"]), PRICES[case["price"]]) == cost


def test_costs_are_exact() -> None:
    price = Price(input=Rate(Decimal("0.001")))
    assert sum([cost_usd(Usage(1, 0), price) or 0] * 333_333) == Decimal("0.000333333")


NOT_SERVED = {ErrorClass.DEADLINE, ErrorClass.CONNECTION, ErrorClass.MALFORMED}


@pytest.mark.parametrize(("wire", "http"), HTTP_FORMATS.items())
def test_the_facts_of_each_format_name_what_exists(wire: WireFormat, http: HttpApi) -> None:
    assert http.simulated_model in PERSONAS
    assert http.output_limit_fields or not http.chat
    assert http.simulated_root == "" or http.simulated_root.startswith("/")
    if pattern := http.rate_limit_headers:
        parts = product(("requests", "tokens"), ("limit", "remaining", "reset"))
        assert len({pattern.format(of=of, what=what) for of, what in parts}) == 6


def types_of(function: object) -> list[Any]:
    """Return the types of the parameters and of the result, in order."""
    return [*get_type_hints(function).values()]


@pytest.mark.parametrize("wire", HTTP_FORMATS)
@pytest.mark.parametrize(("module_of", "protocol"), [(codec, Codec), (dialect_of, Dialect)])
def test_the_modules_of_each_format_fit_their_protocols(
    wire: WireFormat, module_of: Callable[[WireFormat], object], protocol: type
) -> None:
    """They are found by name, which a type check does not follow."""
    module = module_of(wire)
    functions = [name for name in vars(protocol) if not name.startswith("_")]
    for name in functions:
        assert types_of(getattr(module, name)) == types_of(getattr(protocol, name))
    for name in get_type_hints(protocol):
        assert hasattr(module, name)


@pytest.mark.parametrize("wire", HTTP_FORMATS)
def test_each_dialect_knows_a_form_of_every_error(wire: WireFormat) -> None:
    assert set(dialect_of(wire).ERRORS) == set(ErrorClass) - NOT_SERVED
    assert dialect_of(wire).ERRORS is WORDS[wire].errors
    assert WORDS[wire].native >= {*WORDS[wire].stops.values()}


def test_a_path_belongs_to_one_dialect() -> None:
    paths = ("/v1/chat/completions", "/v1/messages", "/v1beta/models/m:generateContent")
    for path in (*paths, "/classify/m"):
        assert sum(dialect_of(wire).route(path) is not None for wire in HTTP_FORMATS) == 1


def test_the_catalog_offers_the_output_fields_of_the_format_that_has_a_choice() -> None:
    assert set(get_args(MaxTokensField)) == set(defined(WireFormat.OPENAI.http).output_limit_fields)


def test_the_output_field_of_a_run_is_one_that_bounds_the_output() -> None:
    """A row may name none that multiplies the answers, or that a provider does not know."""
    spec = {"id": "test/m", "wire": "openai", "name": "m"}
    assert convert(spec | {"max_tokens_field": "max_tokens"}, ModelSpec).max_tokens_field
    with pytest.raises(ValidationError, match="max_tokens_field"):
        convert(spec | {"max_tokens_field": "n"}, ModelSpec)
