"""Failures over time, as sums and as a timeline."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.status import RAMP, STRETCHES, TimedFailures, stretch_of, timeline, totals

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE = TimedFailures(None, "test/a", ErrorClass.SERVER, 1, 0, (500,), "", None, None)


def failures(minute: int | None, attempts: int = 1, **fields: object) -> TimedFailures:
    time = None if minute is None else NOON + timedelta(minutes=minute)
    return replace(ONE, time=time, first_at=time, last_at=time, attempts=attempts, **fields)


def test_totals() -> None:
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
    assert stretch_of(span) == seconds
    assert span.total_seconds() // seconds + 1 <= STRETCHES
