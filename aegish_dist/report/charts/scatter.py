"""One quantity against another, a labelled point for each model."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import astuple

from aegish_dist.core.opinion import Targets
from aegish_dist.core.text import counted
from aegish_dist.report.charts.labels import (
    LINE_PX,
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
    PAPER,
    SOFT,
    Chart,
    Json,
    NoChart,
    layer,
    legend,
    number,
    pixels,
    provider_of,
    provider_styles,
    widest,
)
from aegish_dist.report.charts.words import (
    LABEL_PX,
    Measure,
    described,
    fitted_names,
    foreign_words,
    interval_note,
    left_out_note,
    listed,
    point_names,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import RankedModel
from aegish_dist.statistics.rates import Estimate

_WIDTH, _HEIGHT, _TALL = 640.0, 400.0, 560.0
_MANY = 11
"""Points from which on a plot is tall, and most of them have a number as their label."""
_PARETO, _TARGET = "Pareto line", "target"
_LINES = {_PARETO: (INK, [1, 0]), _TARGET: (SOFT, [5, 3])}


class Axis(Struct, frozen=True):
    """The ends of an axis: labels are placed in pixels before Vega-Lite draws anything."""

    measure: Measure
    low: float
    high: float
    pixels: float
    is_log: bool = False

    def along(self, value: float) -> float:
        """Return the distance of a value from the beginning of the axis, in pixels."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low) * self.pixels
        return (value - self.low) / (self.high - self.low) * self.pixels

    def channel(self, field: str) -> Json:
        """Return the channel of a field with this axis."""
        kind = {"type": "log"} if self.is_log else {"type": "linear", "zero": False}
        scale = kind | {"domain": [self.low, self.high], "nice": False}
        return number(field, self.measure.axis, scale=scale, format=self.measure.form)


def axis_of(measure: Measure, values: Sequence[float], length: float) -> Axis:
    """Return an axis around some values, of rates from 0 to 100 at most.

    That of amounts whose greatest is twelve times the least is logarithmic, without those of 0.
    """
    positive = [value for value in values if value > 0]
    is_rate = bool(measure.metric)
    if not is_rate and positive and max(positive) / min(positive) >= 12:
        return Axis(measure, min(positive) / 1.25, max(positive) * 1.25, length, is_log=True)
    low, high = min(values), max(values)
    margin = 0.1 * (max(high - low, abs(high) * 0.02) or 1.0)
    most = 100.0 if is_rate else math.inf
    return Axis(measure, max(low - margin, 0.0), min(high + margin, most), length)


class _Point(Struct, frozen=True):
    """A model that has both quantities."""

    entry: RankedModel
    name: str
    number: int
    """In the order of the ranking, from 1."""
    x: Estimate
    y: Estimate
    across: float
    """The value of `x`."""
    up: float
    """The value of `y`."""


