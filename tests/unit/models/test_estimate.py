"""The estimate, computed by hand from its definition."""

from dataclasses import replace
from decimal import Decimal

from aegish_dist.core.cost import Price, Rate
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.wire import WireFormat
from aegish_dist.models import estimate
from tests.defined import defined

PROMPT = Prompt("p", system="s" * 90, template="Command: {command}!")  # 90 + 10 characters


def spec(name: str, price: Price | None) -> ModelSpec:
    return ModelSpec(f"lab/{name}", WireFormat.OPENAI, name, price=price)


TOKENS = spec("tokens", Price(input=Rate(Decimal(2)), output=Rate(Decimal(10))))
FLAT = spec("flat", Price(per_call=Decimal("0.001")))
UNKNOWN = spec("unknown", None)


def test_tokens_are_characters_by_four_rounded_up_plus_framing() -> None:
    """100 + 1 characters are 26 tokens, 100 + 4 are 26 too, 100 + 5 are 27; each plus 10."""
    result = estimate([TOKENS], PROMPT, [1, 4, 5], epochs=2)
    assert result.calls == 6
    assert result.input_tokens == 2 * (36 + 36 + 37)
    assert result.output_tokens == 6 * 60


def test_cost_is_tokens_by_price() -> None:
    """218 input tokens at 2 USD and 360 output tokens at 10 USD per million."""
    result = estimate([TOKENS], PROMPT, [1, 4, 5], epochs=2)
    assert result.cost_usd == Decimal("0.000436") + Decimal("0.0036")


def test_a_cached_prompt_is_written_once_and_read_by_the_others() -> None:
    """90 characters of system text are 22 tokens: written once at 4 USD, read twice at 1 USD."""
    price = Price(
        input=Rate(Decimal(2)),
        output=Rate(Decimal(10)),
        cache_read=Rate(Decimal(1)),
        cache_write=Rate(Decimal(4)),
    )
    result = estimate([spec("cached", price)], PROMPT, [1, 4, 5])
    fresh = (36 + 36 + 37 - 3 * 22) * 2
    assert result.cached_cost_usd == Decimal(fresh + 22 * 4 + 2 * 22 * 1 + 3 * 60 * 10) / 10**6
    assert result.cost_usd == Decimal((36 + 36 + 37) * 2 + 3 * 60 * 10) / 10**6


def test_a_prompt_too_short_for_the_cache_is_not_cached() -> None:
    """90 characters of system text are 22 tokens: a cache that begins at 23 takes none of them."""
    price = Price(Rate(Decimal(2)), Rate(Decimal(10)), cache_read=Rate(Decimal(1)))
    at, above = (replace(price, cache_from_tokens=least) for least in (22, 23))
    cached, plain = (estimate([spec("m", price)], PROMPT, [1, 4, 5]) for price in (at, above))
    assert defined(cached.cached_cost_usd) < defined(cached.cost_usd)
    assert plain.cached_cost_usd == plain.cost_usd == cached.cost_usd


def test_without_a_cache_price_a_cached_prompt_costs_the_same() -> None:
    """Where a price list knows no cache, prompt tokens cost what they cost."""
    result = estimate([TOKENS], PROMPT, [1, 4, 5])
    assert result.cached_cost_usd == result.cost_usd


def test_a_flat_price_counts_calls() -> None:
    """Three calls at a flat price cost three times the price, whatever the tokens."""
    assert estimate([FLAT], PROMPT, [1, 10, 1000]).cost_usd == Decimal("0.003")


def test_tiers_apply_to_each_call() -> None:
    """Only the call above the threshold pays the higher rate."""
    tiered = spec("tiered", Price(input=Rate(Decimal(1), ((100, Decimal(3)),))))
    result = estimate([tiered], PROMPT, [300, 0])  # 110 and 35 tokens
    assert result.cost_usd == Decimal("0.000330") + Decimal("0.000035")


def test_an_unknown_price_leaves_the_total_unknown() -> None:
    """The total is None, the known part is stated, and the unpriced model is named."""
    result = estimate([FLAT, UNKNOWN], PROMPT, [1])
    assert result.cost_usd is None
    assert result.known_cost_usd == Decimal("0.001")
    assert result.unpriced == ("lab/unknown",)
    assert [model.cost_usd for model in result.models] == [Decimal("0.001"), None]


def test_the_run_is_the_sum_of_its_models() -> None:
    """Every model sees every command."""
    one = estimate([TOKENS], PROMPT, [7, 8])
    two = estimate([TOKENS, FLAT], PROMPT, [7, 8])
    assert (two.calls, two.input_tokens) == (2 * one.calls, 2 * one.input_tokens)
    assert two.cost_usd == one.known_cost_usd + Decimal("0.002")


def test_no_commands_cost_nothing() -> None:
    """An empty run has an estimate of zero."""
    result = estimate([TOKENS], PROMPT, [])
    assert (result.calls, result.input_tokens, result.cost_usd) == (0, 0, Decimal(0))
