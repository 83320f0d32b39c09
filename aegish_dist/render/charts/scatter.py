"""One quantity against another, a labelled point for each model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aegish_dist.core.opinion import Targets
from aegish_dist.core.printable import printable
from aegish_dist.render.charts import theme
from aegish_dist.render.charts.boxes import PixelBox, PixelLine
from aegish_dist.render.charts.captions import (
    capital,
    counted,
    in_words,
    interval_note,
    listed,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.render.charts.chart import Chart, Layer, LegendItem, NoChart, Panel
from aegish_dist.render.charts.labels import MARK_PX, LabelledPoint, PlacedLabel, place_labels
from aegish_dist.render.charts.layers import (
    axes,
    beside,
    lines,
    on_axis,
    symbols,
    text_row,
    texts,
)
from aegish_dist.render.charts.marks import dashed
from aegish_dist.render.charts.measures import Measure, Measured
from aegish_dist.render.charts.naming import point_names
from aegish_dist.render.charts.scales import AxisScale, amount_scale, linear_scale
from aegish_dist.render.charts.text_width import text_width
from aegish_dist.render.entries import RankedModel

WIDTH, HEIGHT = 640.0, 400.0
_TALL = 560.0
"""Height from `_MANY` models on."""
_MANY = 14


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """A model that has both quantities."""

    entry: RankedModel
    """The model."""
    name: str
    """Its label; foreign text made printable."""
    x: Measured
    """The quantity across."""
    y: Measured
    """The quantity upwards."""


@dataclass(frozen=True, slots=True)
class _Plane:
    """Points on their axes."""

    points: Sequence[ScatterPoint]
    across: Measure
    up: Measure
    x: AxisScale
    y: AxisScale

    def place(self, point: ScatterPoint) -> tuple[float, float]:
        return self.x.along(point.x.value or 0.0), self.y.down(point.y.value or 0.0)

    @property
    def area(self) -> PixelBox:
        return PixelBox(0, 0, self.x.pixels, self.y.pixels)

    def bars(self) -> Iterator[PixelLine]:
        """Yield the intervals, across and upwards."""
        for point in self.points:
            x, y = self.place(point)
            if point.y.low is not None and point.y.high is not None:
                yield PixelLine(x, self.y.down(point.y.low), x, self.y.down(point.y.high))
            if point.x.low is not None and point.x.high is not None:
                yield PixelLine(self.x.along(point.x.low), y, self.x.along(point.x.high), y)


def scatter(
    name: str,
    entries: Sequence[RankedModel],
    targets: Targets,
    *,
    across: Measure,
    up: Measure,
    frontier: bool,
) -> Chart | NoChart:
    """Return a scatter plot.

    Args:
        name: Name of the chart.
        entries: The models, best first.
        targets: Their values are drawn as lines.
        across: The quantity across.
        up: The quantity upwards.
        frontier: Whether a line joins the models that no other one beats in both quantities.
    """
    points = _points(entries, across, up)
    if not points:
        return NoChart(name, f"no model has both {across.name} and {up.name}")
    plane = _plane(points, across, up, targets)
    drawn = [point for point in points if _has_place(point, plane)]
    plane = _Plane(drawn, across, up, plane.x, plane.y)
    styles = theme.provider_styles(entry.model for entry in entries)
    best = pareto(drawn) if frontier else []
    target_lines = list(_targets(plane, targets))
    steps = list(_steps(best, plane))
    labels = _labels(
        plane, [each.box for each in target_lines], [*(each.line for each in target_lines), *steps]
    )
    layers = [
        axes(
            x=on_axis("x", plane.x, across.axis, across.form),
            y=on_axis("y", plane.y, up.axis, up.form),
        ),
        lines(list(plane.bars()), theme.BAR, 1.5),
        *([lines(steps, theme.INK)] if steps else []),
        *_target_layers(target_lines),
        *_leaders(labels),
        symbols(
            [_symbol(point, plane, styles) for point in drawn],
            beside("x", plane.x),
            beside("y", plane.y),
        ),
        *_names(labels),
    ]
    legend = [
        *(LegendItem(printable(provider) or "(none)", style.color, style.shape)
          for provider, style in styles.items()),
        *([LegendItem("Pareto line", theme.INK)] if len(best) > 1 else []),
        *([LegendItem("target", theme.SOFT, dash=(5, 3))] if target_lines else []),
    ]  # fmt: skip
    return Chart(
        name=name,
        title=f"{capital(up.name)} against {across.name}",
        caption=_caption(plane, entries, labels),
        description=_description(plane, best),
        panel=Panel(plane.x.pixels, plane.y.pixels, 66, 34, 14, 46, layers, legend),
    )


def _points(entries: Sequence[RankedModel], across: Measure, up: Measure) -> list[ScatterPoint]:
    found = [
        ScatterPoint(entry, name, across.read(entry), up.read(entry))
        for entry, name in zip(entries, point_names(entries), strict=True)
    ]
    return [each for each in found if each.x.value is not None and each.y.value is not None]


def _plane(
    points: Sequence[ScatterPoint], across: Measure, up: Measure, targets: Targets
) -> _Plane:
    height = _TALL if len(points) >= _MANY else HEIGHT
    x = _scale(across, [point.x for point in points], targets, WIDTH)
    return _Plane(points, across, up, x, _scale(up, [p.y for p in points], targets, height))


def _scale(
    measure: Measure, seen: Sequence[Measured], targets: Targets, length: float
) -> AxisScale:
    values = [v for each in seen for v in (each.value, each.low, each.high) if v is not None]
    if not measure.metric:
        return amount_scale(values, length)
    target = targets.least.get(measure.metric)
    with_target = values if target is None else [*values, 100 * target]
    return linear_scale(with_target, length, least=0.0, most=100.0)


def _has_place(point: ScatterPoint, plane: _Plane) -> bool:
    """Whether a point is on the axes: on a logarithmic one there is no place for 0."""
    return not (plane.x.log and not point.x.value)


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


def _steps(best: Sequence[ScatterPoint], plane: _Plane) -> Iterator[PixelLine]:
    """Yield the Pareto line: what the best model up to each place achieves."""
    if len(best) < 2:
        return
    places = [plane.place(point) for point in best]
    for (x, y), (x2, y2) in pairwise([*places, (plane.x.pixels, places[-1][1])]):
        yield PixelLine(x, y, x2, y)
        if y2 != y:
            yield PixelLine(x2, y, x2, y2)


@dataclass(frozen=True, slots=True)
class _TargetLine:
    line: PixelLine
    text: str
    box: PixelBox


def _targets(plane: _Plane, targets: Targets) -> Iterator[_TargetLine]:
    for measure, scale, is_up in ((plane.up, plane.y, True), (plane.across, plane.x, False)):
        least = targets.least.get(measure.metric)
        if least is None or not scale.low <= 100 * least <= scale.high:
            continue
        at = scale.down(100 * least) if is_up else scale.along(100 * least)
        ends = (0, at, plane.x.pixels, at) if is_up else (at, 0, at, plane.y.pixels)
        line, text = PixelLine(*ends), f"target {100 * least:g} %"
        yield _TargetLine(line, text, _beside_line(line, text_width(text, theme.SMALL_PX), plane))


def _beside_line(line: PixelLine, width: float, plane: _Plane) -> PixelBox:
    """Return the first place along a line for its label that covers no point."""
    if line.y == line.y2:
        steps = range(int((plane.x.pixels - width - 2) // 20) + 1)
        lefts = [plane.x.pixels - width - 2 - 20 * step for step in steps]
        corners = [(left, top) for top in (line.y - 13, line.y + 2) for left in lefts]
    else:
        tops = [plane.y.pixels - 14 - 20 * step for step in range(int(plane.y.pixels // 20) - 1)]
        corners = [(left, top) for left in (line.x + 3, line.x - width - 3) for top in tops]
    boxes = [PixelBox(left, top, left + width, top + 11) for left, top in corners]
    marks = [PixelBox(x, y, x, y).grown(MARK_PX + 1) for x, y in map(plane.place, plane.points)]
    fitting = [box for box in boxes if plane.area.holds(box)]
    free = (box for box in fitting if not any(box.meets(mark) for mark in marks))
    return next(free, fitting[0])


def _target_layers(found: Sequence[_TargetLine]) -> Iterator[Layer]:
    for each in found:
        yield dashed([each.line])
    rows = [
        text_row(each.box.left, (each.box.top + each.box.bottom) / 2, each.text, theme.SOFT)
        for each in found
    ]
    if rows:
        yield texts(rows, size=theme.SMALL_PX)


def _labels(
    plane: _Plane, obstacles: Sequence[PixelBox], strokes: Sequence[PixelLine]
) -> list[PlacedLabel | None]:
    points = [LabelledPoint(*plane.place(each), each.name) for each in plane.points]
    bars = [*plane.bars(), *strokes]
    return place_labels(points, plane.area, theme.TEXT_PX, obstacles=obstacles, bars=bars)


def _names(labels: Sequence[PlacedLabel | None]) -> Iterator[Layer]:
    for align in ("left", "center", "right"):
        found = [each for each in labels if each is not None and each.align == align]
        if found:
            yield texts([text_row(each.x, each.y, each.text) for each in found], align=align)


def _leaders(labels: Sequence[PlacedLabel | None]) -> Iterator[Layer]:
    found = [each.line for each in labels if each is not None and each.line is not None]
    if found:
        yield lines(found, theme.LINE, 0.8)


def _symbol(
    point: ScatterPoint, plane: _Plane, styles: Mapping[str, theme.PlotStyle]
) -> dict[str, object]:
    style = styles[theme.provider_of(point.entry.model)]
    return {
        "model": point.name,
        "x": point.x.value,
        "y": point.y.value,
        "color": style.color,
        "shape": style.shape,
    }


def _caption(
    plane: _Plane, entries: Sequence[RankedModel], labels: Sequence[PlacedLabel | None]
) -> str:
    drawn = [point.entry for point in plane.points]
    missing = [entry for entry in entries if entry not in drawn]
    unlabelled = [p.name for p, label in zip(plane.points, labels, strict=True) if label is None]
    return sentences(
        f"{counted(len(drawn), 'model')}: {plane.up.name} ({_better(plane.up)}) against "
        f"{plane.across.name} ({_better(plane.across)}){_sizes(plane)}.",
        interval_note([plane.up, plane.across]),
        simulated_note(drawn),
        _missing(missing, plane),
        f"Without room for a label: {listed(unlabelled)}." if unlabelled else "",
    )


def _sizes(plane: _Plane) -> str:
    sizes = [
        sampled(plane.up, [point.y for point in plane.points]),
        sampled(plane.across, [point.x for point in plane.points]),
    ]
    return "".join(f"; {size}" for size in sizes if size)


def _better(measure: Measure) -> str:
    return "more is better" if measure.more_is_better else "less is better"


def _missing(missing: Sequence[RankedModel], plane: _Plane) -> str:
    """Name the models that are not drawn, by the reason."""
    reasons: dict[str, list[str]] = {}
    for entry in missing:
        lacking = [m.name for m in (plane.across, plane.up) if m.read(entry).value is None]
        reason = f"no {' and no '.join(lacking)}" if lacking else f"{plane.across.name} 0"
        reasons.setdefault(reason, []).append(entry.model)
    found = [f"{listed(models)} ({reason})" for reason, models in reasons.items()]
    return f"Not drawn: {'; '.join(found)}." if found else ""


def _description(plane: _Plane, best: Sequence[ScatterPoint]) -> str:
    said = [
        f"{point.entry.model}: {in_words(plane.up, point.y)}, {in_words(plane.across, point.x)}"
        for point in plane.points
    ]
    line = f" On the Pareto line: {listed([each.entry.model for each in best])}." if best else ""
    return f"{'; '.join(map(printable, said))}.{line}"