class _Plane(Struct, frozen=True):
    """Points on their axes."""

    points: Sequence[_Point]
    unplaced: Sequence[_Point]
    """Those whose quantity across is 0, which a logarithmic axis does not reach."""
    far: Sequence[_Point]
    """Those far below the others in a rate."""
    x: Axis
    y: Axis

    @property
    def numbered(self) -> Sequence[_Point]:
        """The points that have a number as their label: few names can be read beside many.

        The first five have their names, and those at the ends of the axes.
        """
        if len(self.points) < _MANY:
            return ()
        ends = [
            end(self.points, key=attrgetter(way)) for way in ("across", "up") for end in (min, max)
        ]
        return [each for each in self.points[5:] if each not in ends]

    def line(self, x: float | None, y: float, x2: float, y2: float) -> PixelLine:
        """Return the line from one pair of values to another; None is the left edge."""
        left = 0.0 if x is None else self.x.along(x)
        top, bottom = (self.y.pixels - self.y.along(value) for value in (y, y2))
        return PixelLine(left, top, self.x.along(x2), bottom)

    def place(self, point: _Point) -> tuple[float, float]:
        """Return where a point lies, in pixels from the top left corner."""
        return self.x.along(point.across), self.y.pixels - self.y.along(point.up)

    def bars(self) -> Iterator[PixelLine]:
        """Yield the intervals, upwards and across."""
        for each in self.points:
            if each.y.ci_low is not None and each.y.ci_high is not None:
                yield self.line(each.across, each.y.ci_low, each.across, each.y.ci_high)
            if each.x.ci_low is not None and each.x.ci_high is not None:
                yield self.line(each.x.ci_low, each.up, each.x.ci_high, each.up)

    def steps(self, best: Sequence[_Point]) -> Iterator[PixelLine]:
        """Yield the line of the best value so far, from the first point to the end of the axis.

        One point alone has no line, unless it has no place itself.
        """
        if len(best) < 2 and not any(point in self.unplaced for point in best):
            return
        corners = [(point.across, point.up) for point in best]
        for (x, y), (x2, y2) in pairwise([*corners, (self.x.high, best[-1].up)]):
            yield self.line(x or None, y, x2, y)
            if y2 != y:
                yield self.line(x2, y, x2, y2)

    def targets(self, targets: Targets) -> Iterator[tuple[float, PixelLine]]:
        """Yield the per cent and the line of each target."""
        for axis in (self.y, self.x):
            for aim in axis.measure.aims(targets):
                ends = (self.x.low, aim, self.x.high, aim)
                upright = (aim, self.y.low, aim, self.y.high)
                yield aim, self.line(*(ends if axis is self.y else upright))


def scatter(
    name: str, data: ReportData, entries: Sequence[RankedModel], *, across: Measure, up: Measure
) -> Chart | NoChart:
    """Return a scatter plot; where less is better across, a line joins the models not beaten."""
    found = list(_points(entries, across, up))
    if not found:
        return NoChart(name, f"no model has both {across.name} and {up.name}")
    if not across.metric and len({point.across for point in found}) < 2:
        return NoChart(name, f"no two models differ in {across.name}")
    plane = _plane(found, across, up, data.targets)
    best = [] if across.more_is_better else pareto([*plane.points, *plane.unplaced])
    aims = list(plane.targets(data.targets))
    lines = {_PARETO: list(plane.steps(best)), _TARGET: [line for _, line in aims]}
    bars, numbered = list(plane.bars()), plane.numbered
    labels, left = _labels(plane, numbered, bars, lines, aims)
    if numbered and left:  # where a name has no room, a number may
        numbered = [point for point in plane.points if point in numbered or point.name in left]
        labels, left = _labels(plane, numbered, bars, lines, aims)
    body = {
        "width": plane.x.pixels,
        "height": plane.y.pixels,
        "layer": [
            layer([{}], "point", {"opacity": 0}, x=plane.x.channel("x"), y=plane.y.channel("y")),
            _in_pixels("rule", bars, {"color": BAR, "strokeWidth": 1.5}),
            # Labels hide the bars behind them.
            _in_pixels("rect", [e.box for e in labels], {"color": PAPER, "fillOpacity": 0.8}),
            *_legend_lines(lines),
            *_names(labels),
            _symbols(plane, provider_styles(entry.model for entry in entries)),
        ],
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
    }
    title = f"{up.name[:1].upper()}{up.name[1:]} against {across.name}"
    caption = _caption(plane, entries, best, numbered, left)
    description = described([point.entry for point in plane.points], [up, across])
    if best:
        description += f" On the Pareto line: {listed([each.entry.model for each in best])}."
    return Chart(name, title, caption, description, body, 44, plane.x.pixels + 80)


