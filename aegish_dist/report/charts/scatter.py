"""One quantity against another, a labelled point for each model."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from aegish_dist.core.opinion import Targets
from aegish_dist.core.text import counted
from aegish_dist.report.charts.labels import (
    MARK_PX,
    LabelledPoint,
    PixelBox,
    PixelLine,
    PlacedLabel,
    place_labels,
)
from aegish_dist.report.charts.spec import (
    BAR,
    INK,
    LEGEND_LINES,
    LINE,
    SMALL_PX,
    SOFT,
    TEXT_PX,
    Chart,
    Json,
    NoChart,
    PlotStyle,
    distinct,
    layer,
    legend,
    number,
    pixels,
    provider_of,
    provider_styles,
    text_width,
    widest,
)
from aegish_dist.report.charts.words import (
    LABEL_PX,
    Measure,
    Measured,
    described,
    foreign_words,
    interval_note,
    listed,
    point_names,
    sampled,
    sentences,
    short_name,
    simulated_note,
)
from aegish_dist.report.layout import RankedModel

_WIDTH, _HEIGHT, _TALL = 640.0, 400.0, 560.0
_MANY = 14
"""Points from which on a plot is tall."""
_LINES_PX = 130.0
"""Width of the legend of lines, beside that of providers."""
_LOG_SPAN = 12.0
"""From this ratio of the greatest to the least value on, an axis that may be logarithmic is."""


class Axis(Struct, frozen=True):
    """The ends of an axis: labels are placed in pixels before Vega-Lite draws anything."""

    low: float
    high: float
    pixels: float
    ticks: Sequence[float] = ()
    """Of a logarithmic axis; a linear one has those of Vega-Lite."""

    def along(self, value: float) -> float:
        """Return the distance of a value from the beginning of the axis, in pixels."""
        if self.ticks:
            return math.log(value / self.low) / math.log(self.high / self.low) * self.pixels
        return (value - self.low) / (self.high - self.low) * self.pixels

    def channel(self, field: str, measure: Measure) -> Json:
        """Return the channel of a field with this axis."""
        kind = {"type": "log"} if self.ticks else {"type": "linear", "zero": False}
        scale = kind | {"domain": [self.low, self.high], "nice": False}
        values = {"values": list(self.ticks)} if self.ticks else {}
        return number(field, measure.axis, scale=scale, format=measure.form, **values)


def linear_axis(values: Sequence[float], length: float, most: float = math.inf) -> Axis:
    """Return an axis from 0 or above to at most a value, whose ends are ticks."""
    low, high = min(values), max(values)
    span = max(high - low, abs(high) * 0.02) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 9))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= span / 9 * (1 - 1e-9))
    first = math.floor(max(low - span * 0.04, 0.0) / step + 1e-9)
    last = math.ceil(min(high + span * 0.04, most) / step - 1e-9)
    return Axis(round(step * first, 10), round(step * last, 10), length)


def amount_axis(values: Sequence[float], length: float) -> Axis:
    """Return an axis for amounts: from 0, or logarithmic, without those of 0, if they span much."""
    positive = [value for value in values if value > 0]
    if not positive or max(positive) / min(positive) < _LOG_SPAN:
        return linear_axis([0.0, *values], length)
    low, high = min(positive) / 1.25, max(positive) * 1.25
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ladder = [float(f"{each}e{power}") for power in powers for each in steps]
        ticks = [tick for tick in ladder if low <= tick <= high]
        if len(ticks) <= length / 55:
            break
    return Axis(low, high, length, ticks)


class _Point(Struct, frozen=True):
    """A model that has both quantities."""

    entry: RankedModel
    name: str
    x: Measured
    y: Measured
    across: float
    """The value of `x`."""
    up: float
    """The value of `y`."""


class _Plane(Struct, frozen=True):
    """Points on their axes."""

    points: Sequence[_Point]
    unplaced: Sequence[_Point]
    """Those whose quantity across is 0, which a logarithmic axis does not reach."""
    across: Measure
    up: Measure
    x: Axis
    y: Axis

    def place(self, point: _Point) -> tuple[float, float]:
        """Return where a point lies, in pixels from the top left corner; left of all without."""
        x = 0.0 if point in self.unplaced else self.x.along(point.across)
        return x, self.down(point.up)

    def down(self, value: float) -> float:
        return self.y.pixels - self.y.along(value)

    @property
    def area(self) -> PixelBox:
        return PixelBox(0, 0, self.x.pixels, self.y.pixels)

    def bars(self) -> Iterator[PixelLine]:
        """Yield the intervals, across and upwards."""
        for point in self.points:
            x, y = self.place(point)
            if point.y.low is not None and point.y.high is not None:
                yield PixelLine(x, self.down(point.y.low), x, self.down(point.y.high))
            if point.x.low is not None and point.x.high is not None:
                yield PixelLine(self.x.along(point.x.low), y, self.x.along(point.x.high), y)


def scatter(
    name: str,
    entries: Sequence[RankedModel],
    targets: Targets,
    *,
    across: Measure,
    up: Measure,
) -> Chart | NoChart:
    """Return a scatter plot; where less is better across, a line joins the models not beaten."""
    plane = _plane(entries, across, up, targets)
    if plane is None:
        return NoChart(name, f"no model has both {across.name} and {up.name}")
    best = [] if across.more_is_better else pareto([*plane.points, *plane.unplaced])
    styles = provider_styles(entry.model for entry in entries)
    steps = list(_pareto_line(best, plane))
    target_lines = list(_targets(plane, targets))
    obstacles = [box for _, _, box in target_lines]
    strokes = [*plane.bars(), *(line for line, _, _ in target_lines), *steps]
    points = [LabelledPoint(*plane.place(each), each.name) for each in plane.points]
    labels = place_labels(points, plane.area, TEXT_PX, obstacles=obstacles, bars=strokes)
    body = {
        "width": plane.x.pixels,
        "height": plane.y.pixels,
        "layer": [
            _axes(plane),
            _pixel_lines(list(plane.bars()), {"color": BAR, "strokeWidth": 1.5}),
            *_legend_lines(steps, [line for line, _, _ in target_lines]),
            *_texts(
                ((box.left, (box.top + box.bottom) / 2, text) for _, text, box in target_lines),
                fontSize=SMALL_PX,
                color=SOFT,
            ),
            *_names([label for label in labels if label is not None]),
            _symbols(plane, styles),
        ],
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
    }
    title = f"{up.name[:1].upper()}{up.name[1:]} against {across.name}"
    caption = _caption(plane, entries, labels, best)
    description = described([point.entry for point in plane.points], [up, across])
    if best:
        description += f" On the Pareto line: {listed([each.entry.model for each in best])}."
    return Chart(name, title, caption, description, body, 44, plane.x.pixels + 80)


def _plane(
    entries: Sequence[RankedModel], across: Measure, up: Measure, targets: Targets
) -> _Plane | None:
    """Lay out the models that have both quantities; None without any."""
    points = []
    for entry, name in zip(entries, point_names(entries), strict=True):
        seen_x, seen_y = across.read(entry), up.read(entry)
        if seen_x.value is not None and seen_y.value is not None:
            points.append(_Point(entry, name, seen_x, seen_y, seen_x.value, seen_y.value))
    if not points:
        return None
    x = _axis(across, [point.x for point in points], targets, _WIDTH)
    height = _TALL if len(points) >= _MANY else _HEIGHT
    y = _axis(up, [point.y for point in points], targets, height)
    unplaced = [point for point in points if x.ticks and not point.across]
    drawn = [point for point in points if point not in unplaced]
    return _Plane(drawn, unplaced, across, up, x, y)


def _axis(measure: Measure, seen: Sequence[Measured], targets: Targets, length: float) -> Axis:
    values = [value for each in seen for value in each.known]
    if not measure.metric:
        return amount_axis(values, length)
    least = targets.least.get(measure.metric)
    return linear_axis([*values, *([] if least is None else [100 * least])], length, 100.0)


def pareto(points: Sequence[_Point]) -> list[_Point]:
    """Return the points that none beats in one quantity without losing in the other, ascending."""
    best: list[_Point] = []
    for point in sorted(points, key=lambda each: (each.across, -each.up)):
        if not best or point.up > best[-1].up:
            best.append(point)
    return best


def _pareto_line(best: Sequence[_Point], plane: _Plane) -> Iterator[PixelLine]:
    """Yield the line of the best value so far, from the first point to the end of the axis.

    One point alone has no line, unless it has no place itself.
    """
    if len(best) < 2 and not any(point in plane.unplaced for point in best):
        return
    places = [plane.place(point) for point in best]
    for (x, y), (x2, y2) in pairwise([*places, (plane.x.pixels, places[-1][1])]):
        yield PixelLine(x, y, x2, y)
        if y2 != y:
            yield PixelLine(x2, y, x2, y2)


def _targets(plane: _Plane, targets: Targets) -> Iterator[tuple[PixelLine, str, PixelBox]]:
    """Yield the line of each target, its label and the place of that."""
    for measure, axis, is_up in ((plane.up, plane.y, True), (plane.across, plane.x, False)):
        least = targets.least.get(measure.metric)
        if least is None or not axis.low <= 100 * least <= axis.high:
            continue
        at = plane.down(100 * least) if is_up else axis.along(100 * least)
        ends = (0, at, plane.x.pixels, at) if is_up else (at, 0, at, plane.y.pixels)
        line, text = PixelLine(*ends), f"target {100 * least:g} %"
        yield line, text, _beside_line(line, text_width(text, SMALL_PX), plane)


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


def _axes(plane: _Plane) -> Json:
    """Return the layer that has the axes and draws nothing else."""
    row = {"x": plane.x.low, "y": plane.y.low}
    x, y = plane.x.channel("x", plane.across), plane.y.channel("y", plane.up)
    return layer([row], "point", {"opacity": 0, "size": 0}, x=x, y=y)


def _pixel_lines(
    found: Sequence[PixelLine], style: Json, name: str = "", dash: Json | None = None
) -> Json:
    rows = [
        {"line": name, "x": round(each.x, 1), "y": round(each.y, 1)}
        | {"x2": round(each.x2, 1), "y2": round(each.y2, 1)}
        for each in found
    ]
    ends: Json = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return layer(rows, "rule", style, x=pixels("x"), y=pixels("y"), strokeDash=dash, **ends)


def _legend_lines(steps: Sequence[PixelLine], targets: Sequence[PixelLine]) -> Iterator[Json]:
    """Yield the Pareto line and the targets, with their legend."""
    found = {"Pareto line": (steps, INK, [1, 0]), "target": (targets, SOFT, [5, 3])}
    shown = {name: dash for name, (rows, _, dash) in found.items() if rows}
    for name in shown:
        rows, color, _ = found[name]
        yield _pixel_lines(rows, {"color": color}, name, legend("line", shown, **LEGEND_LINES))


def _names(placed: Sequence[PlacedLabel]) -> Iterator[Json]:
    """Yield the labels, with a line to each point that is away from its label."""
    leaders = [each.line for each in placed if each.line is not None]
    if leaders:
        yield _pixel_lines(leaders, {"color": LINE, "strokeWidth": 0.8})
    for align in ("left", "center", "right"):
        rows = ((each.x, each.y, each.text) for each in placed if each.align == align)
        yield from _texts(rows, align=align)


def _texts(found: Iterable[tuple[float, float, str]], **style: Any) -> Iterator[Json]:
    rows = [{"x": round(x, 1), "y": round(y, 1), "text": text} for x, y, text in found]
    if rows:
        look = {"align": "left", "baseline": "middle"} | style
        yield layer(rows, "text", look, x=pixels("x"), y=pixels("y"), text={"field": "text"})


def _symbols(plane: _Plane, styles: Mapping[str, PlotStyle]) -> Json:
    drawn = {provider_of(point.entry.model) for point in plane.points}
    shown = {name: style for name, style in styles.items() if name in drawn}
    names = dict(zip(shown, distinct(list(map(short_name, shown)), TEXT_PX, LABEL_PX), strict=True))
    rows = []
    for point in plane.points:
        x, y = plane.place(point)
        row: Json = {"x": x, "y": y, "across": point.across, "up": point.up}
        provider = names[provider_of(point.entry.model)]
        rows.append(row | {"model": point.name, "provider": provider})
    columns = max(1, int((plane.x.pixels - _LINES_PX) // (widest(names.values()) + 34)))
    colors = {names[provider]: style.color for provider, style in shown.items()}
    shapes = {names[provider]: style.shape for provider, style in shown.items()}
    return layer(
        rows,
        "point",
        {},
        x=pixels("x"),
        y=pixels("y"),
        color=legend("provider", colors, columns=columns),
        shape=legend("provider", shapes, columns=columns),
    )


def _caption(
    plane: _Plane,
    entries: Sequence[RankedModel],
    labels: Sequence[PlacedLabel | None],
    best: Sequence[_Point],
) -> str:
    drawn = [point.entry for point in plane.points]
    missing = [entry for entry in entries if entry not in drawn]
    unlabelled = [p.name for p, label in zip(plane.points, labels, strict=True) if label is None]
    sizes = (
        sampled(plane.up, [point.y for point in plane.points]),
        sampled(plane.across, [point.x for point in plane.points]),
    )
    return sentences(
        f"{counted(len(drawn), 'model')}: {plane.up.name} ({_better(plane.up)}) against "
        f"{plane.across.name} ({_better(plane.across)}){''.join(f'; {n}' for n in sizes if n)}.",
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
