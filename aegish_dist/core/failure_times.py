"""When and why calls to the models of a run failed: counts by stretch of time."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from aegish_dist.core.verdict import ErrorClass

RAMP = " .:-=+*#%@"
"""From no failed attempt to the most of a row."""

STRETCHES = 60
"""Stretches of time that failures are counted in at the most, where nothing else is asked for."""
_STRETCHES_S = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400)


def stretch_of(span: timedelta) -> int:
    """Return the seconds of a stretch, so that no more than `STRETCHES` of them cover a span.

    Args:
        span: From the first failure to the last, not negative.
    """
    # Stretches begin at multiples of their length, so the ends of a span may lie in two more.
    least = span.total_seconds() / (STRETCHES - 1)
    for seconds in _STRETCHES_S:
        if seconds >= least:
            return seconds
    return 86_400 * math.ceil(least / 86_400)


@dataclass(frozen=True, slots=True)
class TimedFailures:
    """Failures of one model for one reason, in one stretch of time or over all."""

    time: datetime | None
    """When the stretch begins, in UTC; None where an import did not say, and over all."""
    model: str
    error_class: ErrorClass
    attempts: int
    """Failed attempts, those included after which another one succeeded."""
    verdicts: int
    """Verdicts that ended without an answer for it."""
    statuses: tuple[int, ...]
    """HTTP statuses of the attempts, each once, sorted."""
    message: str
    """The provider's words at the newest attempt, masked; foreign text, empty without any."""
    first_at: datetime | None
    """When the first one happened; None where unknown."""
    last_at: datetime | None
    """When the newest one happened; None where unknown."""


def totals(rows: Iterable[TimedFailures]) -> list[TimedFailures]:
    """Add up the stretches of each model and reason, the most attempts first."""
    ordered = sorted(rows, key=_kind)
    added = [_sum(list(group)) for _, group in groupby(ordered, _kind)]
    return sorted(added, key=lambda each: (each.model, -each.attempts, -each.verdicts))


def _kind(row: TimedFailures) -> tuple[str, str]:
    return row.model, row.error_class


def _sum(rows: list[TimedFailures]) -> TimedFailures:
    firsts = [row.first_at for row in rows if row.first_at is not None]
    lasts = [row.last_at for row in rows if row.last_at is not None]
    spoken = [row for row in rows if row.message and row.last_at is not None]
    newest = max(spoken, key=lambda row: str(row.last_at), default=None)
    return TimedFailures(
        time=None,
        model=rows[0].model,
        error_class=rows[0].error_class,
        attempts=sum(row.attempts for row in rows),
        verdicts=sum(row.verdicts for row in rows),
        statuses=tuple(sorted({status for row in rows for status in row.statuses})),
        message="" if newest is None else newest.message,
        first_at=min(firsts, default=None),
        last_at=max(lasts, default=None),
    )


def timeline(rows: Iterable[TimedFailures], first: datetime, last: datetime, width: int) -> str:
    """Draw failures over time in characters of `RAMP`.

    Args:
        first: Where the first character begins.
        last: Where the last character ends, or lies; not before `first`.
    """
    counts = [0] * width
    stretch = (last - first).total_seconds() / width or 1.0
    for row in rows:
        if row.time is not None:
            place = int((row.time - first).total_seconds() / stretch)
            counts[min(max(place, 0), width - 1)] += max(row.attempts, row.verdicts)
    most = max(counts, default=0) or 1
    return "".join(RAMP[-(-count * (len(RAMP) - 1) // most)] for count in counts)
