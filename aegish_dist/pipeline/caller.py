"""A model of a run, ready to be called, and what its calls are expected to use."""

from dataclasses import dataclass

from aegish_dist.core.completion import Completion, Usage
from aegish_dist.core.cost import Price, cost_usd
from aegish_dist.core.prompt import COMMAND_SLOT, Prompt
from aegish_dist.models.estimate import ANSWER_TOKENS, CHARACTERS_PER_TOKEN, FRAMING_TOKENS
from aegish_dist.providers.contract import ModelClient
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.run_queue import NANO_USD, Budget, ExpectedUsage

WEIGHT = 0.1
"""Weight of the newest answer in the running mean of answers' lengths."""
MAX_ANSWER_TOKENS = 100_000
"""A longer answer counts as one of this length; some providers report nonsense."""


class UsageEstimator:
    """Learns from the answers of one model in one run how long they are."""

    def __init__(self, prompt: Prompt, price: Price | None, budget: Budget | None) -> None:
        """Start from an answer of ordinary length.

        Args:
            price: Price list of the model; None: unknown.
            budget: Caps of the run; without any, costs count as 0.
        """
        self._fixed = len(prompt.system) + len(prompt.template) - len(COMMAND_SLOT)
        self._price = price
        self._counts_cost = budget is not None
        self._answer_tokens = float(ANSWER_TOKENS)

    def expected(self, command: str) -> ExpectedUsage:
        """Return what the call for a command will probably use."""
        prompt = -(-(self._fixed + len(command)) // CHARACTERS_PER_TOKEN) + FRAMING_TOKENS
        answer = round(self._answer_tokens)
        return ExpectedUsage(prompt + answer, self._cost(Usage(prompt, answer)) or 0)

    def used(self, completion: Completion) -> tuple[int | None, int | None]:
        """Return what an answer used, and learn from it.

        Returns:
            Tokens, and cost in 1e-9 USD; each None when unknown.
        """
        usage = completion.usage
        if usage.output_tokens is not None:
            newest = min(usage.output_tokens, MAX_ANSWER_TOKENS)
            self._answer_tokens += WEIGHT * (newest - self._answer_tokens)
        known = usage.input_tokens is not None and usage.output_tokens is not None
        tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0) if known else None
        return tokens, self._cost(usage)

    def _cost(self, usage: Usage) -> int | None:
        if not self._counts_cost:
            return 0
        usd = cost_usd(usage, self._price)
        return None if usd is None else int(usd * NANO_USD)


@dataclass(frozen=True, slots=True)
class Caller:
    """A model of a run, ready to be called."""

    client: ModelClient
    """Speaks to the provider with the run's prompt and parameters."""
    limiter: ModelLimiter
    """Admits calls to this model, whatever the run."""
    estimator: UsageEstimator
    price: Price | None
    """The run's price list; None: unknown."""
    budget: Budget | None = None
    """Caps on the cost of the run; None: no cap."""
