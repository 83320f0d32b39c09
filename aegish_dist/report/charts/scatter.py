"""One quantity against another, a labelled point for each model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aegish_dist.core.opinion import Targets
from aegish_dist.report.charts import theme
from aegish_dist.report.charts.boxes import PixelBox, PixelLine
from aegish_dist.report.charts.captions import (
    capital,
    counted,
    described,
    foreign_words,
    interval_note,
    listed,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.report.charts.chart import Chart, Layer, LegendItem, NoChart, Panel
from aegish_dist.report.charts.labels import MARK_PX, LabelledPoint, PlacedLabel, place_labels
from aegish_dist.report.charts.layers import axes, beside, lines, on_axis, symbols, text_row, texts
from aegish_dist.report.charts.marks import dashed
from aegish_dist.report.charts.measures import Measure
from aegish_dist.report.charts.naming import short_name
from aegish_dist.report.charts.plane import (
    ScatterPlane,
    ScatterPoint,
    pareto,
    pareto_line,
    scatter_plane,
)
from aegish_dist.report.charts.text_width import text_width
from aegish_dist.report.layout import RankedModel


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
        entries: The models, best first.
        frontier: Whether a line joins the models that no other one beats in both quantities.
    """
    plane = scatter_plane(entries, across, up, targets)
    if plane is None:
        return NoChart(name, f"no model has both {across.name} and {up.name}")
    styles = theme.provider_styles(entry.model for entry in entries)
    best = pareto([*plane.points, *plane.unplaced]) if frontier else []
    target_lines = list(_targets(plane, targets))
    steps = list(pareto_line(best, plane))
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
            [_symbol(point, plane, styles) for point in plane.points],
            beside("x", plane.x),
            beside("y", plane.y),
        ),
        *_names(labels),
    ]
    drawn = {theme.provider_of(point.entry.model) for point in plane.points}
    legend = [
        *(LegendItem(short_name(provider), style.color, style.shape)
          for provider, style in styles.items() if provider in drawn),
        *([LegendItem("Pareto line", theme.INK)] if steps else []),
        *([LegendItem("target", theme.SOFT, dash=(5, 3))] if target_lines else []),
    ]  # fmt: skip
    return Chart(
        name=name,
        title=f"{capital(up.name)} against {across.name}",
        caption=_caption(plane, entries, labels, best),
        description=_description(plane, best),
        panel=Panel(plane.x.pixels, plane.y.pixels, 66, 34, 14, 46, layers, legend),
    )


@dataclass(frozen=True, slots=True)
class _TargetLine:
    line: PixelLine
    text: str
    box: PixelBox


def _targets(plane: ScatterPlane, targets: Targets) -> Iterator[_TargetLine]:
    for measure, scale, is_up in ((plane.up, plane.y, True), (plane.across, plane.x, False)):
        least = targets.least.get(measure.metric)
        if least is None or not scale.low <= 100 * least <= scale.high:
            continue
        at = scale.down(100 * least) if is_up else scale.along(100 * least)
        ends = (0, at, plane.x.pixels, at) if is_up else (at, 0, at, plane.y.pixels)
        line, text = PixelLine(*ends), f"target {100 * least:g} %"
        yield _TargetLine(line, text, _beside_line(line, text_width(text, theme.SMALL_PX), plane))


def _beside_line(line: PixelLine, width: float, plane: ScatterPlane) -> PixelBox:
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
    plane: ScatterPlane, obstacles: Sequence[PixelBox], strokes: Sequence[PixelLine]
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
    point: ScatterPoint, plane: ScatterPlane, styles: Mapping[str, theme.PlotStyle]
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
    plane: ScatterPlane,
    entries: Sequence[RankedModel],
    labels: Sequence[PlacedLabel | None],
    best: Sequence[ScatterPoint],
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
        *(
            f"The Pareto line begins with {foreign_words(point.entry.model)}, left of the axis."
            for point in best
            if point in plane.unplaced
        ),
        f"Without room for a label: {listed(unlabelled)}." if unlabelled else "",
    )


def _sizes(plane: ScatterPlane) -> str:
    sizes = [
        sampled(plane.up, [point.y for point in plane.points]),
        sampled(plane.across, [point.x for point in plane.points]),
    ]
    return "".join(f"; {size}" for size in sizes if size)


def _better(measure: Measure) -> str:
    return "more is better" if measure.more_is_better else "less is better"


def _missing(missing: Sequence[RankedModel], plane: ScatterPlane) -> str:
    """Name the models that are not drawn, by the reason."""
    reasons: dict[str, list[str]] = {}
    for entry in missing:
        lacking = [m.name for m in (plane.across, plane.up) if m.read(entry).value is None]
        reason = f"no {' and no '.join(lacking)}" if lacking else f"{plane.across.name} 0"
        reasons.setdefault(reason, []).append(entry.model)
    found = [f"{listed(models)} ({reason})" for reason, models in reasons.items()]
    return f"Not drawn: {'; '.join(found)}." if found else ""


def _description(plane: ScatterPlane, best: Sequence[ScatterPoint]) -> str:
    said = described([point.entry for point in plane.points], [plane.up, plane.across])
    line = f" On the Pareto line: {listed([each.entry.model for each in best])}." if best else ""
    return said + line
