"""ROC curves: detection over false positives at any threshold, and what actions alone stop."""

from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec import Struct

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.text import JsonObject, counted
from aegish_dist.findings.roc_curve import RocCurve, roc_curve
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.opinions.guards import Guards
from aegish_dist.opinions.policy import POLICY_PREFIX
from aegish_dist.opinions.scoring import OWN_NUMBER
from aegish_dist.report.charts.frame import (
    TALL,
    WIDTH,
    Axis,
    Frame,
    LabelledPoint,
    Labels,
    PixelLine,
    axis_of,
    in_pixels,
)
from aegish_dist.report.charts.vega_lite import (
    BAR,
    INK,
    PALETTE,
    SOFT,
    Chart,
    NoChart,
    at_pixels,
    legend,
    nominal,
)
from aegish_dist.report.charts.words import (
    DETECTION,
    FALSE_POSITIVES,
    apart,
    foreign_words,
    left_out_note,
    named,
    percent,
    point_names,
    sentences,
    simulated_note,
)
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import with_interval

# How many models have a colour, and bars.
_COLORED, _BARRED = 10, 5
# Between the bars of two models.
_ASIDE_PX = 4.0
# Per cent of false positives that are always on the axis.
_REACH = 20.0
_TICKS = (0, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
# By the words of the legend, the answers that stop a command.
_STOPS = {
    "BLOCK and WARN stop": {*OutcomeDetail} - {OutcomeDetail.ALLOW},
    "BLOCK alone stops": {OutcomeDetail.BLOCK},
}
_SHAPES = dict(zip(_STOPS, ("circle", "square"), strict=True))


class _Curve(Struct, frozen=True):
    """A model at any threshold."""

    entry: RankedModel
    name: str
    rates: RocCurve
    own: Sequence[tuple[float, float]]
    """False positive and detection rate of its actions alone, in per cent, as `_STOPS`."""

    @property
    def tells(self) -> bool:
        """Whether it does not answer all commands alike."""
        return any(0 < detected < 100 for _, detected in self.own)


NAME = "roc"


def chart(data: ReportData) -> Chart | NoChart:
    """Return detection over false positive rates at any threshold, a curve for each model."""
    guards, opinion = data.guards, data.snapshot.opinion
    if guards is None or opinion is None:
        reason = "it takes the verdicts that count now, not those of an older snapshot"
        return NoChart(NAME, reason)
    entries, baseline_entries = apart(data)
    curves = sorted(_curves(guards, entries), key=lambda curve: -(curve.rates.auroc.value or 0))
    if not curves:
        return NoChart(NAME, "no model has scored malicious and harmless commands")
    baselines = [curve for curve in _curves(guards, baseline_entries) if curve.tells]
    stands = 0 if opinion.rule.is_detection(OutcomeDetail.WARN) else 1
    frame = _frame([*curves[:_COLORED], *baselines])
    layers, unlabelled = _layers(frame, curves, baselines, stands)
    known = [curve.entry for curve in curves]
    grey = len(curves) - _COLORED
    how = list(_STOPS)[stands]
    caption = sentences(
        f"{counted(len(curves), 'model')}; each step stops from a lower suspicion on"
        f" ({guards.rule(OWN_NUMBER).name}). Marks: by actions alone; under"
        f" {foreign_words(opinion.rule.name)}, {how}.",
        "Bars: 95 % confidence intervals of the detection rate, clustered by binary.",
        f"Grey, less AUROC: {counted(grey, 'model')}." if grey > 0 else "",
        named("Dotted", [curve.entry.model for curve in baselines]),
        simulated_note(known),
        left_out_note(entries, known, lambda _: "no scored command of a label"),
        named("Without room for a label", unlabelled),
    )
    areas = [f"{foreign_words(c.entry.model)} {with_interval(c.rates.auroc)}" for c in curves]
    title = "Detection rate over false positive rate (ROC)"
    description = f"AUROC: {'; '.join(areas)}."
    return frame.chart(NAME, title, caption, description, layers, values=_TICKS)


def _layers(
    frame: Frame,
    curves: Sequence[_Curve],
    baselines: Sequence[_Curve],
    stands: int,
) -> Labels:
    """Return the layers of the plot, and the names that have no room in it."""
    colored, grey = curves[:_COLORED], curves[_COLORED:]
    layers = [_line(frame, curve, {"color": BAR}) for curve in grey]
    for curve in baselines:
        layers.append(_line(frame, curve, {"color": SOFT, "strokeDash": [1, 3]}))
    marks: list[JsonObject] = []
    middle = (min(len(colored), _BARRED) - 1) / 2
    for place, curve in enumerate(colored):
        look = _look(curve, place)
        if place < _BARRED:
            bars = _bars(frame, curve, _ASIDE_PX * (place - middle))
            style = {"color": look["color"], "opacity": 0.6}
            layers.append(in_pixels("rule", bars, style))
        layers.append(_line(frame, curve, look))
        marks += _marks(frame, curve, look["color"])
    labels, unlabelled = _labels(frame, colored, stands)
    layers += labels
    layers.append(
        at_pixels(
            marks,
            "point",
            {},
            color=nominal("color") | {"scale": None, "legend": None},
            shape=legend(
                {"field": "stops"},
                _SHAPES,
                symbolFillColor=INK,
                symbolStrokeColor=INK,
            ),
        )
    )
    return layers, unlabelled


def _curves(guards: Guards, entries: Sequence[RankedModel]) -> Iterator[_Curve]:
    """Yield the curves of those that have scored commands of both labels."""
    by_name = {guard.name: guard for guard in guards.guards}
    known = [entry for entry in entries if entry.model in by_name]
    for entry, name in zip(known, point_names(known), strict=True):
        curve = roc_curve(guards, by_name[entry.model])
        if curve is not None:
            own = [curve.by_actions(stopping) for stopping in _STOPS.values()]
            yield _Curve(entry, name, curve, own)


def _frame(curves: Sequence[_Curve]) -> Frame:
    """Return axes as far as actions alone reach."""
    own = list(chain.from_iterable(curve.own for curve in curves))
    widest = 1.05 * max(across for across, _ in own)
    x = Axis(
        FALSE_POSITIVES,
        low=0.0,
        high=min(100.0, max(_REACH, widest)),
        pixels=WIDTH,
        kind="sqrt",
    )
    return Frame(x, axis_of(DETECTION, [100.0, *(up for _, up in own)], TALL))


def _look(curve: _Curve, place: int) -> JsonObject:
    if curve.entry.model.startswith(POLICY_PREFIX):
        return {"color": INK, "strokeWidth": 3}
    turn, color = divmod(place, len(PALETTE))
    dashes = [4, 2] if turn else [1, 0]
    return {"color": PALETTE[color], "strokeDash": dashes}


def _line(frame: Frame, curve: _Curve, style: JsonObject) -> JsonObject:
    """Return a curve as steps within the axes, a row for each tenth of a pixel at most."""
    heights: dict[float, float] = {}  # the greatest of each false positive rate
    for across, up in curve.rates.points:
        if across <= frame.x.high:
            heights[across] = up
    corners = list(heights.items())
    corners.append((frame.x.high, corners[-1][1]))
    rows: dict[float, JsonObject] = {}
    for across, up in corners:
        if up >= frame.y.low:
            x, y = (round(at, 1) for at in frame.place(across, up))
            rows[x] = {
                "x": x,
                "y": y,
                "across": across,
                "up": up,
                "model": curve.name,
            }
    steps = list(rows.values())
    if steps and steps[0]["x"]:  # from below the axis
        steps.insert(0, steps[0] | {"y": frame.y.pixels})
    look = {"interpolate": "step-after", "strokeWidth": 1.5} | style
    return at_pixels(steps, "line", look)


def _bars(frame: Frame, curve: _Curve, aside: float) -> Iterator[PixelLine]:
    """Yield intervals of the detection rate, cut at the axis, where the curve is drawn.

    They lie on it, some pixels aside of a false positive rate of 1 and 5 %.
    """
    lowest = frame.y.low
    for fpr in (1.0, 5.0):
        x = frame.x.along(fpr) + aside
        there = frame.x.high * (x / WIDTH) ** 2  # the axis is a square root
        rate = percent(curve.rates.detection_at(there / 100))
        if rate.value is not None and rate.value >= lowest:
            low, high = max(rate.ci_low or 0.0, lowest), max(rate.ci_high or 0.0, lowest)
            bar = frame.line(0, low, 0, high)
            yield PixelLine(x, bar.y, x, bar.y2)


def _labels(frame: Frame, curves: Sequence[_Curve], stands: int) -> Labels:
    """Return the layers of names, at models as they stand, and the names that have no room."""
    points, lines = [], []
    for curve in curves:
        points.append(LabelledPoint(*frame.place(*curve.own[stands]), curve.name))
        for rates in curve.own:
            x, y = frame.place(*rates)
            lines.append(PixelLine(x - 6, y, x + 90, y))
    return frame.labels(points, lines)


def _marks(frame: Frame, curve: _Curve, color: str) -> Iterator[JsonObject]:
    """Yield what a model stops by its actions alone."""
    for stops, rates in zip(_STOPS, curve.own, strict=True):
        x, y = frame.place(*rates)
        yield {
            "x": x,
            "y": y,
            "stops": stops,
            "color": color,
            "model": curve.name,
        }
