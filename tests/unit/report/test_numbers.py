"""How reports write numbers."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aegish_dist.report.numbers import (
    format_count,
    format_decimal,
    format_difference,
    format_interval,
    format_ms,
    format_points,
    format_rate,
    format_time,
    format_usd,
)

DASH = "\N{EN DASH}"
RATES = ((0.957, "95.7"), (1.0, "100.0"), (0.0, "0.0"), (None, DASH))
AMOUNTS = (
    *((0.0, "$0.00"), (0.00195, "$0.00195"), (0.0312, "$0.0312"), (0.585, "$0.585")),
    *((1.0, "$1.00"), (1234.567, "$1,234.57"), (0.0000000012, "$0.00000000120"), (None, DASH)),
)
"""Three significant digits below a dollar, cents from one dollar on."""
TIMES = (
    *((0.0, "0.0 ms"), (0.42, "0.4 ms"), (9.96, "10 ms"), (812.4, "812 ms"), (999.6, "1.00 s")),
    *((2310.0, "2.31 s"), (9996.0, "10.0 s"), (23100.0, "23.1 s"), (231000.0, "231 s")),
    (None, DASH),
)
"""About three digits, without a rounding step like 1000 ms."""


DIFFERENCES = [
    (0.012, "+1.2"),
    (-0.012, "-1.2"),
    (0.0, "0.0"),
    (-0.0, "0.0"),
    (-0.0004, "0.0"),
    (0.0004, "0.0"),
    (-0.0006, "-0.1"),
    (None, DASH),
]


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        *((format_rate, *case) for case in RATES),
        *((format_points, *case) for case in ((0.0078, "0.78"), (-1e-9, "0.00"), (None, DASH))),
        *((format_rate, value, "0.0") for value in (0.0, -0.0, -0.0004)),
        *((format_decimal, value, "0.000") for value in (-0.0, -0.0004)),
        *((format_difference, *case) for case in DIFFERENCES),
        *((format_usd, *case) for case in AMOUNTS),
        *((format_ms, *case) for case in TIMES),
        *((format_count, *case) for case in ((1234567, "1,234,567"), (0, "0"), (None, DASH))),
        *((format_decimal, *case) for case in ((0.0412, "0.041"), (None, DASH))),
    ],
)
def test_a_number_is_written_for_people(write: Callable[[Any], str], value: Any, text: str) -> None:
    assert write(value) == text


def test_half_an_interval_is_undefined() -> None:
    assert format_interval(0.939, 0.97) == "[93.9, 97.0]"
    assert format_interval(0.9, None) == format_interval(None, 0.9) == DASH


def test_times_of_day_are_in_utc() -> None:
    moment = datetime(2026, 11, 20, 15, 3, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(moment) == "2026-11-20 14:03 UTC"
    assert format_time(moment.astimezone(UTC)) == "2026-11-20 14:03 UTC"
