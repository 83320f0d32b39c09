"""Scales of axes: their ends, their ticks, and where on the page a value lies.

They are worked out here and not left to Vega, because labels are placed in pixels before Vega draws
anything.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aegish_dist.report.charts.measures import Measured

LOG_SPAN = 12.0
"""From this ratio of the greatest to the least value on, an axis that may be logarithmic is."""
_STEPS = (1, 2, 5, 10)
_LOG_STEPS = ((1, 2, 5), (1, 3), (1,))


@dataclass(frozen=True, slots=True)
class AxisScale:
    """One axis."""

    low: float
    """Where it begins, in the unit of the axis."""
    high: float
    ticks: tuple[float, ...]
    """Values that have a line and a label, ascending."""
    pixels: float
    log: bool = False

    def along(self, value: float) -> float:
        """Return the distance of a value from the beginning of the axis, in pixels."""
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return share * self.pixels

    def down(self, value: float) -> float:
        """Return the distance of a value from the top of the plot, for an axis that goes up."""
        return self.pixels - self.along(value)

    @property
    def scale(self) -> dict[str, Any]:
        """The `scale` of an encoding."""
        kind = {"type": "log"} if self.log else {"type": "linear", "zero": False}
        return kind | {"domain": [self.low, self.high], "nice": False}


def linear_scale(
    values: Sequence[float],
    pixels: float,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    ticks: int = 9,
) -> AxisScale:
    """Return a scale whose ends are ticks.

    Args:
        values: Everything that has to lie on it; at least one.
    """
    low, high = min(values), max(values)
    span = max(high - low, abs(high) * 0.02) or 1.0
    step = _step(span / ticks)
    first = math.floor(max(low - span * 0.04, least) / step + 1e-9)
    last = math.ceil(min(high + span * 0.04, most) / step - 1e-9)
    found = tuple(round(step * place, 10) for place in range(first, last + 1))
    return AxisScale(found[0], found[-1], found, pixels)


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(each * power for each in _STEPS if each * power >= rough * (1 - 1e-9))


def log_scale(values: Sequence[float], pixels: float) -> AxisScale:
    """Return a logarithmic scale with ticks at 1, 2 and 5, or fewer where it spans much.

    Args:
        values: Everything that has to lie on it; each above 0.
    """
    low, high = min(values) / 1.25, max(values) * 1.25
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fitting: tuple[float, ...] = ()
    for steps in _LOG_STEPS:
        ladder = [float(f"{each}e{power}") for power in powers for each in steps]
        fitting = tuple(tick for tick in ladder if low <= tick <= high)
        if len(fitting) <= pixels / 55:
            break
    return AxisScale(low, high, fitting, pixels, log=True)


def percent_scale(
    seen: Iterable[Measured], target: float | None, pixels: float, *, ticks: int = 9
) -> AxisScale:
    """Return a scale for percentages that holds values, intervals and their target.

    Args:
        seen: The values; at least one is known.
        target: In [0, 1]; None: there is none.
    """
    values = [value for each in seen for value in each.known]
    values += [] if target is None else [100 * target]
    return linear_scale(values, pixels, least=0.0, most=100.0, ticks=ticks)


def amount_scale(values: Sequence[float], pixels: float) -> AxisScale:
    """Return a scale for amounts: from 0, or logarithmic where they span much.

    Args:
        values: All amounts, none negative; on a logarithmic scale those of 0 have no place.
    """
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) >= LOG_SPAN:
        return log_scale(positive, pixels)
    return linear_scale([0.0, *values], pixels, least=0.0)
