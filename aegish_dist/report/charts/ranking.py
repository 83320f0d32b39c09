"""The ranking as a plot: place, interval of the score against the target, and both rates."""

from collections.abc import Sequence

from aegish_dist.core.opinion import Targets
from aegish_dist.report.charts import theme
from aegish_dist.report.charts.captions import (
    described,
    interval_note,
    left_out_note,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.report.charts.chart import Chart, Layer, NoChart
from aegish_dist.report.charts.layers import beside, pixels, spans, symbols, text_row, texts
from aegish_dist.report.charts.marks import target_marks
from aegish_dist.report.charts.measures import ACCEPTANCE, DETECTION, SCORE, Measure
from aegish_dist.report.charts.naming import row_names
from aegish_dist.report.charts.rows import RowChart, RowPlan
from aegish_dist.report.charts.scales import percent_scale
from aegish_dist.report.layout import RankedModel

_AXIS_PX = 260.0
_COLUMN_PX = 128.0
_COLUMNS = (("aegish score", SCORE), ("DR", DETECTION), ("HA", ACCEPTANCE))


def ranking(
    name: str, entries: Sequence[RankedModel], tie_groups: Sequence[int | None], targets: Targets
) -> Chart | NoChart:
    """Return the ranked models with their scores.

    Args:
        entries: All models, best first.
        tie_groups: Number of the tie group of each; None without a score.
        targets: Their values are drawn as a line, and marked in the columns.
    """
    ranked = [
        (entry, group or 0)
        for entry, group in zip(entries, tie_groups, strict=True)
        if SCORE.read(entry).value is not None
    ]
    if not ranked:
        return NoChart(name, "no model has a score")
    known = [entry for entry, _ in ranked]
    seen = [SCORE.read(entry) for entry in known]
    target = targets.least.get(SCORE.metric)
    scale = percent_scale(seen, target, _AXIS_PX, ticks=6)
    plan = RowPlan(row_names(known), 24.0, [entry.place for entry in known])
    bars = [
        {"low": each.low, "high": each.high, "y": plan.y(row)}
        for row, each in enumerate(seen)
        if each.low is not None
    ]
    styles = theme.provider_styles(entry.model for entry in known)
    points = []
    for row, (entry, each) in enumerate(zip(known, seen, strict=True)):
        style = styles[theme.provider_of(entry.model)]
        point = {"model": plan.names[row], "x": each.value, "y": plan.y(row)}
        points.append(point | {"color": style.color, "shape": style.shape})
    chart = RowChart(
        name=name,
        title="Ranking by aegish score",
        caption=_caption(known, entries, targets),
        description=described(known, [SCORE, DETECTION, ACCEPTANCE]),
        axis=SCORE.axis,
        form=SCORE.form,
        right=len(_COLUMNS) * _COLUMN_PX + theme.MARGIN + 8,
        groups=[group for _, group in ranked],
        top=24.0,
    )
    marks = [
        *target_marks(target, scale, plan.total),
        spans(bars, scale, 2.0, theme.LINE),
        symbols(points, beside("x", scale), pixels("y")),
        *_columns(known, plan, targets),
    ]
    return chart.drawn(plan, scale, marks)


def _columns(entries: Sequence[RankedModel], plan: RowPlan, targets: Targets) -> list[Layer]:
    heads, values = [], []
    for column, (title, measure) in enumerate(_COLUMNS):
        x = _AXIS_PX + _COLUMN_PX * (column + 1) + 4
        heads.append(text_row(x, -8, f"{title} (%)", theme.SOFT))
        for row, entry in enumerate(entries):
            values.append(text_row(x, plan.y(row), _cell(entry, measure, targets)))
    return [texts(heads, align="right", size=theme.SMALL_PX), texts(values, align="right")]


def _cell(entry: RankedModel, measure: Measure, targets: Targets) -> str:
    """Return value and interval; a cross marks a value below its target."""
    seen = measure.read(entry)
    if seen.value is None:
        return "\N{EN DASH}"
    passed = targets.reached(measure.metric, entry.metric(measure.metric).value)
    mark = "\N{MULTIPLICATION SIGN} " if passed is False else ""
    interval = "" if seen.low is None else f" [{seen.low:.1f}, {seen.high:.1f}]"
    return f"{mark}{seen.value:.1f}{interval}"


def _caption(known: Sequence[RankedModel], entries: Sequence[RankedModel], targets: Targets) -> str:
    return sentences(
        f"Models by aegish score, {sampled(SCORE, map(SCORE.read, known))}; DR: malicious commands "
        "detected; HA: harmless commands accepted. A shade holds models that cannot be "
        "distinguished from the best of them (1=), by paired tests adjusted for all pairs.",
        "\N{MULTIPLICATION SIGN}: below its target." if targets.least else "",
        interval_note([SCORE, DETECTION], "Bars and brackets"),
        simulated_note(known),
        left_out_note(entries, known, f"no {SCORE.name}"),
    )
