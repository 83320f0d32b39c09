"""How reports write numbers."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from aegish_dist.report.numbers import (
    format_count,
    format_decimal,
    format_interval,
    format_ms,
    format_points,
    format_rate,
    format_time,
    format_usd,
)

DASH = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("value", "text"), [(0.957, "95.7"), (1.0, "100.0"), (0.0, "0.0"), (None, DASH)]
)
def test_a_rate_is_a_percentage_with_one_decimal(value: float | None, text: str) -> None:
    """Rates read as percentages, and an undefined one as a dash."""
    assert format_rate(value) == text


def test_a_standard_error_has_two_decimals() -> None:
    """Standard errors are in percentage points."""
    assert format_points(0.0078) == "0.78"
    assert format_points(None) == DASH


def test_an_interval_is_bracketed() -> None:
    """Both ends of an interval read as percentages."""
    assert format_interval(0.939, 0.97) == "[93.9, 97.0]"


def test_half_an_interval_is_undefined() -> None:
    """An interval with an open end is a dash."""
    assert format_interval(0.9, None) == format_interval(None, 0.9) == DASH


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "$0.00"),
        (0.00195, "$0.00195"),
        (0.0312, "$0.0312"),
        (0.585, "$0.585"),
        (1.0, "$1.00"),
        (1234.567, "$1,234.57"),
        (0.0000000012, "$0.00000000120"),
        (None, DASH),
    ],
)
def test_small_amounts_keep_three_digits(value: float | None, text: str) -> None:
    """Amounts below a dollar show three significant digits, others cents."""
    assert format_usd(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0 ms"),
        (0.42, "0.4 ms"),
        (9.96, "10 ms"),
        (812.4, "812 ms"),
        (999.6, "1.00 s"),
        (2310.0, "2.31 s"),
        (9996.0, "10.0 s"),
        (23100.0, "23.1 s"),
        (231000.0, "231 s"),
        (None, DASH),
    ],
)
def test_times_show_about_three_digits(value: float | None, text: str) -> None:
    """Times switch from milliseconds to seconds, without a rounding step like 1000 ms."""
    assert format_ms(value) == text


def test_counts_have_thousands_separators() -> None:
    """Counts group their digits."""
    assert format_count(1234567) == "1,234,567"
    assert format_count(0) == "0"
    assert format_count(None) == DASH


def test_decimals_have_three_places() -> None:
    """Scores that are no rates are not turned into percentages."""
    assert format_decimal(0.0412) == "0.041"
    assert format_decimal(None) == DASH


def test_times_of_day_are_in_utc() -> None:
    """A time with another offset is converted."""
    moment = datetime(2026, 11, 20, 15, 3, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(moment) == "2026-11-20 14:03 UTC"
    assert format_time(moment.astimezone(UTC)) == "2026-11-20 14:03 UTC"
