"""Plots with a row for each model: names on the left, an axis below."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.report.charts import theme
from aegish_dist.report.charts.boxes import PixelLine
from aegish_dist.report.charts.chart import Chart, Layer, LegendItem, Panel
from aegish_dist.report.charts.layers import axes, box_row, boxes, lines, on_axis, text_row, texts
from aegish_dist.report.charts.naming import row_names
from aegish_dist.report.charts.scales import AxisScale
from aegish_dist.report.charts.text_width import text_width
from aegish_dist.report.layout import RankedModel

AXIS_PX = 430.0
"""Length of the axis of a plot with rows."""
_GAP = 10.0
_BELOW = 46.0


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Rows and where they lie."""

    names: Sequence[str]
    """One for each row, from the top; foreign text made printable."""
    height: float
    keys: Sequence[str] = ()
    """Texts before the names, such as ranks; empty: none."""

    @property
    def total(self) -> float:
        """Pixels of all rows."""
        return self.height * len(self.names)

    @property
    def left(self) -> float:
        """Pixels that the names take on the left, with margins."""
        widest = max((text_width(name, theme.TEXT_PX) for name in self.names), default=0.0)
        return theme.MARGIN + self._keys_width + widest + _GAP

    @property
    def _keys_width(self) -> float:
        widths = [text_width(key, theme.TEXT_PX) for key in self.keys]
        return max(widths) + _GAP if widths else 0.0

    def y(self, row: int, lane: float = 0.5) -> float:
        """Return the height of a lane of a row.

        Args:
            row: 0 is the uppermost one.
            lane: In [0, 1], from the top of the row to its bottom.
        """
        return round((row + lane) * self.height, 1)

    def labels(self) -> Iterator[Layer]:
        """Yield the keys and the names."""
        rows = [text_row(-_GAP, self.y(at), name) for at, name in enumerate(self.names)]
        yield texts(rows, align="right")
        left = theme.MARGIN - self.left
        if self.keys:
            yield texts([text_row(left, self.y(at), key) for at, key in enumerate(self.keys)])

    def bands(self, width: float, groups: Sequence[int]) -> Iterator[Layer]:
        """Yield the shade behind every second group of rows."""
        shaded = [
            box_row(8 - self.left, self.y(at, 0), width, self.y(at, 1), theme.BAND)
            for at, group in enumerate(groups)
            if group % 2
        ]
        if shaded:
            yield boxes(shaded)


def plan_rows(entries: Sequence[RankedModel], height: float) -> RowPlan:
    """Return a row for each model."""
    return RowPlan(row_names(entries), height)


@dataclass(frozen=True, slots=True)
class RowChart:
    """All that a plot with rows and one axis needs besides its marks."""

    name: str
    title: str
    caption: str
    description: str
    axis: str
    form: str
    """How ticks are written, in d3's words."""
    right: float = 34.0
    """Pixels that text on the right takes, with the margin."""
    groups: Sequence[int] = ()
    """Number of the group of each row; empty: rows alternate."""
    top: float = 12.0

    def drawn(
        self,
        plan: RowPlan,
        scale: AxisScale,
        marks: Sequence[Layer],
        legend: Sequence[LegendItem] = (),
    ) -> Chart:
        """Return the chart."""
        groups = self.groups or range(len(plan.names))
        grid = [PixelLine(x, 0, x, plan.total) for x in map(scale.along, scale.ticks)]
        layers = [
            *plan.bands(scale.pixels + self.right - 8, groups),
            axes(x=on_axis("x", scale, self.axis, self.form, grid=False)),
            lines(grid, theme.GRID),
            *plan.labels(),
            *marks,
        ]
        panel = Panel(
            scale.pixels, plan.total, plan.left, self.right, self.top, _BELOW, layers, legend
        )
        return Chart(self.name, self.title, self.caption, self.description, panel)
