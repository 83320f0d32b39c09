"""One quantity against another: models and systems by score and cost, ROC curves."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from statistics import fmean
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.policy import POLICY_PREFIX
from aegish_dist.core.suspicion import STATED_CONFIDENCE, Guards
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
    PALETTE,
    PAPER,
    SOFT,
    Chart,
    Json,
    NoChart,
    layer,
    legend,
    literal,
    number,
    pixels,
    provider_of,
    provider_styles,
    widest,
)
from aegish_dist.report.charts.words import (
    COST,
    DETECTION,
    FALSE_POSITIVES,
    LABEL_PX,
    SCORE,
    Measure,
    apart,
    baseline_note,
    described,
    fitted_names,
    foreign_words,
    interval_note,
    left_out_note,
    listed,
    percent,
    point_names,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import RankedModel
from aegish_dist.report.quality import with_interval
from aegish_dist.statistics.gate import MAX_FPRS
from aegish_dist.statistics.rates import Estimate
from aegish_dist.statistics.roc import ScoredDecisions, auroc, detection_at

_WIDTH, _HEIGHT, _TALL = 640.0, 400.0, 560.0
_MANY = 11
"""Points from which on a plot is tall, and most of them have a number as their label."""
_LINES = {"Pareto line": (INK, [1, 0]), "target": (SOFT, [5, 3]), "baseline": (SOFT, [1, 3])}


class Axis(Struct, frozen=True):
    """The ends of an axis: labels are placed in pixels before Vega-Lite draws anything."""

    measure: Measure
    low: float
    high: float
    pixels: float
    kind: str = "linear"  # or `log`, `sqrt`, as Vega-Lite names scales

    def along(self, value: float) -> float:
        """Return the distance of a value from the beginning of the axis, in pixels.

        What a logarithmic axis does not reach, such as 0, lies at its beginning.
        """
        if self.kind == "log":
            return self.pixels * math.log(max(value / self.low, 1.0), self.high / self.low)
        share = (value - self.low) / (self.high - self.low)
        return self.pixels * (math.sqrt(share) if self.kind == "sqrt" else share)

    def down(self, value: float) -> float:
        """Return the same from the end of the axis: places in a plot count from its top."""
        return self.pixels - self.along(value)

    def channel(self, field: str, **look: Any) -> Json:
        """Return the channel of a field with this axis."""
        scale = {"type": self.kind, "domain": [self.low, self.high], "nice": False}
        return number(field, self.measure.axis, scale=scale, format=self.measure.form, **look)


def axis_of(measure: Measure, values: Sequence[float], length: float) -> Axis:
    """Return an axis around some values, of rates from 0 to 100 at most.

    That of amounts whose greatest is twelve times the least is logarithmic, without those of 0.
    """
    positive = [value for value in values if value > 0]
    if not measure.metric and positive and max(positive) / min(positive) >= 12:
        return Axis(measure, min(positive) / 1.25, max(positive) * 1.25, length, "log")
    low, high = min(values), max(values)
    margin = 0.1 * (max(high - low, abs(high) * 0.02) or 1.0)
    ends = max(low - margin, 0.0), min(high + margin, 100.0 if measure.metric else math.inf)
    return Axis(measure, *ends, length)


class _Point(Struct, frozen=True):
    """A model that has both quantities."""

    entry: RankedModel
    name: str
    number: int  # in the order of the ranking, from 1
    across: float
    up: float
    seen: Estimate  # with the interval of `up`


class _Plane(Struct, frozen=True):
    """Points on their axes."""

    points: Sequence[_Point]
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

    def line(self, x: float, y: float, x2: float, y2: float) -> PixelLine:
        """Return the line from one pair of values to another."""
        return PixelLine(self.x.along(x), self.y.down(y), self.x.along(x2), self.y.down(y2))

    def place(self, point: _Point) -> tuple[float, float]:
        """Return where a point lies, in pixels from the top left corner."""
        return self.x.along(point.across), self.y.down(point.up)

    def steps(self, best: Sequence[_Point]) -> Iterator[PixelLine]:
        """Yield the line of the best value so far, from the first of several to the right edge."""
        corners = [(point.across, point.up) for point in best if len(best) > 1]
        for (x, y), (x2, y2) in pairwise([*corners, *[(self.x.high, best[-1].up)] * bool(corners)]):
            yield self.line(x, y, x2, y)
            if y2 != y:
                yield self.line(x2, y, x2, y2)


def scatter(name: str, data: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return score against cost, in which a line joins the models that none beats."""
    points = list(_points(entries))
    if not points:
        return NoChart(name, f"no model has both {COST.name} and {SCORE.name}")
    if len({point.across for point in points}) < 2:
        return NoChart(name, f"no two models differ in {COST.name}")
    aims, baselines = SCORE.aims(data.targets), apart(data)[1]
    ends = chain.from_iterable((e.up, e.seen.ci_low, e.seen.ci_high) for e in points)
    y = axis_of(
        SCORE,
        [*aims, *(end for end in ends if end is not None)],
        _TALL if len(points) >= _MANY else _HEIGHT,
    )
    plane = _Plane(points, axis_of(COST, [point.across for point in points], _WIDTH), y)
    floors, best = [SCORE.read(each).value or 0.0 for each in baselines], pareto(points)
    lines = {
        "Pareto line": list(plane.steps(best)),
        "target": [PixelLine(0, y.down(each), _WIDTH, y.down(each)) for each in aims],
        "baseline": [
            PixelLine(0, y.down(each), _WIDTH, y.down(each))
            for each in floors
            if y.low <= each <= y.high
        ],
    }
    bars = [
        plane.line(each.across, each.seen.ci_low, each.across, each.seen.ci_high)
        for each in points
        if each.seen.ci_low is not None and each.seen.ci_high is not None
    ]
    numbered = plane.numbered
    labels, left = _labels(plane, numbered, bars, lines, aims)
    return Chart(
        name=name,
        title="Aegish score against cost",
        caption=sentences(_caption(plane, entries, numbered, left), baseline_note(baselines)),
        description=f"{described([each.entry for each in points], [SCORE, COST])} "
        f"On the Pareto line: {listed([each.entry.model for each in best])}.",
        body=_view(
            plane.x.channel("x"),
            y,
            _in_pixels("rule", bars, {"color": BAR, "strokeWidth": 1.5}),
            *_names(labels),
            *_legend_lines(lines),
            _symbols(plane, provider_styles(entry.model for entry in entries)),
        ),
        left=44,
        width=_WIDTH + 80,
    )


