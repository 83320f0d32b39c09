"""What a call will probably use, before it is made: for limits in tokens and in money."""

from aegish_dist.core.completion import Completion, Usage
from aegish_dist.core.cost import Price, cost_usd
from aegish_dist.core.prompt import Prompt
from aegish_dist.models.estimate import ANSWER_TOKENS, fixed_characters, input_tokens
from aegish_dist.ratelimit.budget import NANO_USD, Budget
from aegish_dist.ratelimit.run_queue import ExpectedUsage

WEIGHT = 0.1
"""Of the newest answer in the running mean."""
MAX_ANSWER_TOKENS = 100_000
"""A longer answer counts as one of this length; some providers report nonsense."""


class UsageEstimator:
    """Learns from the answers of one model in one run how long they are."""

    def __init__(self, prompt: Prompt, price: Price | None, budget: Budget | None) -> None:
        """Start from an answer of ordinary length.

        Args:
            prompt: Sent with every command.
            price: Of the model; None when unknown.
            budget: The run's caps; without any, nobody asks what a call costs.
        """
        self._fixed = fixed_characters(prompt)
        self._price = price
        self._counts_money = budget is not None
        self._answer_tokens = float(ANSWER_TOKENS)

    def of(self, command: str) -> ExpectedUsage:
        """Return what the call for a command will probably use."""
        prompt = input_tokens(self._fixed + len(command))
        answer = round(self._answer_tokens)
        return ExpectedUsage(prompt + answer, self._cost(Usage(prompt, answer)) or 0)

    def used(self, completion: Completion) -> tuple[int | None, int | None]:
        """Return the tokens and the cost of an answer, each None when unknown, and learn from it.

        Returns:
            Tokens, and 1e-9 USD.
        """
        usage = completion.usage
        if usage.output_tokens is not None:
            newest = min(usage.output_tokens, MAX_ANSWER_TOKENS)
            self._answer_tokens += WEIGHT * (newest - self._answer_tokens)
        known = usage.input_tokens is not None and usage.output_tokens is not None
        tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0) if known else None
        return tokens, self._cost(usage)

    def _cost(self, usage: Usage) -> int | None:
        if not self._counts_money:
            return 0
        usd = cost_usd(usage, self._price)
        return None if usd is None else int(usd * NANO_USD)