def _labels(
    plane: _Plane,
    numbered: Sequence[_Point],
    bars: Sequence[PixelLine],
    lines: Mapping[str, Sequence[PixelLine]],
    aims: Sequence[tuple[float, PixelLine]],
) -> tuple[list[PlacedLabel], list[str]]:
    """Place the labels of models and targets; also return the texts that have no room."""
    points = [
        LabelledPoint(*plane.place(each), str(each.number) if each in numbered else each.name)
        for each in plane.points
    ]
    for least, line in aims:
        place = max(_along(line), key=partial(_room, points, lines[_TARGET], line))
        points.append(LabelledPoint(*place, f"target {least:g} %"))
    area = PixelBox(0, 0, plane.x.pixels, plane.y.pixels)
    labels = place_labels(points, area, bars, list(chain.from_iterable(lines.values())))
    placed = "\n".join(label.text for label in labels).split("\n")
    return labels, [each.text for each in points if each.text not in placed]


def _along(line: PixelLine) -> list[tuple[float, float]]:
    """Return places along a line for its label, the ends first."""
    shares = (1.0, 0.0, 0.75, 0.25, 0.5)
    return [(line.x + (line.x2 - line.x) * at, line.y + (line.y2 - line.y) * at) for at in shares]


def _room(
    points: Sequence[LabelledPoint],
    targets: Sequence[PixelLine],
    line: PixelLine,
    place: tuple[float, float],
) -> float:
    """Return the distance of a place on the line of a target from what else is nearest."""
    x, y = place
    others = (each for each in targets if each != line)
    gaps = (abs(x - each.x) if each.x == each.x2 else abs(y - each.y) for each in others)
    return min(chain((math.hypot(x - each.x, y - each.y) for each in points), gaps))


def _points(entries: Sequence[RankedModel], across: Measure, up: Measure) -> Iterator[_Point]:
    """Yield the models that have both quantities."""
    for place, (entry, name) in enumerate(zip(entries, point_names(entries), strict=True), 1):
        x, y = across.read(entry), up.read(entry)
        if x.value is not None and y.value is not None:
            yield _Point(entry, name, place, x, y, x.value, y.value)


