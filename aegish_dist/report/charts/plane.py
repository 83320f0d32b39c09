"""The points of a scatter plot on their axes, and the best of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aegish_dist.core.opinion import Targets
from aegish_dist.report.charts.boxes import PixelBox, PixelLine
from aegish_dist.report.charts.measures import Measure, Measured
from aegish_dist.report.charts.naming import point_names
from aegish_dist.report.charts.scales import AxisScale, amount_scale, percent_scale
from aegish_dist.report.layout import RankedModel

WIDTH, HEIGHT = 640.0, 400.0
_TALL = 560.0
_MANY = 14


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """A model that has both quantities."""

    entry: RankedModel
    name: str
    x: Measured
    y: Measured


@dataclass(frozen=True, slots=True)
class ScatterPlane:
    """Points on their axes."""

    points: Sequence[ScatterPoint]
    unplaced: Sequence[ScatterPoint]
    """Those whose quantity across is 0, which a logarithmic axis does not reach."""
    across: Measure
    up: Measure
    x: AxisScale
    y: AxisScale

    def place(self, point: ScatterPoint) -> tuple[float, float]:
        """Return where a point lies, in pixels from the top left corner; left of all without."""
        x = 0.0 if point in self.unplaced else self.x.along(point.x.value or 0.0)
        return x, self.y.down(point.y.value or 0.0)

    @property
    def area(self) -> PixelBox:
        """The area within the axes."""
        return PixelBox(0, 0, self.x.pixels, self.y.pixels)

    def bars(self) -> Iterator[PixelLine]:
        """Yield the intervals, across and upwards."""
        for point in self.points:
            x, y = self.place(point)
            if point.y.low is not None and point.y.high is not None:
                yield PixelLine(x, self.y.down(point.y.low), x, self.y.down(point.y.high))
            if point.x.low is not None and point.x.high is not None:
                yield PixelLine(self.x.along(point.x.low), y, self.x.along(point.x.high), y)


def scatter_plane(
    entries: Sequence[RankedModel], across: Measure, up: Measure, targets: Targets
) -> ScatterPlane | None:
    """Lay out the models that have both quantities.

    Returns:
        The points with their axes; a value of 0 has no place on a logarithmic one. None without
        any point.
    """
    found = [
        ScatterPoint(entry, name, across.read(entry), up.read(entry))
        for entry, name in zip(entries, point_names(entries), strict=True)
    ]
    points = [each for each in found if each.x.value is not None and each.y.value is not None]
    if not points:
        return None
    height = _TALL if len(points) >= _MANY else HEIGHT
    x = _scale(across, [point.x for point in points], targets, WIDTH)
    y = _scale(up, [point.y for point in points], targets, height)
    unplaced = [point for point in points if x.log and not point.x.value]
    drawn = [point for point in points if point not in unplaced]
    return ScatterPlane(drawn, unplaced, across, up, x, y)


def _scale(
    measure: Measure, seen: Sequence[Measured], targets: Targets, length: float
) -> AxisScale:
    if not measure.metric:
        return amount_scale([value for each in seen for value in each.known], length)
    return percent_scale(seen, targets.least.get(measure.metric), length)


def pareto(points: Sequence[ScatterPoint]) -> list[ScatterPoint]:
    """Return the points that no other one beats in one quantity without losing in the other.

    Args:
        points: Of them less is better across, and more is better upwards.

    Returns:
        Ascending in both; of equal points the first one.
    """
    best: list[ScatterPoint] = []
    for point in sorted(points, key=lambda each: (each.x.value or 0, -(each.y.value or 0))):
        if not best or (point.y.value or 0) > (best[-1].y.value or 0):
            best.append(point)
    return best


def pareto_line(best: Sequence[ScatterPoint], plane: ScatterPlane) -> Iterator[PixelLine]:
    """Yield the line of the best value so far, from the first point to the end of the axis.

    Args:
        best: As of `pareto`; one point alone has no line, unless it has no place itself.
    """
    if len(best) < 2 and not any(point in plane.unplaced for point in best):
        return
    places = [plane.place(point) for point in best]
    for (x, y), (x2, y2) in pairwise([*places, (plane.x.pixels, places[-1][1])]):
        yield PixelLine(x, y, x2, y)
        if y2 != y:
            yield PixelLine(x2, y, x2, y2)
