"""How reports write numbers; what is undefined is an en dash, never 0."""

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from aegish_dist.core.text import counted

UNDEFINED = "\N{EN DASH}"


def format_rate(value: float | None) -> str:
    """Write a rate in [0, 1] as a percentage without its sign: 0.957 is `95.7`."""
    return UNDEFINED if value is None else f"{100 * value:z.1f}"


def format_points(value: float | None) -> str:
    """Write a difference or standard error of rates in percentage points: 0.0078 is `0.78`."""
    return UNDEFINED if value is None else f"{100 * value:z.2f}"


def format_interval(
    low: float | None, high: float | None, write: Callable[[float | None], str] = format_rate
) -> str:
    """Write an interval: `[93.9, 97.0]`, of differences `[-0.3, +1.9]`."""
    return UNDEFINED if low is None or high is None else f"[{write(low)}, {write(high)}]"


def format_difference(value: float | None) -> str:
    """Write a difference of rates in percentage points, with its sign: 0.012 is `+1.2`, 0 `0.0`."""
    if value is None:
        return UNDEFINED
    points = f"{100 * value:+.1f}"
    return points[1:] if points in ("+0.0", "-0.0") else points


def format_p(value: float | None) -> str:
    """Write a p value: three decimals, `<0.001` below, never `0.000`."""
    return format_decimal(value) if value is None or value >= 0.001 else "<0.001"


def format_decimal(value: float | None) -> str:
    """Write a number that is no rate, such as a Brier score, with three decimals."""
    return UNDEFINED if value is None else f"{value:z.3f}"


def format_count(value: int | None) -> str:
    """Write a count with thousands separators."""
    return UNDEFINED if value is None else f"{value:,}"


def format_span(counts: Iterable[int], between: str = " to ") -> str:
    """Write the least and the greatest count: `3 to 12`, or `3` where they are the same."""
    ends = sorted(counts)
    return between.join(dict.fromkeys(map(format_count, (*ends[:1], *ends[-1:]))))


def format_usd(value: float | None) -> str:
    """Write an amount in USD: cents from one dollar on, three significant digits below."""
    if value is None:
        return UNDEFINED
    if value == 0 or value >= 1:
        return f"${value:,.2f}"
    return f"${value:.{2 - math.floor(math.log10(value))}f}"


def format_ms(value: float | None) -> str:
    """Write a time given in milliseconds: `0.4 ms`, `812 ms`, `2.31 s`, `23.1 s`, `231 s`."""
    if value is None:
        return UNDEFINED
    # The bounds are where rounding to the shown digits would need one digit more.
    if value < 999.5:
        return f"{value:.1f} ms" if value < 9.95 else f"{value:.0f} ms"
    seconds = value / 1000
    decimals = 2 if seconds < 9.995 else 1 if seconds < 99.95 else 0
    return f"{seconds:,.{decimals}f} s"


def format_length(length_s: int) -> str:
    """Write a length of time by its largest unit: `10 s`, `5 minutes`, `3 hours`, `2 days`."""
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if length_s >= seconds:
            return counted(length_s // seconds, unit)
    return f"{length_s} s"


def format_time(moment: datetime) -> str:
    """Write a time to the minute, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