_OWN = {"BLOCK and WARN stop": "circle", "BLOCK alone stops": "square"}


class _Curve(NamedTuple):
    """A model at any threshold."""

    entry: RankedModel
    name: str
    scores: ScoredDecisions
    area: Estimate  # AUROC
    own: list[list[float]]  # false positive and detection rate, in per cent, as `_OWN`

    def path(self, x: Axis, y: Axis, **style: Any) -> Json:
        """Return the curve as steps within the axes, a row for each pixel at most."""
        m, n = map(len, self.scores.sides)
        stopped = ((100 * wrong / n, 100 * right / m) for right, wrong in self.scores.stopped)
        inside = {across: up for across, up in stopped if across <= x.high}
        steps = {
            round(x.along(across), 1): {"across": across, "up": up, "y": round(y.down(up), 1)}
            for across, up in [*inside.items(), (x.high, max(inside.values()))]
            if up >= y.low
        }
        rows = [row | {"x": at, "model": self.name} for at, row in steps.items()]
        rows[:0] = [each | {"y": y.pixels} for each in rows[:1] if each["x"]]  # from below
        style |= {"interpolate": "step-after"}
        return layer(rows, "line", style, x=pixels("x"), y=pixels("y"))

    def bars(self, x: Axis, y: Axis, aside: float) -> Iterator[PixelLine]:
        """Yield the intervals of the detection rate, cut at the axis, some pixels aside."""
        for point in filter(None, (detection_at(self.scores, each) for each in MAX_FPRS)):
            rate, at = percent(point.detection_rate), x.along(100 * point.max_fpr) + aside
            low, top = (y.down(max(end or 0.0, y.low)) for end in (rate.ci_low, rate.ci_high))
            yield PixelLine(at, low, at, top)


