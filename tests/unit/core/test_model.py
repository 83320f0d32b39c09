"""Cost of a call, by hand in USD per million tokens; the wire formats and what they name."""

from decimal import Decimal
from itertools import product
from typing import get_args

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
from aegish_dist.providers import anthropic, google, openai
from aegish_dist.providers.contract import Codec
from aegish_dist.simulator import anthropic as anthropic_dialect
from aegish_dist.simulator import google as google_dialect
from aegish_dist.simulator import openai as openai_dialect
from aegish_dist.simulator.dialect import Dialect, dialect_of
from aegish_dist.simulator.personas import PERSONAS
from tests.defined import defined

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
FLAT = Price(input=Rate(Decimal(3)), output=Rate(Decimal(15)), per_call=Decimal("0.0012"))


def batched(price: Price | None) -> Price | None:
    spec = ModelSpec("lab/m", WireFormat.OPENAI, "m", price=price, batch_share=Decimal("0.5"))
    return spec.batch_price


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        # 1000 x 3 + 200 x 15
        (Usage(1000, 200), PLAIN, "0.006"),
        (Usage(1000, None), PLAIN, "0.003"),
        (Usage(None, 200), PLAIN, "0.003"),
        (Usage(0, 0), PLAIN, "0"),
        (Usage(1, 0), PLAIN, "0.000003"),
        # Reasoning is part of the 200.
        (Usage(1000, 200, reasoning_tokens=150), PLAIN, "0.006"),
        # 2000 x 3 + 6000 x 0.30 + 2000 x 3.75 + 1000 x 15
        (Usage(10_000, 1000, None, 6000, 2000), CACHED, "0.0303"),
        # 4000 x 3 + 6000 x 0.30
        (Usage(10_000, 0, None, 6000, None), CACHED, "0.0138"),
        # 8000 x 3 + 2000 x 3.75
        (Usage(10_000, 0, None, None, 2000), CACHED, "0.0315"),
        # 8000 x 3 + 500 x 3.75 + 1500 x 6
        (Usage(10_000, 0, None, None, 2000, 1500), CACHED, "0.034875"),
        # No more of the writes than there were: 8000 x 3 + 2000 x 6
        (Usage(10_000, 0, None, None, 2000, 9999), CACHED, "0.036"),
        (Usage(10_000, 1000, None, 6000, 2000, 2000), PLAIN, "0.045"),
        # No price of its own: as fresh prompt tokens.
        (Usage(10_000, 1000, None, 6000, 2000), PLAIN, "0.045"),
        # More from the cache than there was: all of it, and nothing written.
        (Usage(1000, 0, None, 5000, 5000), CACHED, "0.0003"),
        (Usage(1000, 0, None, 600, 5000), CACHED, "0.00168"),
        # 199,999 x 1.25 and 200,000 x 1.25: the threshold itself is still in the lower tier.
        (Usage(199_999, 0), TIERED, "0.24999875"),
        (Usage(200_000, 0), TIERED, "0.25"),
        # 200,001 x 2.50: all tokens pay the higher rate, not only those above.
        (Usage(200_001, 0), TIERED, "0.5000025"),
        (Usage(400_000, 0), TIERED, "1"),
        (Usage(400_001, 0), TIERED, "2.000005"),
        # The prompt decides about the output: 200,000 x 1.25 + 500,000 x 10.
        (Usage(200_000, 500_000), TIERED, "5.25"),
        # 200,001 x 2.50 + 100 x 15
        (Usage(200_001, 100), TIERED, "0.5015025"),
        # 1 x 2.50 + 200,000 x 0.25: what is cached counts towards the size of the prompt.
        (Usage(200_001, 0, None, 200_000), TIERED, "0.0500025"),
        # 50,000 x 1.25 + 150,000 x 0.125
        (Usage(200_000, 0, None, 150_000), TIERED, "0.08125"),
        # A flat price is per call.
        *((usage, FLAT, "0.0012") for usage in (Usage(), Usage(10**9, 10**9), Usage(0, 0))),
        # Without a price, or without tokens to price, the cost is unknown, never 0.
        *((usage, None, None) for usage in (Usage(10, 10), Usage())),
        *((usage, PLAIN, None) for usage in (Usage(), Usage(cache_read_tokens=5))),
        (Usage(1000, 10), Price(), "0"),
        # The price of a batch is a share of every part.
        (Usage(1000, 200), batched(PLAIN), "0.003"),
        # (200 x 3 + 500 x 0.30 + 200 x 3.75 + 100 x 6) / 2
        (Usage(1000, 0, None, 500, 300, 100), batched(CACHED), "0.00105"),
        (Usage(1000, 200), batched(FLAT), "0.0006"),
        (Usage(1000, 200), batched(None), None),
        (Usage(1000, 200), batched(Price(per_hour=Decimal(1))), None),
        (Usage(1000, 200), ModelSpec("m", WireFormat.OPENAI, "m", price=PLAIN).batch_price, None),
        # Half of 2.50 and of 15; the thresholds stay.
        (Usage(200_001, 100), batched(TIERED), "0.25075125"),
        (Usage(200_000, 0), batched(TIERED), "0.125"),
    ],
)
def test_tokens_are_charged_at_their_rate(
    usage: Usage, price: Price | None, cost: str | None
) -> None:
    assert cost_usd(usage, price) == (None if cost is None else Decimal(cost))


def test_costs_are_exact() -> None:
    price = Price(input=Rate(Decimal("0.001")))
    assert sum([cost_usd(Usage(1, 0), price) or 0] * 333_333) == Decimal("0.000333333")


# Checked by mypy: a module whose functions differ from the protocol's cannot stand here.
CODECS: tuple[Codec, ...] = (openai, anthropic, google)
DIALECTS: tuple[Dialect, ...] = (openai_dialect, anthropic_dialect, google_dialect)
NOT_SERVED = {ErrorClass.DEADLINE, ErrorClass.CONNECTION, ErrorClass.MALFORMED}


@pytest.mark.parametrize(("wire", "http"), HTTP_FORMATS.items())
def test_the_facts_of_each_format_name_what_exists(wire: WireFormat, http: HttpApi) -> None:
    assert http.simulated_model in PERSONAS
    assert http.output_limit_fields or not http.chat
    assert http.simulated_root == "" or http.simulated_root.startswith("/")
    if pattern := http.rate_limit_headers:
        parts = product(("requests", "tokens"), ("limit", "remaining", "reset"))
        assert len({pattern.format(of=of, what=what) for of, what in parts}) == 6


@pytest.mark.parametrize("wire", HTTP_FORMATS)
def test_each_dialect_knows_a_form_of_every_error(wire: WireFormat) -> None:
    assert set(dialect_of(wire).ERRORS) == set(ErrorClass) - NOT_SERVED


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
