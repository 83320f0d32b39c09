"""Prices, and the cost of one call.

Prices are per call, not per sum of calls: tiers depend on the size of each prompt.
"""

from dataclasses import dataclass
from decimal import Decimal

from aegish_dist.core.verdict import Usage

TOKENS_PER_UNIT = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Rate:
    """A price per million tokens that may rise with the size of the prompt."""

    base: Decimal
    """USD per million tokens."""
    tiers: tuple[tuple[int, Decimal], ...] = ()
    """(threshold, USD per million): prompts of more tokens than the threshold pay this on all."""

    def at(self, input_tokens: int) -> Decimal:
        """USD per million for a call whose prompt has this many tokens."""
        reached = [rate for threshold, rate in sorted(self.tiers) if input_tokens > threshold]
        return reached[-1] if reached else self.base

    def times(self, share: Decimal) -> "Rate":
        """Return a share of it."""
        tiers = tuple((threshold, rate * share) for threshold, rate in self.tiers)
        return Rate(self.base * share, tiers)


@dataclass(frozen=True, slots=True)
class Price:
    """The price list of one model as of submit."""

    input: Rate = Rate(Decimal(0))
    """Fresh prompt tokens."""
    output: Rate = Rate(Decimal(0))
    cache_read: Rate | None = None
    """Prompt tokens read from a cache; as `input` when None."""
    cache_write: Rate | None = None
    """Prompt tokens written to a cache; as `input` when None."""
    cache_write_1h: Rate | None = None
    """Those of them that are to be kept for an hour; as `cache_write` when None."""
    per_call: Decimal | None = None
    """Flat USD per call, for hosts that bill so or report no usage; then tokens cost nothing."""
    cache_from_tokens: int = 0
    """Least number of tokens that the provider's cache takes; shorter beginnings are not cached."""

    def times(self, share: Decimal) -> "Price":
        """Return the list of prices that are this share of these, such as those of batches."""
        return Price(
            self.input.times(share),
            self.output.times(share),
            None if self.cache_read is None else self.cache_read.times(share),
            None if self.cache_write is None else self.cache_write.times(share),
            None if self.cache_write_1h is None else self.cache_write_1h.times(share),
            None if self.per_call is None else self.per_call * share,
            self.cache_from_tokens,
        )


def cost_usd(usage: Usage, price: Price | None) -> Decimal | None:
    """Return the cost of one call in USD, exactly.

    Returns:
        None when the price is unknown, or neither usage nor a flat price is known.
    """
    if price is None:
        return None
    if price.per_call is not None or (usage.input_tokens is None and usage.output_tokens is None):
        return price.per_call
    prompt = usage.input_tokens or 0
    read = min(usage.cache_read_tokens or 0, prompt)
    written = min(usage.cache_write_tokens or 0, prompt - read)
    kept = min(usage.cache_write_1h_tokens or 0, written)
    fresh = prompt - read - written
    write_rate = price.cache_write or price.input
    total = (
        fresh * price.input.at(prompt)
        + read * (price.cache_read or price.input).at(prompt)
        + (written - kept) * write_rate.at(prompt)
        + kept * (price.cache_write_1h or write_rate).at(prompt)
        + (usage.output_tokens or 0) * price.output.at(prompt)
    )
    return total / TOKENS_PER_UNIT
