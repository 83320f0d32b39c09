"""Failures over time: sums and the drawn timeline."""

from datetime import UTC, datetime, timedelta

import pytest

from aegish_dist.core.failure_times import (
    RAMP,
    STRETCHES,
    TimedFailures,
    stretch_of,
    timeline,
    totals,
)  # fmt: skip
from aegish_dist.core.verdict import ErrorClass

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def failures(minute: int | None, attempts: int = 1, **fields: object) -> TimedFailures:
    time = None if minute is None else NOON + timedelta(minutes=minute)
    values: dict[str, object] = {
        "time": time,
        "model": "test/a",
        "error_class": ErrorClass.SERVER,
        "attempts": attempts,
        "verdicts": 0,
        "statuses": (500,),
        "message": "",
        "first_at": time,
        "last_at": time,
    }
    return TimedFailures(**values | fields)  # type: ignore[arg-type]


def test_totals() -> None:
    """One row per model and reason; the message is the newest one that there is."""
    rows = [
        failures(0, 2, message="old", verdicts=1),
        failures(5, 3, message="new", statuses=(503,)),
        failures(7, 0, statuses=(), verdicts=2),
        failures(None, 0, statuses=(), verdicts=4),
        failures(1, 9, error_class=ErrorClass.RATE_LIMIT, statuses=(429,)),
    ]
    limited, server = totals(rows)
    assert (limited.error_class, limited.attempts) == (ErrorClass.RATE_LIMIT, 9)
    assert (server.attempts, server.verdicts, server.statuses) == (5, 7, (500, 503))
    assert (server.time, server.message) == (None, "new")
    assert (server.first_at, server.last_at) == (NOON, NOON + timedelta(minutes=7))
    assert totals([]) == []


def test_timeline() -> None:
    """The most in any place is the last character of the ramp, any at all at least the second."""
    rows = [failures(0, 1), failures(5, 100), failures(9, 50)]
    assert timeline(rows, NOON, NOON + timedelta(minutes=10), 10) == ".    @   +"
    assert timeline(rows[:1], NOON, NOON, 4) == f"{RAMP[-1]}   "
    assert timeline([failures(None, 3)], NOON, NOON, 4) == "    "
    assert timeline(rows, NOON, NOON + timedelta(minutes=9), 1) == RAMP[-1]


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        (timedelta(), 1),
        (timedelta(seconds=59), 1),
        (timedelta(seconds=60), 5),
        (timedelta(minutes=59), 60),
        (timedelta(hours=1), 300),
        (timedelta(days=59), 86_400),
        (timedelta(days=60), 2 * 86_400),
        (timedelta(days=3_650), 62 * 86_400),
    ],
)
def test_stretches_are_few_and_round(span: timedelta, seconds: int) -> None:
    """At most sixty of them touch a span, wherever it begins, and clocks have marks for them."""
    assert stretch_of(span) == seconds
    assert span.total_seconds() // seconds + 1 <= STRETCHES