def least_drawn(rates: Sequence[float]) -> float:
    """Return the rate from which on models are drawn.

    At most a tenth of them are left out, where they make the axis more than three times as long.
    """
    ordered = sorted(rates)
    spans = [ordered[-1] - least for least in ordered[: len(ordered) // 10 + 1]]
    near = [place for place, span in enumerate(spans) if 3 * span < spans[0]]
    return ordered[near[0] if near else 0]


def _plane(found: Sequence[_Point], across: Measure, up: Measure, targets: Targets) -> _Plane:
    """Lay out the models."""
    low = least_drawn([point.up for point in found])
    left = least_drawn([point.across for point in found]) if across.metric else 0.0
    points = [point for point in found if point.up >= low and point.across >= left]
    far = [point for point in found if point not in points]
    height = _TALL if len(points) >= _MANY else _HEIGHT
    x_axis, y_axis = (
        axis_of(measure, [*measure.aims(targets), *_known(seen)], length)
        for measure, seen, length in (
            (across, [point.x for point in points], _WIDTH),
            (up, [point.y for point in points], height),
        )
    )
    unplaced = [point for point in points if x_axis.is_log and not point.across]
    return _Plane([p for p in points if p not in unplaced], unplaced, far, x_axis, y_axis)


def _known(seen: Sequence[Estimate]) -> Iterator[float]:
    """Yield the values and the ends of their intervals."""
    for each in seen:
        yield from (end for end in (each.value, each.ci_low, each.ci_high) if end is not None)


def pareto(points: Sequence[_Point]) -> list[_Point]:
    """Return the points that none beats in one quantity without losing in the other, ascending."""
    best: list[_Point] = []
    for point in sorted(points, key=lambda each: (each.across, -each.up)):
        if not best or point.up > best[-1].up:
            best.append(point)
    return best


def _in_pixels(
    mark: str, found: Iterable[PixelLine | PixelBox], style: Json, **encoding: Json
) -> Json:
    """Return lines or boxes, from corner to corner."""
    corners = ("x", "y", "x2", "y2")
    rows = [dict(zip(corners, (round(at, 1) for at in astuple(e)), strict=True)) for e in found]
    ends: Json = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return layer(rows, mark, style, x=pixels("x"), y=pixels("y"), **ends, **encoding)


def _legend_lines(lines: Mapping[str, Sequence[PixelLine]]) -> Iterator[Json]:
    """Yield the Pareto line and the targets, with their legend."""
    shown = {name: dash for name, (_, dash) in _LINES.items() if lines[name]}
    for name in shown:
        dash = legend({"datum": name}, shown, **LEGEND_LINES)
        yield _in_pixels("rule", lines[name], {"color": _LINES[name][0]}, strokeDash=dash)


def _names(placed: Sequence[PlacedLabel]) -> Iterator[Json]:
    """Yield the labels, with a line to each point that is away from its label."""
    leaders = [each.line for each in placed if each.line is not None]
    yield _in_pixels("rule", leaders, {"color": LINE, "strokeWidth": 0.8})
    for align in ("left", "center", "right"):
        rows = [
            {"x": round(each.x, 1), "y": round(each.box.top + LINE_PX / 2, 1), "text": each.text}
            for each in placed
            if each.align == align
        ]
        look = {"align": align, "baseline": "middle", "lineBreak": "\n", "lineHeight": LINE_PX}
        text = {"field": "text", "type": "nominal"}
        yield layer(rows, "text", look, x=pixels("x"), y=pixels("y"), text=text)


def _symbols(plane: _Plane, styles: Mapping[str, Json]) -> Json:
    drawn = {provider_of(point.entry.model) for point in plane.points}
    shown = [name for name in styles if name in drawn]
    names = fitted_names(shown, LABEL_PX)
    rows: list[Json] = [
        {"x": x, "y": y, "across": each.across, "up": each.up, "model": each.name}
        | {"provider": names[provider_of(each.entry.model)]}
        for each in plane.points
        for x, y in [plane.place(each)]
    ]
    room = plane.x.pixels - 130  # the legend of lines stands beside
    columns = max(1, int(room // (widest(names.values()) + 34)))
    color, shape = (
        legend(
            {"field": "provider"},
            {words: styles[name][look] for name, words in names.items()},
            columns=columns,
        )
        for look in ("color", "shape")
    )
    told = {"field": "model", "type": "nominal"}
    place = {"x": pixels("x"), "y": pixels("y")}
    return layer(rows, "point", {}, **place, color=color, shape=shape, tooltip=told)


def _caption(
    plane: _Plane,
    entries: Sequence[RankedModel],
    best: Sequence[_Point],
    numbered: Sequence[_Point],
    unlabelled: Sequence[str],
) -> str:
    drawn, far = ([point.entry for point in each] for each in (plane.points, plane.far))
    known, numbers = [*drawn, *far], [f"{each.number}: {each.name}" for each in numbered]
    across, up = plane.x.measure, plane.y.measure
    better = {True: "more is better", False: "less is better"}
    sizes = (sampled(up, [p.y for p in plane.points]), sampled(across, [p.x for p in plane.points]))
    return sentences(
        f"{counted(len(drawn), 'model')}: {up.name} ({better[up.more_is_better]}) against "
        f"{across.name} ({better[across.more_is_better]}){''.join(f'; {n}' for n in sizes if n)}.",
        interval_note([up, across]),
        simulated_note(drawn),
        f"Numbers follow the ranking: {'; '.join(numbers[:60])}." * bool(numbers),
        left_out_note(entries, known, partial(_lacking, (across, up))),
        f"Too far below the others to draw: {described(far, [up, across])}" * bool(far),
        *(
            f"The Pareto line begins with {foreign_words(point.entry.model)}, left of the axis."
            for point in best
            if point in plane.unplaced
        ),
        f"Without room for a label: {listed(unlabelled)}." if unlabelled else "",
    )


def _lacking(measures: tuple[Measure, Measure], entry: RankedModel) -> str:
    """Say why a model is not drawn."""
    lacking = [each.name for each in measures if each.read(entry).value is None]
    return f"no {' and no '.join(lacking)}" if lacking else f"{measures[0].name} 0"
