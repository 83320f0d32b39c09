"""Models by score and cost."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter

from msgspec import Struct

from aegish_dist.core.metric import Estimate
from aegish_dist.core.text import JsonObject
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.report.charts.frame import (
    HEIGHT,
    TALL,
    WIDTH,
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
    LEGEND_LINES,
    SOFT,
    Chart,
    NoChart,
    at_pixels,
    legend,
    nominal,
    provider_of,
    provider_styles,
    widest,
)
from aegish_dist.report.charts.words import (
    COST,
    LABEL_PX,
    SCORE,
    apart,
    baseline_note,
    described,
    fitted_names,
    interval_note,
    left_out_note,
    listed,
    named,
    point_names,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.report.data import ReportData

# Points from which on a plot is tall, and most of them have a number as their label.
_MANY = 11
# Models of the best scores, which have their names all the same.
_NAMED = 5
_PARETO, _TARGET, _BASELINE = "Pareto line", "target", "baseline"
_LINES = {_PARETO: (INK, [1, 0]), _TARGET: (SOFT, [5, 3]), _BASELINE: (SOFT, [1, 3])}
_Lines = Mapping[str, Sequence[PixelLine]]


class _Point(Struct, frozen=True):
    """A model that has both quantities."""

    entry: RankedModel
    name: str
    number: int  # in the order of the ranking, from 1
    cost: float
    score: float
    seen: Estimate  # the score with its interval


NAME = "score-by-cost"


def chart(data: ReportData) -> Chart | NoChart:
    """Return score against cost, in which a line joins the models that none beats."""
    entries, baselines = apart(data)
    known = list(_points(entries))
    if not known:
        return NoChart(NAME, f"no model has both {COST.name} and {SCORE.name}")
    if len({point.cost for point in known}) < 2:
        return NoChart(NAME, f"no two models differ in {COST.name}")
    least = least_drawn([point.score for point in known])
    points = [point for point in known if point.score >= least]
    far = [point.entry for point in known if point.score < least]
    drawn = [point.entry for point in points]
    aims = SCORE.aims(data.targets)
    frame, numbered, best = _frame(points, aims), _numbered(points), pareto(points)
    lines = {
        _PARETO: _steps(frame, best),
        _TARGET: [frame.level(aim) for aim in aims],
        _BASELINE: _floors(frame, baselines),
    }
    labels, unlabelled = _labels(frame, points, numbered, lines, aims)
    styles = provider_styles(entry.model for entry in entries)
    layers = [
        _bars(frame, points),
        *labels,
        *_legend_lines(lines),
        _symbols(frame, points, styles),
    ]
    caption = sentences(
        f"More score and less cost are better{sampled(point.seen for point in points)}.",
        interval_note([SCORE]),
        simulated_note(drawn),
        _numbers_note(numbered),
        left_out_note(entries, [*drawn, *far], _lacking),
        _far_note(far),
        _free_note(frame, points),
        named("Without room for a label", unlabelled),
        baseline_note(baselines),
    )
    on_line = listed([point.entry.model for point in best])
    description = f"{described(drawn, [SCORE, COST])} On the Pareto line: {on_line}."
    title = "Aegish score against cost"
    return frame.chart(NAME, title, caption, description, layers)


def _numbers_note(numbered: Sequence[_Point]) -> str:
    if not numbered:
        return ""
    numbers = [f"{point.number}: {point.name}" for point in numbered[:60]]
    return f"Numbers go by score: {'; '.join(numbers)}."


def _far_note(far: Sequence[RankedModel]) -> str:
    if not far:
        return ""
    return f"Too far below the others to draw: {described(far, [SCORE, COST])}"


def _free_note(frame: Frame, points: Sequence[_Point]) -> str:
    """Say which models cost nothing, where the axis does not reach 0."""
    free = [point.name for point in points if not point.cost]
    if not free or frame.x.kind != "log":
        return ""
    return f"At the left edge: {listed(free)} ({COST.name} 0)."


def _points(entries: Sequence[RankedModel]) -> Iterator[_Point]:
    """Yield the models that have both quantities."""
    names = point_names(entries)
    for place, (entry, name) in enumerate(zip(entries, names, strict=True), 1):
        cost, seen = COST.read(entry).value, SCORE.read(entry)
        if cost is not None and seen.value is not None:
            yield _Point(
                entry,
                name,
                number=place,
                cost=cost,
                score=seen.value,
                seen=seen,
            )


def _lacking(entry: RankedModel) -> str:
    """Say why a model is not drawn."""
    lacking = [each.name for each in (COST, SCORE) if each.read(entry).value is None]
    return f"no {' and no '.join(lacking)}"


def least_drawn(rates: Sequence[float]) -> float:
    """Return the rate from which on models are drawn.

    At most a tenth of them are left out, where they make the axis more than three times as long.
    """
    ordered = sorted(rates)
    for least in ordered[: len(ordered) // 10 + 1]:
        if 3 * (ordered[-1] - least) < ordered[-1] - ordered[0]:
            return least
    return ordered[0]


def _frame(points: Sequence[_Point], aims: Sequence[float]) -> Frame:
    """Return axes around the models, their intervals and the target."""
    values = [*aims]
    for point in points:
        ends = (point.score, point.seen.ci_low, point.seen.ci_high)
        values += [end for end in ends if end is not None]
    height = TALL if len(points) >= _MANY else HEIGHT
    return Frame(
        axis_of(COST, [point.cost for point in points], WIDTH),
        axis_of(SCORE, values, height),
    )


def _numbered(points: Sequence[_Point]) -> list[_Point]:
    """Return the points that have a number as their label: few names can be read beside many.

    The best ones have their names, and those at the ends of the axes.
    """
    if len(points) < _MANY:
        return []
    by_cost = sorted(points, key=attrgetter("cost"))
    by_score = sorted(points, key=attrgetter("score"))
    ends = (by_cost[0], by_cost[-1], by_score[0], by_score[-1])
    return [point for point in points[_NAMED:] if point not in ends]


def pareto(points: Sequence[_Point]) -> list[_Point]:
    """Return the points that none beats in one quantity without losing in the other, ascending."""
    best: list[_Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.score)):
        if not best or point.score > best[-1].score:
            best.append(point)
    return best


def _steps(frame: Frame, best: Sequence[_Point]) -> list[PixelLine]:
    """Return the line of the best score so far, from the first of several to the right edge."""
    if len(best) < 2:
        return []
    lines = []
    for point, dearer in pairwise(best):
        corner = (dearer.cost, point.score)
        lines.append(frame.line(point.cost, point.score, *corner))
        lines.append(frame.line(*corner, dearer.cost, dearer.score))
    last = best[-1]
    lines.append(frame.line(last.cost, last.score, frame.x.high, last.score))
    return lines


def _floors(frame: Frame, baselines: Sequence[RankedModel]) -> list[PixelLine]:
    """Return the scores of baselines, as far as the axis reaches."""
    scores = [SCORE.read(baseline).value or 0.0 for baseline in baselines]
    return [frame.level(score) for score in scores if frame.y.low <= score <= frame.y.high]


def _bars(frame: Frame, points: Sequence[_Point]) -> JsonObject:
    bars = []
    for point in points:
        low, high = point.seen.ci_low, point.seen.ci_high
        if low is not None and high is not None:
            bars.append(frame.line(point.cost, low, point.cost, high))
    return in_pixels("rule", bars, {"color": BAR, "strokeWidth": 1.5})


def _labels(
    frame: Frame,
    points: Sequence[_Point],
    numbered: Sequence[_Point],
    lines: _Lines,
    aims: Sequence[float],
) -> Labels:
    """Return the layers of labels of models and targets, and the texts that have no room."""
    labelled = []
    for point in points:
        text = str(point.number) if point in numbered else point.name
        labelled.append(LabelledPoint(*frame.place(point.cost, point.score), text))
    for aim in aims:
        labelled.append(LabelledPoint(WIDTH, frame.level(aim).y, f"target {aim:g} %"))
    return frame.labels(labelled, list(chain.from_iterable(lines.values())))


def _legend_lines(lines: _Lines) -> Iterator[JsonObject]:
    """Yield the Pareto line, targets and baselines, with their legend."""
    shown = {name: dash for name, (_, dash) in _LINES.items() if lines[name]}
    for name in shown:
        dash = legend({"datum": name}, shown, **LEGEND_LINES)
        yield in_pixels(
            "rule",
            lines[name],
            {"color": _LINES[name][0]},
            strokeDash=dash,
        )


def _symbols(
    frame: Frame, points: Sequence[_Point], styles: Mapping[str, JsonObject]
) -> JsonObject:
    """Return the marks of models, with a legend of their providers."""
    drawn = {provider_of(point.entry.model) for point in points}
    names = fitted_names([provider for provider in styles if provider in drawn], LABEL_PX)
    rows: list[JsonObject] = []
    for point in points:
        x, y = frame.place(point.cost, point.score)
        rows.append(
            {
                "x": x,
                "y": y,
                "provider": names[provider_of(point.entry.model)],
                "across": point.cost,
                "up": point.score,
                "model": point.name,
            }
        )
    room = WIDTH - 210  # the legend of lines stands beside
    columns = max(1, int(room // (widest(names.values()) + 34)))
    by_provider: JsonObject = {}
    for look in ("color", "shape"):
        looks = {name: styles[provider][look] for provider, name in names.items()}
        by_provider[look] = legend(
            {"field": "provider"},
            looks,
            columns=columns,
            padding=1.5,  # stands as low as the longer symbols of lines
        )
    return at_pixels(
        rows,
        "point",
        {},
        tooltip=nominal("model"),
        **by_provider,
    )
