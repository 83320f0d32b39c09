"""What a run will cost, roughly, before any money is spent.

An approximation, and meant to be shown as one. Per call it takes the characters of system text,
template and command, a quarter of them rounded up, plus `FRAMING_TOKENS` as the input, and
`ANSWER_TOKENS` as the output. It knows no tokenizer, no cache and no hidden reasoning: reasoning
models and step-by-step prompts write several times as much, and cached prompts cost less.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from aegish_dist.core.completion import Usage
from aegish_dist.core.cost import Price, cost_usd
from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.core.prompt import COMMAND_SLOT, Prompt

CHARACTERS_PER_TOKEN = 4
FRAMING_TOKENS = 10
"""Roles and separators around two messages."""
ANSWER_TOKENS = 60
"""A JSON object with a reason of one sentence; recorded models wrote 44 to 91, terse ones."""


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """The expected use of one model."""

    model: str
    """Canonical id."""
    calls: int
    """Commands x epochs."""
    input_tokens: int
    """Of all calls."""
    output_tokens: int
    """Of all calls."""
    cost_usd: Decimal | None
    """Of all calls; None when the price is unknown."""


@dataclass(frozen=True, slots=True)
class Estimate:
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
    def cost_usd(self) -> Decimal | None:
        """Cost of the run; None when any model is unpriced."""
        return None if self.unpriced else self.known_cost_usd


def estimate(
    specs: Sequence[ModelSpec], prompt: Prompt, command_lengths: Iterable[int], epochs: int = 1
) -> Estimate:
    """Estimate tokens and cost of a run.

    Args:
        specs: The models.
        prompt: The prompt, which is sent with every command.
        command_lengths: Characters of each command.
        epochs: Repeats of every command.
    """
    fixed = len(prompt.system) + len(prompt.template) - len(COMMAND_SLOT)
    calls: Counter[int] = Counter()
    for length, commands in Counter(command_lengths).items():
        tokens = -(-(fixed + length) // CHARACTERS_PER_TOKEN) + FRAMING_TOKENS
        calls[tokens] += commands * epochs
    return Estimate(tuple(_model_estimate(spec, calls) for spec in specs))


def _model_estimate(spec: ModelSpec, calls: Counter[int]) -> ModelEstimate:
    if spec.wire is WireFormat.BASELINE:
        return ModelEstimate(spec.id, calls.total(), 0, 0, Decimal(0))
    return ModelEstimate(
        model=spec.id,
        calls=calls.total(),
        input_tokens=sum(tokens * count for tokens, count in calls.items()),
        output_tokens=calls.total() * ANSWER_TOKENS,
        cost_usd=_cost(spec.price, calls),
    )


def _cost(price: Price | None, calls: Counter[int]) -> Decimal | None:
    """Price each size of call by itself: tiers depend on it."""
    if price is None:
        return None
    if price.per_call is not None:
        return price.per_call * calls.total()
    total = Decimal(0)
    for tokens, count in calls.items():
        usage = Usage(input_tokens=tokens, output_tokens=ANSWER_TOKENS)
        total += (cost_usd(usage, price) or 0) * count
    return total
