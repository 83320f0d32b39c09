"""The one retry policy: what follows a failed attempt. Pure; whoever calls it does the waiting."""

from dataclasses import dataclass

from aegish_dist.core.verdict import ErrorClass, Outcome

BASE_S = 1.0
"""Longest wait after the first failed attempt; doubles with each one."""
CAP_S = 60.0
"""Longest wait that the provider did not ask for."""
LONGEST_RETRY_AFTER_S = 300.0
"""A provider that asks for more is as good as gone; the item is given up and can be retried."""

ATTEMPTS = {
    ErrorClass.RATE_LIMIT: 10,
    ErrorClass.OVERLOADED: 6,
    ErrorClass.SERVER: 6,
    ErrorClass.CONNECTION: 6,
    ErrorClass.MALFORMED: 6,
}
"""Attempts at most, the first included. Every other failure is final: asking again cannot help,
and after a deadline the call has been paid for."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try again."""

    seconds: float
    """How long to wait before."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Try no more."""

    outcome: Outcome
    """What the item comes to: TIMEOUT_ERROR or API_ERROR."""


def decide(
    error_class: ErrorClass, attempt: int, retry_after_s: float | None, jitter: float
) -> RetryAfter | GiveUp:
    """Decide what follows a failed attempt.

    Args:
        error_class: Why it failed.
        attempt: Its number, from 1.
        retry_after_s: What the provider asked us to wait; a minimum.
        jitter: A random number in [0, 1), so that a fleet does not come back in step.

    Returns:
        A wait between half the backoff and the backoff, moved up to start at `retry_after_s`; or
        the outcome to give up with.
    """
    if error_class is ErrorClass.DEADLINE:
        return GiveUp(Outcome.TIMEOUT_ERROR)
    asked_s = retry_after_s or 0.0
    if attempt >= ATTEMPTS.get(error_class, 1) or asked_s > LONGEST_RETRY_AFTER_S:
        return GiveUp(Outcome.API_ERROR)
    half_s = min(CAP_S, BASE_S * 2 ** (attempt - 1)) / 2
    return RetryAfter(max(half_s, asked_s) + half_s * jitter)
