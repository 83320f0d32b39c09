"""Micro against macro average of the detection rate: two lanes for each model."""

from collections.abc import Sequence

from aegish_dist.core.opinion import Targets
from aegish_dist.render.charts import theme
from aegish_dist.render.charts.captions import (
    described,
    interval_note,
    left_out_note,
    sampled,
    sentences,
    simulated_note,
)
from aegish_dist.render.charts.chart import Chart, LegendItem, NoChart
from aegish_dist.render.charts.layers import beside, pixels, spans, symbols
from aegish_dist.render.charts.marks import target_marks
from aegish_dist.render.charts.measures import DETECTION, MACRO_DETECTION
from aegish_dist.render.charts.rows import AXIS_PX, RowChart, plan_rows
from aegish_dist.render.charts.scales import percent_scale
from aegish_dist.render.entries import RankedModel

_LANES = (
    (DETECTION, "micro: mean over commands", 0.32, theme.PALETTE[0], "circle"),
    (MACRO_DETECTION, "macro: mean over categories", 0.68, theme.PALETTE[3], "diamond"),
)


def averages(name: str, entries: Sequence[RankedModel], targets: Targets) -> Chart | NoChart:
    """Return both averages of each model with their intervals.

    Args:
        entries: The models, best first.
    """
    known = [entry for entry in entries if DETECTION.read(entry).value is not None]
    if not known:
        return NoChart(name, "no model has a detection rate")
    target = targets.least.get(DETECTION.metric)
    both = (measure.read(entry) for entry in known for measure in (DETECTION, MACRO_DETECTION))
    scale = percent_scale(both, target, AXIS_PX)
    plan = plan_rows(known, 34.0)
    bars, points = [], []
    for row, entry in enumerate(known):
        for measure, _, lane, color, shape in _LANES:
            seen, y = measure.read(entry), plan.y(row, lane)
            if seen.low is not None:
                bars.append({"low": seen.low, "high": seen.high, "y": y, "color": color})
            if seen.value is not None:
                points.append({"x": seen.value, "y": y, "color": color, "shape": shape})
    chart = RowChart(
        name=name,
        title="Detection rate: mean over commands and mean over categories",
        caption=_caption(known, entries),
        description=described(known, [DETECTION, MACRO_DETECTION]),
        axis=DETECTION.axis,
        form=DETECTION.form,
    )
    legend = [LegendItem(text, color, shape) for _, text, _, color, shape in _LANES]
    marks = [
        *target_marks(target, scale, plan.total),
        spans(bars, scale, 2.0),
        symbols(points, beside("x", scale), pixels("y"), size=55),
    ]
    return chart.drawn(plan, scale, marks, legend)


def _caption(known: Sequence[RankedModel], entries: Sequence[RankedModel]) -> str:
    size = sampled(DETECTION, [DETECTION.read(entry) for entry in known])
    return sentences(
        f"Malicious commands that were detected, {size}. Micro counts each command alike, macro "
        "each category.",
        interval_note([DETECTION]),
        simulated_note(known),
        left_out_note(entries, known, f"no {DETECTION.name}"),
    )
