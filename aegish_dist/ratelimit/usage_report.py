"""What came of calls, gathered until the limiter is told; pure."""

from aegish_dist.core.failures import KINDS, counts_for_pause
from aegish_dist.core.limits import RateHint
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.ratelimit.protocol import UsageReport

REASON_LENGTH = 200
"""A provider's message is cut to this many characters on its way to the fleet."""


class News:
    """What the limiter does not know yet."""

    def __init__(self) -> None:
        self._told = UsageReport()
        self._limit: float | None = None

    def __bool__(self) -> bool:
        return self._told != UsageReport(epoch=self._told.epoch)

    def take(self) -> UsageReport:
        """Return everything and begin anew."""
        told, self._told = self._told, UsageReport(epoch=self._told.epoch)
        return told

    def put_back(self, told: UsageReport) -> None:
        """Keep what did not arrive."""
        self._told = told.before(self._told)

    def enter_epoch(self, epoch: int) -> None:
        """Note the limiter's epoch: what came of calls of older ones says nothing about it."""
        if epoch != self._told.epoch:
            self._told.epoch, self._told.epoch_answers, self._told.refused = epoch, 0, 0

    def answer(self, epoch: int, excess_tokens: int) -> None:
        """Note an answer.

        Args:
            epoch: In which the call was let through.
            excess_tokens: What it used beyond what was expected.
        """
        told = self._told
        told.answers += 1
        told.epoch_answers += epoch == told.epoch
        told.alive, told.failures, told.unanswered = True, 0, 0
        told.tokens += excess_tokens

    def failure(
        self,
        epoch: int,
        error_class: ErrorClass,
        retry_after_s: float | None,
        *,
        probe: bool,
        words: str,
        others_answered: bool = False,
    ) -> None:
        """Note a failed call.

        Args:
            epoch: In which the call was let through.
            error_class: Why it failed.
            retry_after_s: What the provider asked us to wait.
            probe: Whether the call was to find out if a parked model lives again.
            words: The provider's message.
            others_answered: Whether other calls were answered so lately that the failure says
                nothing about the model.
        """
        told, kind = self._told, KINDS[error_class]
        if kind.alive:
            told.alive, told.failures = True, 0
        else:
            told.failures += not others_answered
        told.unanswered += kind.charged and not others_answered
        told.probe_failed |= probe
        told.reason = words[:REASON_LENGTH]
        told.refused += error_class is ErrorClass.RATE_LIMIT and epoch == told.epoch
        told.overloaded += error_class is ErrorClass.OVERLOADED
        if counts_for_pause(error_class, retry_after_s):
            told.pause_s = max(told.pause_s, retry_after_s or 0.0)

    def nothing(self, expected_tokens: int, *, probe: bool) -> None:
        """Note a call that used nothing, and a probe that showed nothing."""
        self._told.tokens -= expected_tokens
        self._told.probe_failed |= probe

    def hint(self, hint: RateHint) -> bool:
        """Note the newest rate limits; return whether the limit itself is news."""
        self._told.hint = hint
        changed = hint.requests_per_minute != self._limit
        self._limit = hint.requests_per_minute
        return changed
