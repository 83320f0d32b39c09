"""Intervals as small drawings, all on one scale."""

from collections.abc import Iterable
from dataclasses import dataclass

from aegish_dist.statistics.rates import Estimate

_WIDTH = 200
_HEIGHT = 12


@dataclass(frozen=True, slots=True)
class BarScale:
    """The values at the ends of every bar of a table."""

    low: float
    high: float

    def place(self, value: float) -> str:
        """Return where a value lies in a drawing; values beyond an end lie at it."""
        share = (value - self.low) / (self.high - self.low)
        return f"{_WIDTH * min(max(share, 0), 1):.1f}"


def rate_scale(estimates: Iterable[Estimate]) -> BarScale:
    """Return a scale for rates that ends at 1 and begins at a tenth below every interval."""
    lows = [low for each in estimates for low in (each.ci_low, each.value) if low is not None]
    return BarScale(min(int(10 * min(lows, default=0)), 9) / 10, 1)


def interval_bar(scale: BarScale, estimate: Estimate, aim: float | None = None) -> str:
    """Return an estimate with its interval as SVG; nothing where it is undefined.

    The text beside it says the same: it is hidden from screen readers.

    Args:
        aim: A value marked by a line across, such as a target.
    """
    if estimate.value is None:
        return ""
    middle = _HEIGHT // 2
    parts = []
    if aim is not None:
        parts.append(f'<path class="aim" d="M{scale.place(aim)} 0V{_HEIGHT}"/>')
    if estimate.ci_low is not None and estimate.ci_high is not None:
        low, high = scale.place(estimate.ci_low), scale.place(estimate.ci_high)
        parts.append(f'<path d="M{low} 3V9M{low} {middle}H{high}M{high} 3V9"/>')
    parts.append(f'<path class="dot" d="M{scale.place(estimate.value)} {middle}h0"/>')
    return (
        f'<svg class="bar" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )
