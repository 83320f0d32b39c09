"""Cost of a call, computed by hand in USD per million tokens."""

from decimal import Decimal

import pytest

from aegish_dist.core.cost import Price, Rate, cost_usd
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.verdict import Usage
from aegish_dist.core.wire import WireFormat

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
    ],
)
def test_tokens_are_charged_at_their_rate(usage: Usage, price: Price, cost: str) -> None:
    """Fresh, read from a cache, written to one, and generated."""
    assert cost_usd(usage, price) == Decimal(cost)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        # 199,999 x 1.25 and 200,000 x 1.25: the threshold itself is still in the lower tier.
        (Usage(199_999, 0), "0.24999875"),
        (Usage(200_000, 0), "0.25"),
        # 200,001 x 2.50: all tokens pay the higher rate, not only those above.
        (Usage(200_001, 0), "0.5000025"),
        (Usage(400_000, 0), "1"),
        (Usage(400_001, 0), "2.000005"),
        # The prompt decides about the output: 200,000 x 1.25 + 500,000 x 10.
        (Usage(200_000, 500_000), "5.25"),
        # 200,001 x 2.50 + 100 x 15
        (Usage(200_001, 100), "0.5015025"),
        # 1 x 2.50 + 200,000 x 0.25: what is cached counts towards the size of the prompt.
        (Usage(200_001, 0, None, 200_000), "0.0500025"),
        # 50,000 x 1.25 + 150,000 x 0.125
        (Usage(200_000, 0, None, 150_000), "0.08125"),
    ],
)
def test_a_larger_prompt_may_cost_more_per_token(usage: Usage, cost: str) -> None:
    """Tiers, listed in any order, hold for prompts of more tokens than their threshold."""
    assert cost_usd(usage, TIERED) == Decimal(cost)


@pytest.mark.parametrize("usage", [Usage(), Usage(10**9, 10**9), Usage(0, 0)])
def test_a_flat_price_is_per_call(usage: Usage) -> None:
    """Then tokens cost nothing, reported or not."""
    assert cost_usd(usage, FLAT) == Decimal("0.0012")


@pytest.mark.parametrize(
    ("usage", "price"),
    [(Usage(10, 10), None), (Usage(), None), (Usage(), PLAIN), (Usage(cache_read_tokens=5), PLAIN)],
)
def test_an_unknown_cost_is_unknown(usage: Usage, price: Price | None) -> None:
    """Without a price, or without tokens to price, there is no cost; it is never 0."""
    assert cost_usd(usage, price) is None


def test_a_free_model_costs_nothing() -> None:
    """Which is not the same as not knowing."""
    assert cost_usd(Usage(1000, 10), Price()) == 0


def test_costs_are_exact() -> None:
    """A third of a million calls at a tenth of a cent per million tokens lose no digit."""
    price = Price(input=Rate(Decimal("0.001")))

    assert sum([cost_usd(Usage(1, 0), price) or 0] * 333_333) == Decimal("0.000333333")


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        (Usage(1000, 200), PLAIN, "0.003"),
        # (200 x 3 + 500 x 0.30 + 200 x 3.75 + 100 x 6) / 2
        (Usage(1000, 0, None, 500, 300, 100), CACHED, "0.00105"),
        (Usage(1000, 200), FLAT, "0.0006"),
        (Usage(1000, 200), None, None),
    ],
)
def test_the_price_of_a_batch_is_a_share_of_every_part(
    usage: Usage, price: Price | None, cost: str | None
) -> None:
    """Half a price: half of tokens fresh, read and written, and of a flat price."""
    spec = ModelSpec("lab/m", WireFormat.OPENAI, "m", price=price, batch_share=Decimal("0.5"))
    assert cost_usd(usage, spec.batch_price) == (None if cost is None else Decimal(cost))


def test_the_tiers_of_a_batch_begin_where_those_of_calls_do() -> None:
    """200,001 tokens at half of 2.50 USD and 100 at half of 15 USD; the thresholds stay."""
    half = TIERED.times(Decimal("0.5"))
    assert cost_usd(Usage(200_001, 100), half) == Decimal("0.25075125")
    assert cost_usd(Usage(200_000, 0), half) == Decimal("0.125")


def test_without_a_share_there_is_no_price_of_batches() -> None:
    """A provider that takes no batches has no price for them."""
    assert ModelSpec("lab/m", WireFormat.OPENAI, "m", price=PLAIN).batch_price is None
