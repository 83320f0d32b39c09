"""Estimated tokens and cost of a run, before any money is spent.

An approximation, and meant to be shown as one: `input_tokens` and `ANSWER_TOKENS` for each call. It
knows no tokenizer and no hidden reasoning: reasoning models and step-by-step prompts write several
times as much. The cost with a cached prompt stands beside.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from aegish_dist.core.cost import Price, cost_usd
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.prompt import COMMAND_SLOT, Prompt
from aegish_dist.core.verdict import Usage

CHARACTERS_PER_TOKEN = 4
FRAMING_TOKENS = 10
ANSWER_TOKENS = 60
"""A JSON object with a reason of one sentence; recorded models wrote 44 to 91, terse ones."""


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """The expected use of one model."""

    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    """Of all calls, none of them helped by a cache; None when the price is unknown."""
    cached_cost_usd: Decimal | None
    """The same if the first call writes the system text to the provider's prompt cache and every
    other one reads it there; equal to `cost_usd` where caching has no price of its own."""


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The expected use of a run."""

    models: tuple[ModelEstimate, ...]
    """In the order asked for."""

    @property
    def calls(self) -> int:
        """Calls of the run."""
        return sum(model.calls for model in self.models)

    @property
    def input_tokens(self) -> int:
        """Input tokens of the run."""
        return sum(model.input_tokens for model in self.models)

    @property
    def output_tokens(self) -> int:
        """Output tokens of the run."""
        return sum(model.output_tokens for model in self.models)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Ids of the models whose price is unknown."""
        return tuple(model.model for model in self.models if model.cost_usd is None)

    @property
    def known_cost_usd(self) -> Decimal:
        """Cost of the priced models: a lower bound when others are unpriced."""
        return sum((each.cost_usd for each in self.models if each.cost_usd is not None), Decimal(0))

    @property
    def cached_cost_usd(self) -> Decimal:
        """`known_cost_usd` if every provider caches the system text."""
        costs = (each.cached_cost_usd for each in self.models)
        return sum((cost for cost in costs if cost is not None), Decimal(0))

    @property
    def cost_usd(self) -> Decimal | None:
        """Cost of the run; None when any model is unpriced."""
        return None if self.unpriced else self.known_cost_usd


def fixed_characters(prompt: Prompt) -> int:
    """Return the characters that a prompt sends with every command."""
    return len(prompt.system) + len(prompt.template) - len(COMMAND_SLOT)


def input_tokens(characters: int) -> int:
    """Return the expected input tokens of a call with so many characters, command included."""
    return -(-characters // CHARACTERS_PER_TOKEN) + FRAMING_TOKENS


def estimate(
    specs: Sequence[ModelSpec], prompt: Prompt, command_lengths: Iterable[int], epochs: int = 1
) -> RunEstimate:
    """Estimate tokens and cost of a run."""
    fixed = fixed_characters(prompt)
    calls: Counter[int] = Counter()
    for length, commands in Counter(command_lengths).items():
        calls[input_tokens(fixed + length)] += commands * epochs
    prefix = len(prompt.system) // CHARACTERS_PER_TOKEN
    return RunEstimate(tuple(_model_estimate(spec, calls, prefix) for spec in specs))


def _model_estimate(spec: ModelSpec, calls: Counter[int], prefix: int) -> ModelEstimate:
    if spec.wire.http is None:
        return ModelEstimate(spec.id, calls.total(), 0, 0, Decimal(0), Decimal(0))
    return ModelEstimate(
        model=spec.id,
        calls=calls.total(),
        input_tokens=sum(tokens * count for tokens, count in calls.items()),
        output_tokens=calls.total() * ANSWER_TOKENS,
        cost_usd=_cost(spec.price, calls, cached=0),
        cached_cost_usd=_cached_cost(spec.price, calls, prefix),
    )


def _cached_cost(price: Price | None, calls: Counter[int], prefix: int) -> Decimal | None:
    """Price the calls as if the prefix were cached; the first one pays for writing it."""
    total = _cost(price, calls, cached=prefix)
    if total is None or price is None or price.per_call is not None or not calls:
        return total
    if prefix < price.cache_from_tokens:
        return _cost(price, calls, cached=0)
    size = min(calls)
    first = Usage(input_tokens=size, output_tokens=ANSWER_TOKENS, cache_write_tokens=prefix)
    later = Usage(input_tokens=size, output_tokens=ANSWER_TOKENS, cache_read_tokens=prefix)
    return total + (cost_usd(first, price) or 0) - (cost_usd(later, price) or 0)


def _cost(price: Price | None, calls: Counter[int], cached: int) -> Decimal | None:
    """Price each size of call by itself: tiers depend on it."""
    if price is None:
        return None
    if price.per_call is not None:
        return price.per_call * calls.total()
    total = Decimal(0)
    for tokens, count in calls.items():
        usage = Usage(tokens, ANSWER_TOKENS, cache_read_tokens=cached)
        total += (cost_usd(usage, price) or 0) * count
    return total
