"""What came of calls, gathered until the limiter is told; pure."""

from enum import StrEnum

from aegish_dist.core.limits import RateHint
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.queue.grants import Told


class Sign(StrEnum):
    """How a failed call counts for the breaker of its model."""

    ALIVE = "alive"
    """The model was there and turned this call down; closes the breaker."""
    DEAD = "dead"
    """Nothing could be had from it; many in a row park it."""
    UNCLEAR = "unclear"
    """Says neither."""


SIGNS = {
    ErrorClass.RATE_LIMIT: Sign.ALIVE,
    ErrorClass.BAD_REQUEST: Sign.ALIVE,
    ErrorClass.DEADLINE: Sign.UNCLEAR,  # an outcome of its own: some commands make a model think
    ErrorClass.QUOTA: Sign.DEAD,
    ErrorClass.AUTH: Sign.DEAD,
    ErrorClass.NOT_FOUND: Sign.DEAD,
    ErrorClass.OVERLOADED: Sign.DEAD,
    ErrorClass.SERVER: Sign.DEAD,
    ErrorClass.CONNECTION: Sign.DEAD,
    ErrorClass.MALFORMED: Sign.DEAD,
}
"""Every class of failure."""

PAUSING = frozenset({ErrorClass.RATE_LIMIT, ErrorClass.OVERLOADED})
"""Failures whose Retry-After speaks of the model, not of the one call."""

CHARGED = frozenset({ErrorClass.DEADLINE, ErrorClass.MALFORMED, ErrorClass.CONNECTION})
"""Failures of calls that the provider may have worked on: they count as much as was expected. Most
broken connections break while an answer is awaited."""


class News:
    """What the limiter does not know yet."""

    def __init__(self) -> None:
        self._told = Told()
        self._limit: float | None = None

    def __bool__(self) -> bool:
        return self._told != Told(epoch=self._told.epoch)

    def take(self) -> Told:
        """Return everything and begin anew."""
        told, self._told = self._told, Told(epoch=self._told.epoch)
        return told

    def put_back(self, told: Told) -> None:
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
        told.alive, told.failures = True, 0
        told.tokens += excess_tokens

    def failure(
        self, epoch: int, error_class: ErrorClass, retry_after_s: float | None, *, probe: bool
    ) -> None:
        """Note a failed call.

        Args:
            epoch: In which the call was let through.
            error_class: Why it failed.
            retry_after_s: What the provider asked us to wait.
            probe: Whether the call was to find out if a parked model lives again.
        """
        told, sign = self._told, SIGNS[error_class]
        if sign is Sign.ALIVE:
            told.alive, told.failures = True, 0
        else:
            told.failures += sign is Sign.DEAD
            told.probe_failed |= probe
        told.refused += error_class is ErrorClass.RATE_LIMIT and epoch == told.epoch
        told.overloaded += error_class is ErrorClass.OVERLOADED
        if error_class in PAUSING:
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