def roc(name: str, data: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return detection over false positive rates at any threshold, a curve for each model."""
    opinion, asked = data.snapshot.opinion, data.guards
    if asked is None or opinion is None:
        return NoChart(name, "it takes the verdicts that count now, not those of an older snapshot")
    curves = sorted(_curves(asked, entries), key=lambda each: -(each.area.value or 0))
    if not curves:
        return NoChart(name, "no model has scored malicious and harmless commands")
    drawn, others, least = curves[:10], curves[10:], _curves(asked, apart(data)[1])
    floors = [each for each in least if any(0 < up < 100 for _, up in each.own)]
    across, ups = zip(*chain.from_iterable(e.own for e in (*drawn, *floors)), strict=True)
    x = Axis(FALSE_POSITIVES, 0.0, min(100.0, max(20.0, 1.05 * max(across))), _WIDTH, "sqrt")
    y = axis_of(DETECTION, [100.0, *ups], _TALL)
    layers = [
        *(each.path(x, y, color=BAR) for each in others),
        *(each.path(x, y, color=SOFT, strokeDash=[1, 3]) for each in floors),
    ]
    marks = list[Json]()
    for place, each in enumerate(drawn):
        made = each.entry.model.startswith(POLICY_PREFIX)
        color = INK if made else PALETTE[place % len(PALETTE)]
        thin, dash = {"color": color, "strokeWidth": 1}, [4, 2] if place >= len(PALETTE) else [1, 0]
        layers += [
            _in_pixels("rule", each.bars(x, y, 3.5 * (place - len(drawn) // 2)), thin),
            each.path(x, y, color=color, strokeDash=dash, strokeWidth=3 if made else 1.5),
        ]
        marks += [
            {"x": x.along(at), "y": y.down(up), "stops": stops, "color": color, "model": each.name}
            for stops, (at, up) in zip(_OWN, each.own, strict=True)
        ]
    stands = 0 if opinion.rule.is_detection(OutcomeDetail.WARN) else 1  # of `_OWN`
    labels = place_labels(
        [LabelledPoint(each["x"], each["y"], each["model"]) for each in marks[stands::2]],
        PixelBox(0, 0, _WIDTH, _TALL),
        lines=[PixelLine(e["x"] - 6, e["y"], e["x"] + 90, e["y"]) for e in marks],
    )
    look = {
        "x": pixels("x"),
        "y": pixels("y"),
        "color": literal("color"),
        "shape": legend({"field": "stops"}, _OWN, symbolFillColor=INK, symbolStrokeColor=INK),
    }
    layers += [*_names(labels), layer(marks, "point", {}, **look)]
    return Chart(
        name=name,
        title="Detection rate over false positive rate (ROC)",
        caption=sentences(
            f"{counted(len(curves), 'model')}; each step stops from a lower suspicion on ("
            f"{STATED_CONFIDENCE.name}). Marks: by actions alone; as models stand by "
            f"{foreign_words(opinion.rule.name)}, {[*_OWN][stands]}.",
            "Bars, side by side: 95 % confidence intervals of the detection rate at a false "
            "positive rate of at most 0.5, 1, 2 and 5 %, each for itself, clustered by binary.",
            f"Grey, less AUROC: {listed([each.entry.model for each in others])}." * bool(others),
            f"Dotted: {listed([each.entry.model for each in floors])}." * bool(floors),
            simulated_note(each.entry for each in curves),
            left_out_note(
                entries, [e.entry for e in curves], lambda _: "no scored command of a label"
            ),
            *(
                f"Without room for a label: {e.name}."
                for e in drawn
                if not any(e.name in label.text for label in labels)
            ),
        ),
        description="; ".join(
            f"{foreign_words(e.entry.model)}: AUROC {with_interval(e.area)}" for e in curves
        ),
        body=_view(
            x.channel("x", values=(0, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)),
            y,
            *layers,
        ),
        left=44,
        width=_WIDTH + 80,
    )


def _curves(guards: Guards, entries: Sequence[RankedModel]) -> Iterator[_Curve]:
    """Yield the curves of those that have scored commands of both labels."""
    columns = {each.name: each for each in guards.guards}
    known = [entry for entry in entries if entry.model in columns]
    for entry, name in zip(known, point_names(known), strict=True):
        guard = columns[entry.model]
        scores = ScoredDecisions(guards.decisions, guard.suspicion)
        said = [
            (each.dangerous, finding)
            for each, finding, known in zip(
                guards.decisions, guard.findings, guard.suspicion, strict=True
            )
            if known is not None
        ]
        if all(scores.sides):
            yield _Curve(
                entry,
                name,
                scores,
                auroc(scores),
                [
                    [
                        100 * fmean(finding in stops for label, finding in said if label is side)
                        for side in (False, True)
                    ]
                    for stops in ({*OutcomeDetail} - {OutcomeDetail.ALLOW}, {OutcomeDetail.BLOCK})
                ],
            )


def _view(x: Json, y: Axis, *layers: Json) -> Json:
    """Return a view with two axes, over which layers lie in pixels."""
    axes = layer([{}], "point", {"opacity": 0}, x=x, y=y.channel("y"))
    return {
        "width": _WIDTH,
        "height": y.pixels,
        "layer": [axes, *layers],
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
    }


def _labels(
    plane: _Plane,
    numbered: Sequence[_Point],
    bars: Sequence[PixelLine],
    lines: Mapping[str, Sequence[PixelLine]],
    aims: Sequence[float],
) -> tuple[list[PlacedLabel], list[str]]:
    """Place the labels of models and targets; also return the texts that have no room."""
    points = [
        LabelledPoint(*plane.place(each), str(each.number) if each in numbered else each.name)
        for each in plane.points
    ]
    points += [LabelledPoint(_WIDTH, plane.y.down(aim), f"target {aim:g} %") for aim in aims]
    labels = place_labels(
        points,
        PixelBox(0, 0, _WIDTH, plane.y.pixels),
        bars,
        list(chain.from_iterable(lines.values())),
    )
    placed = "\n".join(label.text for label in labels).split("\n")
    return labels, [each.text for each in points if each.text not in placed]


def _points(entries: Sequence[RankedModel]) -> Iterator[_Point]:
    """Yield the models that have a cost and a score."""
    for place, (entry, name) in enumerate(zip(entries, point_names(entries), strict=True), 1):
        cost, score = COST.read(entry).value, SCORE.read(entry)
        if cost is not None and score.value is not None:
            yield _Point(entry, name, place, cost, score.value, score)


def pareto(points: Iterable[_Point]) -> list[_Point]:
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
    encoding |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return layer(rows, mark, style, x=pixels("x"), y=pixels("y"), **encoding)


def _legend_lines(lines: Mapping[str, Sequence[PixelLine]]) -> Iterator[Json]:
    """Yield the Pareto line, targets and baselines, with their legend."""
    shown = {name: dash for name, (_, dash) in _LINES.items() if lines[name]}
    for name in shown:
        yield _in_pixels(
            *("rule", lines[name], {"color": _LINES[name][0]}),
            strokeDash=legend({"datum": name}, shown, **LEGEND_LINES),
        )


def _names(placed: Sequence[PlacedLabel]) -> Iterator[Json]:
    """Yield labels, which hide what is behind them, with lines to points that are away."""
    yield _in_pixels("rect", [e.box for e in placed], {"color": PAPER, "fillOpacity": 0.8})
    yield _in_pixels(
        "rule", (e.line for e in placed if e.line), {"color": LINE, "strokeWidth": 0.8}
    )
    for align in ("left", "center", "right"):
        rows = [
            {"x": round(each.x, 1), "y": round(each.box.top + LINE_PX / 2, 1), "text": each.text}
            for each in placed
            if each.align == align
        ]
        look = {"align": align, "baseline": "middle", "lineBreak": "\n", "lineHeight": LINE_PX}
        yield layer(
            *(rows, "text", look),
            x=pixels("x"),
            y=pixels("y"),
            text={"field": "text", "type": "nominal"},
        )


def _symbols(plane: _Plane, styles: Mapping[str, Json]) -> Json:
    drawn = {provider_of(point.entry.model) for point in plane.points}
    names = fitted_names([name for name in styles if name in drawn], LABEL_PX)
    rows: list[Json] = [
        {"x": x, "y": y, "across": each.across, "up": each.up, "model": each.name}
        | {"provider": names[provider_of(each.entry.model)]}
        for each in plane.points
        for x, y in [plane.place(each)]
    ]
    # The legend of lines stands beside.
    columns = max(1, int((_WIDTH - 210) // (widest(names.values()) + 34)))
    looks: Json = {
        look: legend(
            {"field": "provider"},
            {words: styles[name][look] for name, words in names.items()},
            columns=columns,
        )
        for look in ("color", "shape")
    }
    looks |= {"x": pixels("x"), "y": pixels("y"), "tooltip": {"field": "model", "type": "nominal"}}
    return layer(rows, "point", {}, **looks)


def _caption(
    plane: _Plane,
    entries: Sequence[RankedModel],
    numbered: Sequence[_Point],
    unlabelled: Sequence[str],
) -> str:
    drawn, numbers = [e.entry for e in plane.points], [f"{e.number}: {e.name}" for e in numbered]
    free = [each.name for each in plane.points if plane.x.kind == "log" and not each.across]
    return sentences(
        "Aegish score (more is better) against cost (less is better)"
        f"{sampled(point.seen for point in plane.points)}.",
        interval_note([SCORE]),
        simulated_note(drawn),
        f"Numbers follow the ranking: {'; '.join(numbers[:60])}." * bool(numbers),
        left_out_note(
            *(entries, drawn),
            lambda e: " and ".join(
                f"no {m.name}" for m in (COST, SCORE) if m.read(e).value is None
            ),
        ),
        f"At the left edge: {listed(free)} ({COST.name} 0)." * bool(free),
        f"Without room for a label: {listed(unlabelled)}." if unlabelled else "",
    )
