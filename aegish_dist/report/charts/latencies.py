"""Where the time of calls goes: service, queue, rate limiter and backoff."""

from collections.abc import Sequence

from aegish_dist.report.charts import theme
from aegish_dist.report.charts.captions import (
    foreign_words,
    left_out_note,
    sentences,
    simulated_note,
)
from aegish_dist.report.charts.chart import Chart, LegendItem, NoChart
from aegish_dist.report.charts.layers import box_row, boxes, text_row, texts
from aegish_dist.report.charts.measures import LATENCY
from aegish_dist.report.charts.rows import AXIS_PX, RowChart, plan_rows
from aegish_dist.report.charts.scales import linear_scale
from aegish_dist.report.charts.text_width import text_width
from aegish_dist.report.layout import RankedModel
from aegish_dist.report.numbers import format_ms

_PARTS = ("service", "queue", "limiter", "backoff")
_PART_COLORS = (theme.PALETTE[0], theme.PALETTE[3], theme.PALETTE[4], theme.PALETTE[5])
_PART_WORDS = {
    "service": "service (the call)",
    "queue": "queue (in the worker)",
    "limiter": "rate limiter",
    "backoff": "backoff between attempts",
}


def latency_split(name: str, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return the mean of each part of the time that verdicts took.

    Args:
        entries: The models, in the order of the rows.
    """
    known = [entry for entry in entries if entry.latency("service", "mean") is not None]
    if not known:
        return NoChart(name, "no model has a latency")
    parts = [_means(entry) for entry in known]
    totals = [sum(each.values()) for each in parts]
    scale = linear_scale([0.0, *totals], AXIS_PX, least=0.0)
    plan = plan_rows(known, 24.0)
    bars, words = [], []
    for row, (each, total) in enumerate(zip(parts, totals, strict=True)):
        begin = 0.0
        for part, color in zip(_PARTS, _PART_COLORS, strict=True):
            end = begin + each.get(part, 0.0)
            if end > begin:
                box = (scale.along(begin), plan.y(row, 0.2), scale.along(end), plan.y(row, 0.8))
                bars.append({**box_row(*box, color), "part": part, "seconds": end - begin})
            begin = end
        words.append(text_row(scale.along(total) + 6, plan.y(row), _share(each, total)))
    chart = RowChart(
        name=name,
        title="Where the time of a verdict goes",
        caption=sentences(
            "Means over the answered verdicts of each model, in the order of the legend; at the "
            "end of a bar their sum, and how much of it is waiting on our side.",
            "" if any(each.keys() - {"service"} for each in parts) else "Waits are not known.",
            simulated_note(known),
            left_out_note(entries, known, f"no {LATENCY.name}"),
        ),
        description="; ".join(
            f"{foreign_words(entry.model)}: "
            + ", ".join(f"{part} {format_ms(1000 * value)}" for part, value in each.items())
            for entry, each in zip(known, parts, strict=True)
        )
        + ".",
        axis="mean time per verdict (seconds)",
        form=LATENCY.form,
        right=text_width("88.88 s (88 % waiting)", theme.TEXT_PX) + theme.MARGIN,
    )
    shown = [part for part in _PARTS if any(each.get(part) for each in parts)]
    legend = [
        LegendItem(_PART_WORDS[part], _PART_COLORS[_PARTS.index(part)], "square") for part in shown
    ]
    return chart.drawn(plan, scale, [boxes(bars), texts(words)], legend)


def _means(entry: RankedModel) -> dict[str, float]:
    """Return the mean of each known part in seconds."""
    seen = {part: entry.latency(part, "mean") for part in _PARTS}
    return {part: value / 1000 for part, value in seen.items() if value is not None}


def _share(parts: dict[str, float], total: float) -> str:
    waiting = total - parts.get("service", 0.0)
    share = f" ({100 * waiting / total:.0f} % waiting)" if total and waiting > 0 else ""
    return f"{format_ms(1000 * total)}{share}"
