"""The cost of each model."""

from collections.abc import Sequence

from aegish_dist.render.charts import theme
from aegish_dist.render.charts.captions import (
    described,
    left_out_note,
    sentences,
    simulated_note,
)
from aegish_dist.render.charts.chart import Chart, Layer, NoChart
from aegish_dist.render.charts.layers import (
    beside,
    box_row,
    boxes,
    pixels,
    symbols,
    text_row,
    texts,
)
from aegish_dist.render.charts.measures import COST
from aegish_dist.render.charts.rows import AXIS_PX, RowChart, RowPlan, plan_rows
from aegish_dist.render.charts.scales import AxisScale, amount_scale
from aegish_dist.render.entries import RankedModel
from aegish_dist.render.numbers import format_usd


def costs(name: str, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return what a thousand commands cost, the cheapest model first.

    Args:
        entries: The models, in any order.
    """
    known = sorted(
        (entry for entry in entries if COST.read(entry).value is not None),
        key=lambda entry: (COST.read(entry).value, entry.model),
    )
    if not known:
        return NoChart(name, "no model has a cost")
    scale = amount_scale([COST.read(entry).value or 0.0 for entry in known], AXIS_PX)
    plan = plan_rows(known, 24.0)
    chart = RowChart(
        name=name,
        title="Cost of 1,000 commands",
        caption=_caption(known, entries, scale),
        description=described(known, [COST]),
        axis=COST.axis,
        form=COST.form,
        right=84.0,
    )
    return chart.drawn(plan, scale, _marks(known, plan, scale))


def _marks(known: Sequence[RankedModel], plan: RowPlan, scale: AxisScale) -> list[Layer]:
    amounts = [COST.read(entry).value or 0.0 for entry in known]
    places = [scale.along(each) if each or not scale.log else 0.0 for each in amounts]
    words = [
        text_row(x + 9, plan.y(row), format_usd(amount))
        for row, (x, amount) in enumerate(zip(places, amounts, strict=True))
    ]
    color = theme.PALETTE[0]
    if scale.log:
        points = [
            {"x": amount, "y": plan.y(row), "color": color, "shape": "circle"}
            for row, amount in enumerate(amounts)
            if amount
        ]
        return [symbols(points, beside("x", scale), pixels("y")), texts(words)]
    bars = [
        box_row(0, plan.y(row, 0.22), x, plan.y(row, 0.78), color) for row, x in enumerate(places)
    ]
    return [boxes(bars), texts(words)]


def _caption(known: Sequence[RankedModel], entries: Sequence[RankedModel], scale: AxisScale) -> str:
    return sentences(
        "Cost of the calls at the prices of the run, per 1,000 commands.",
        "The axis is logarithmic; a cost of 0 has a number and no point." if scale.log else "",
        simulated_note(known),
        left_out_note(entries, known, f"no {COST.name}"),
    )
