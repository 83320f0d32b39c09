"""One quantity against another: models and systems by score and cost, ROC curves."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from operator import attrgetter
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.policy import POLICY_PREFIX
from aegish_dist.core.suspicion import OWN_NUMBER, Guards
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
from aegish_dist.report.names import short_names
from aegish_dist.report.numbers import format_ms, format_rate, format_usd
from aegish_dist.report.quality import with_interval
from aegish_dist.report.systems import IN_TABLE, SystemsData, system_in_short
from aegish_dist.statistics.policy_search import Candidate
from aegish_dist.statistics.rates import Estimate, combine
from aegish_dist.statistics.roc import ScoredDecisions, auroc, detection_at

_WIDTH, _HEIGHT, _TALL = 640.0, 400.0, 560.0
_MANY = 11
"""Points from which on a plot is tall, and most of them have a number as their label."""
_PARETO, _TARGET, _BASELINE = "Pareto line", "target", "baseline"
_LINES = {_PARETO: (INK, [1, 0]), _TARGET: (SOFT, [5, 3]), _BASELINE: (SOFT, [1, 3])}


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
            share = math.log(max(value / self.low, 1.0)) / math.log(self.high / self.low)
        else:
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
    is_rate = bool(measure.metric)
    if not is_rate and positive and max(positive) / min(positive) >= 12:
        return Axis(measure, min(positive) / 1.25, max(positive) * 1.25, length, "log")
    low, high = min(values), max(values)
    margin = 0.1 * (max(high - low, abs(high) * 0.02) or 1.0)
    most = 100.0 if is_rate else math.inf
    return Axis(measure, max(low - margin, 0.0), min(high + margin, most), length)


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
    far: Sequence[_Point]  # those far below the others
    x: Axis
    y: Axis

    @property
    def numbered(self) -> Sequence[_Point]:
        """The points that have a number as their label: few names can be read beside many.

        The first five have their names, those at the ends of the axes, and those of a letter.
        """
        named = [each for each in self.points if len(each.name) > 1]
        if len(named) < _MANY:
            return ()
        ends = [
            end(self.points, key=attrgetter(way)) for way in ("across", "up") for end in (min, max)
        ]
        return [each for each in named[5:] if each not in ends]

    def line(self, x: float, y: float, x2: float, y2: float) -> PixelLine:
        """Return the line from one pair of values to another."""
        return PixelLine(self.x.along(x), self.y.down(y), self.x.along(x2), self.y.down(y2))

    def level(self, value: float) -> PixelLine:
        """Return the line at a value, from the left edge to the right one."""
        return self.line(self.x.low, value, self.x.high, value)

    def place(self, point: _Point) -> tuple[float, float]:
        """Return where a point lies, in pixels from the top left corner."""
        return self.x.along(point.across), self.y.down(point.up)

    def steps(self, best: Sequence[_Point]) -> Iterator[PixelLine]:
        """Yield the line of the best value so far, from the first of several to the right edge."""
        if len(best) < 2:
            return
        corners = [(point.across, point.up) for point in best]
        for (x, y), (x2, y2) in pairwise([*corners, (self.x.high, best[-1].up)]):
            yield self.line(x, y, x2, y)
            if y2 != y:
                yield self.line(x2, y, x2, y2)


def scatter(
    name: str,
    data: ReportData,
    entries: Sequence[RankedModel],
    across: Measure = COST,
    up: Measure = SCORE,
) -> Chart | NoChart:
    """Return a scatter plot, in which a line joins the models that none beats."""
    found = list(_points(entries, across, up))
    if not found:
        return NoChart(name, f"no model has both {across.name} and {up.name}")
    if len({point.across for point in found}) < 2:
        return NoChart(name, f"no two models differ in {across.name}")
    aims, baselines = up.aims(data.targets), apart(data)[1]
    plane, floors = _plane(found, across, up, aims), [SCORE.read(each) for each in baselines]
    best = pareto(plane.points, attrgetter("across"), attrgetter("up"))
    low, high = plane.y.low, plane.y.high
    lines = {
        _PARETO: list(plane.steps(best)),
        _TARGET: list(map(plane.level, aims)),
        _BASELINE: [plane.level(e.value) for e in floors if e.value and low <= e.value <= high],
    }
    bars = [
        plane.line(each.across, each.seen.ci_low, each.across, each.seen.ci_high)
        for each in plane.points
        if each.seen.ci_low is not None and each.seen.ci_high is not None
    ]
    numbered = plane.numbered
    labels, left = _labels(plane, numbered, bars, lines, aims)
    if numbered and left:  # where a name has no room, a number may
        numbered = [point for point in plane.points if point in numbered or point.name in left]
        labels, left = _labels(plane, numbered, bars, lines, aims)
    body = _view(
        plane.x.channel("x"),
        plane.y,
        _in_pixels("rule", bars, {"color": BAR, "strokeWidth": 1.5}),
        *_names(labels),
        *_legend_lines(lines),
        _symbols(plane, provider_styles(each.model for each in (*entries, *apart(data)[0]))),
    )
    title = f"{up.name[:1].upper()}{up.name[1:]} against {across.name}"
    caption = sentences(_caption(plane, entries, numbered, left), baseline_note(baselines))
    description = described([point.entry for point in plane.points], [up, across])
    description += f" On the Pareto line: {listed([each.entry.model for each in best])}."
    return Chart(name, title, caption, description, body, 44, _WIDTH + 80)


_LETTERS = "ABCDEFGH"
_OLDER = "it takes the verdicts that count now, not those of an older snapshot"


def systems(name: str, data: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return models and systems by score and cost, or by latency where no cost is known."""
    search = data.systems
    if not isinstance(search, SystemsData):
        return NoChart(name, str(search or _OLDER))
    found, needs = search.found, search.requirements
    by_cost = any(each.cost_per_10000 is not None for each in found.line)
    what, axis = ("cost", "cost (USD per 10,000 actions)"), "$,~r"
    if not by_cost:
        what, axis = ("latency", "latency, 95th percentile (seconds)"), ",~r"

    def price(system: Candidate) -> float:
        known = system.cost_per_10000 if by_cost else system.p95_ms and system.p95_ms / 1000
        return math.inf if known is None else known

    def score(system: Candidate) -> float:
        rates = Estimate(1 - system.miss_rate), Estimate(1 - system.stop_rate)
        return 100 * (combine(search.opinion.rule.composite, *rates).value or 0.0)

    best = {e: [moved, stands] for e, (stands, moved) in found.singles.items() if moved}
    best = dict(sorted(best.items(), key=lambda each: -score(each[1][0])))
    kept = [e for e in found.line if needs.keeps(e) and price(e) < math.inf]
    line = pareto(kept, price, score)
    several = [each for each in line if len({*each.policy.guards}) > 1]
    last = min(len(_LETTERS), len(several)) - 1
    shown = [several[at * (len(several) - 1) // max(last, 1)] for at in range(last + 1)]
    lettered = dict(zip(_LETTERS, shown, strict=False))
    best |= {f"system/{letter}": [each] for letter, each in lettered.items()}
    drawn = {e: ends for e, ends in best.items() if price(ends[0]) < math.inf}
    if not drawn:
        return NoChart(name, f"nothing of known {what[0]} keeps to the bounds")

    def interval(entry: RankedModel) -> Estimate:
        scores = [score(each) for each in drawn[entry.model]]
        return Estimate(scores[0], ci_low=min(scores), ci_high=max(scores))

    across = Measure(
        *(*what, axis),
        read=lambda entry: Estimate(price(drawn[entry.model][0])),
        words=lambda value: format_usd(value) if by_cost else format_ms(1000 * value),
    )
    up = replace(SCORE, read=interval, interval="", words=lambda value: f"score {value:.1f} %")
    known = {each.model: each for each in entries}
    points = [known.get(each) or RankedModel("", {"model": each}) for each in drawn]
    made = scatter(name, data, points, across, up)
    if isinstance(made, NoChart):
        return made
    names = short_names(search.models, IN_TABLE)
    told = (
        f"{letter}: {system_in_short(each.policy, names)} (misses {format_rate(each.miss_rate)} %,"
        f" stops {format_rate(each.stop_rate)} %, p95 {format_ms(each.p95_ms)})"
        for letter, each in lettered.items()
    )
    judged = [
        f"{kind.replace('_', ' ')} {with_interval(choice.estimate.score)}"
        for kind, choice in search.choices.items()
        if choice
    ]
    missing = [e for e in known if e not in drawn and not e.startswith(POLICY_PREFIX)]
    caption = sentences(
        made.caption,
        "Models have their best threshold; the other end of a bar is the model as it stands.",
        f"Systems of several: {'; '.join(told)}." * bool(lettered),
        f"All are on the {counted(found.decisions, 'decision')} that they are chosen on, a little "
        "too good.",
        f"The best by {needs.criterion.name}, on other commands (out of fold, 95 % confidence "
        f"interval): {', '.join(judged)}." * bool(judged),
        f"Not drawn: {listed(missing)} (outside the bounds, of unknown {what[0]}, or too few "
        "commands scored)." * bool(missing),
    )
    return replace(made, title=f"Systems of guards: score against {what[0]}", caption=caption)


_MOST, _BARRED, _REACH = 10, 5, 20.0
"""Models with a colour and with bars, and the per cent of false positives always on the axis."""
_TICKS = (0, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
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
        corners = {100 * wrong / n: 100 * right / m for right, wrong in self.scores.stopped}
        inside = {across: up for across, up in corners.items() if across <= x.high}
        rows = {
            round(x.along(across), 1): {"across": across, "up": up, "y": round(y.down(up), 1)}
            for across, up in [*inside.items(), (x.high, max(inside.values()))]
            if up >= y.low
        }
        steps = [{"x": at, "model": self.name} | row for at, row in rows.items()]
        steps[:0] = [each | {"y": y.pixels} for each in steps[:1] if each["x"]]  # from below
        look = {"interpolate": "step-after", "strokeWidth": 1.5} | style
        return layer(steps, "line", look, x=pixels("x"), y=pixels("y"))

    def bars(self, x: Axis, y: Axis, aside: float) -> Iterator[PixelLine]:
        """Yield the intervals of the detection rate, cut at the axis, some pixels aside."""
        for point in (detection_at(self.scores, max_fpr) for max_fpr in (0.01, 0.05)):
            if point is not None:
                rate, at = percent(point.detection_rate), x.along(100 * point.max_fpr) + aside
                low, top = (y.down(max(end or 0.0, y.low)) for end in (rate.ci_low, rate.ci_high))
                yield PixelLine(at, low, at, top)


def roc(name: str, data: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return detection over false positive rates at any threshold, a curve for each model."""
    opinion = data.snapshot.opinion
    if data.guards is None or opinion is None:
        return NoChart(name, _OLDER)
    curves = sorted(_curves(data.guards, entries), key=lambda each: -(each.area.value or 0))
    if not curves:
        return NoChart(name, "no model has scored malicious and harmless commands")
    drawn, others, least = curves[:_MOST], curves[_MOST:], _curves(data.guards, apart(data)[1])
    floors = [each for each in least if any(0 < up < 100 for _, up in each.own)]
    across, ups = zip(*chain.from_iterable(e.own for e in (*drawn, *floors)), strict=True)
    x = Axis(FALSE_POSITIVES, 0.0, min(100.0, max(_REACH, 1.05 * max(across))), _WIDTH, "sqrt")
    y = axis_of(DETECTION, [100.0, *ups], _TALL)
    layers = [each.path(x, y, color=BAR) for each in others]
    layers += [each.path(x, y, color=SOFT, strokeDash=[1, 3]) for each in floors]
    stands = 0 if opinion.rule.is_detection(OutcomeDetail.WARN) else 1  # of `_OWN`
    marks, named, taken = list[Json](), list[LabelledPoint](), list[PixelLine]()
    for place, each in enumerate(drawn):
        turn, color = divmod(place, len(PALETTE))
        look: Json = {"color": PALETTE[color], "strokeDash": [4, 2] if turn else [1, 0]}
        if each.entry.model.startswith(POLICY_PREFIX):
            look = {"color": INK, "strokeWidth": 3}
        if place < _BARRED:
            bars = each.bars(x, y, 4.0 * (place - (min(len(drawn), _BARRED) - 1) / 2))
            layers.append(_in_pixels("rule", bars, {"color": look["color"], "opacity": 0.6}))
        layers.append(each.path(x, y, **look))
        own = [(x.along(wrong), y.down(right)) for wrong, right in each.own]
        named.append(LabelledPoint(*own[stands], each.name))
        taken += [PixelLine(left - 6, top, left + 90, top) for left, top in own]
        marks += [
            {"x": at[0], "y": at[1], "stops": stops, "color": look["color"], "model": each.name}
            for stops, at in zip(_OWN, own, strict=True)
        ]
    labels, unnamed = _placed(named, y, (), taken)
    shape = legend({"field": "stops"}, _OWN, symbolFillColor=INK, symbolStrokeColor=INK)
    at = {"x": pixels("x"), "y": pixels("y"), "color": literal("color"), "shape": shape}
    layers += [*_names(labels), layer(marks, "point", {}, **at)]
    body, known = _view(x.channel("x", values=_TICKS), y, *layers), [e.entry for e in curves]
    suspicion = data.guards.rule(OWN_NUMBER).name
    caption = sentences(
        f"{counted(len(curves), 'model')}; each step stops from a lower suspicion on ("
        f"{suspicion}). Marks: by actions alone; {foreign_words(opinion.rule.name)} "
        f"takes models as they stand so that {[*_OWN][stands]}.",
        "Bars, side by side, of the greatest AUROC: 95 % confidence intervals of the detection "
        "rate at a false positive rate of at most 1 and 5 %, each for itself, clustered by binary.",
        f"Grey, less AUROC: {listed([each.entry.model for each in others])}." * bool(others),
        f"Dotted: {listed([each.entry.model for each in floors])}." * bool(floors),
        simulated_note(known),
        left_out_note(entries, known, lambda _: "no scored command of a label"),
        f"Without room for a label: {listed(unnamed)}." * bool(unnamed),
    )
    found = (f"{foreign_words(e.entry.model)} {with_interval(e.area)}" for e in curves)
    title = "Detection rate over false positive rate (ROC)"
    return Chart(name, title, caption, f"AUROC: {'; '.join(found)}.", body, 44, _WIDTH + 80)


def _curves(guards: Guards, entries: Sequence[RankedModel]) -> Iterator[_Curve]:
    """Yield the curves of those that have scored commands of both labels."""
    columns = {each.name: each for each in guards.guards}
    known = [entry for entry in entries if entry.model in columns]
    for entry, name in zip(known, point_names(known), strict=True):
        guard = columns[entry.model]
        scores = ScoredDecisions(guards.decisions, guard.suspicion)
        told = zip(guards.decisions, guard.findings, guard.suspicion, strict=True)
        said = [(each.dangerous, finding) for each, finding, known in told if known is not None]
        if all(scores.sides):
            own = [
                [
                    100 * fmean(finding in stops for label, finding in said if label is side)
                    for side in (False, True)
                ]
                for stops in ({*OutcomeDetail} - {OutcomeDetail.ALLOW}, {OutcomeDetail.BLOCK})
            ]
            yield _Curve(entry, name, scores, auroc(scores), own)


def _view(x: Json, y: Axis, *layers: Json) -> Json:
    """Return a view with two axes, over which layers lie in pixels."""
    axes = layer([{}], "point", {"opacity": 0}, x=x, y=y.channel("y"))
    alone = {"axis": {"x": "independent", "y": "independent"}}
    return {"width": _WIDTH, "height": y.pixels, "layer": [axes, *layers], "resolve": alone}


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
    ends = [(_WIDTH, plane.level(aim).y, f"target {aim:g} %") for aim in aims]
    points += [LabelledPoint(*end) for end in ends]
    return _placed(points, plane.y, bars, list(chain.from_iterable(lines.values())))


def _placed(
    points: Sequence[LabelledPoint],
    y: Axis,
    bars: Sequence[PixelLine],
    lines: Sequence[PixelLine],
) -> tuple[list[PlacedLabel], list[str]]:
    labels = place_labels(points, PixelBox(0, 0, _WIDTH, y.pixels), bars, lines)
    placed = "\n".join(label.text for label in labels).split("\n")
    return labels, [each.text for each in points if each.text not in placed]


def _points(entries: Sequence[RankedModel], across: Measure, up: Measure) -> Iterator[_Point]:
    """Yield the models that have both quantities."""
    for place, (entry, name) in enumerate(zip(entries, point_names(entries), strict=True), 1):
        x, y = across.read(entry).value, up.read(entry)
        if x is not None and y.value is not None:
            yield _Point(entry, name, place, x, y.value, y)


def least_drawn(rates: Sequence[float]) -> float:
    """Return the rate from which on models are drawn.

    At most a tenth of them are left out, where they make the axis more than three times as long.
    """
    ordered = sorted(rates)
    spans = [ordered[-1] - least for least in ordered[: len(ordered) // 10 + 1]]
    near = [place for place, span in enumerate(spans) if 3 * span < spans[0]]
    return ordered[near[0] if near else 0]


def _plane(found: Sequence[_Point], across: Measure, up: Measure, aims: Sequence[float]) -> _Plane:
    """Lay out the models."""
    low = least_drawn([point.up for point in found])
    points = [point for point in found if point.up >= low]
    ends = chain.from_iterable((e.up, e.seen.ci_low, e.seen.ci_high) for e in points)
    values = [*aims, *(end for end in ends if end is not None)]
    x = axis_of(across, [point.across for point in points], _WIDTH)
    y = axis_of(up, values, _TALL if len(points) >= _MANY else _HEIGHT)
    return _Plane(points, [point for point in found if point.up < low], x, y)


_Any = TypeVar("_Any")


def pareto(
    points: Iterable[_Any], across: Callable[[_Any], float], up: Callable[[_Any], float]
) -> list[_Any]:
    """Return the points that none beats in one quantity without losing in the other, ascending."""
    best: list[_Any] = []
    for point in sorted(points, key=lambda each: (across(each), -up(each))):
        if not best or up(point) > up(best[-1]):
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
    """Yield the Pareto line, targets and baselines, with their legend."""
    shown = {name: dash for name, (_, dash) in _LINES.items() if lines[name]}
    for name in shown:
        dash = legend({"datum": name}, shown, **LEGEND_LINES)
        yield _in_pixels("rule", lines[name], {"color": _LINES[name][0]}, strokeDash=dash)


def _names(placed: Sequence[PlacedLabel]) -> Iterator[Json]:
    """Yield labels, which hide what is behind them, with lines to points that are away."""
    boxes, leaders = [each.box for each in placed], [each.line for each in placed if each.line]
    yield _in_pixels("rect", boxes, {"color": PAPER, "fillOpacity": 0.8})
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
    room = plane.x.pixels - 210  # the legend of lines stands beside
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
    numbered: Sequence[_Point],
    unlabelled: Sequence[str],
) -> str:
    drawn, far = ([point.entry for point in each] for each in (plane.points, plane.far))
    known, numbers = [*drawn, *far], [f"{each.number}: {each.name}" for each in numbered]
    across, up = plane.x.measure, plane.y.measure
    free = [each.name for each in plane.points if plane.x.kind == "log" and not each.across]
    return sentences(
        f"{up.name[:1].upper()}{up.name[1:]} (more is better) against {across.name} (less is "
        f"better){sampled(point.seen for point in plane.points)}.",
        interval_note([up]),
        simulated_note(drawn),
        f"Numbers go by score: {'; '.join(numbers[:60])}." * bool(numbers),
        left_out_note(entries, known, partial(_lacking, (across, up))),
        f"Too far below the others to draw: {described(far, [up, across])}" * bool(far),
        f"At the left edge: {listed(free)} ({across.name} 0)." * bool(free),
        f"Without room for a label: {listed(unlabelled)}." if unlabelled else "",
    )


def _lacking(measures: tuple[Measure, Measure], entry: RankedModel) -> str:
    """Say why a model is not drawn."""
    lacking = [each.name for each in measures if each.read(entry).value is None]
    return f"no {' and no '.join(lacking)}"
