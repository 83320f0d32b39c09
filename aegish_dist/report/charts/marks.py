"""Marks that several plots have."""

from collections.abc import Iterator

from aegish_dist.report.charts import theme
from aegish_dist.report.charts.boxes import PixelLine
from aegish_dist.report.charts.chart import Layer
from aegish_dist.report.charts.layers import lines, text_row, texts
from aegish_dist.report.charts.scales import AxisScale


def dashed(rows: list[PixelLine], color: str = theme.SOFT) -> Layer:
    """Return dashed lines."""
    drawn = lines(rows, color)
    drawn["mark"]["strokeDash"] = [5, 3]
    return drawn


def target_marks(target: float | None, scale: AxisScale, height: float) -> Iterator[Layer]:
    """Yield the line of a target across all rows, and its label above them.

    Args:
        target: In [0, 1]; None: there is none.
    """
    if target is None or not scale.low <= 100 * target <= scale.high:
        return
    x = scale.along(100 * target)
    yield dashed([PixelLine(x, 0, x, height)])
    label = text_row(x, -7, f"target {100 * target:g} %", theme.SOFT)
    yield texts([label], align="center", size=theme.SMALL_PX)
