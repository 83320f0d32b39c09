"""Where the time of calls goes: the spread of service time, and the parts of the whole."""

from collections.abc import Sequence

from aegish_dist.render.charts import theme
from aegish_dist.render.charts.captions import (
    foreign_words,
    left_out_note,
    sentences,
    simulated_note,
)
from aegish_dist.render.charts.chart import Chart, Layer, LegendItem, NoChart
from aegish_dist.render.charts.layers import (
    beside,
    box_row,
    boxes,
    pixels,
    spans,
    symbols,
    text_row,
    texts,
)
from aegish_dist.render.charts.measures import LATENCY
from aegish_dist.render.charts.rows import AXIS_PX, RowChart, plan_rows
from aegish_dist.render.charts.scales import AxisScale, amount_scale, linear_scale
from aegish_dist.render.charts.text_width import text_width
from aegish_dist.render.entries import RankedModel
from aegish_dist.render.numbers import format_ms

_STATISTICS = ("p50", "p90", "p99", "mean", "max")
_PARTS = ("service", "queue", "limiter", "backoff")
_PART_COLORS = (theme.PALETTE[0], theme.PALETTE[3], theme.PALETTE[4], theme.PALETTE[5])
_PART_WORDS = {
    "service": "service (the call)",
    "queue": "queue (in the worker)",
    "limiter": "rate limiter",
    "backoff": "backoff between attempts",
}
_DARK, _MIDDLE, _PALE = theme.PALETTE[0], theme.PALETTE[4], theme.BAR


def latency_distribution(name: str, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return median, mean, upper percentiles and maximum of service time.

    Args:
        entries: The models, in the order of the rows.
    """
    known = [entry for entry in entries if _service(entry)]
    if not known:
        return NoChart(name, "no model has a latency")
    seen = [_service(entry) for entry in known]
    scale = amount_scale([value for each in seen for value in each.values()], AXIS_PX)
    plan = plan_rows(known, 26.0)
    body = [(each, plan.y(row)) for row, each in enumerate(seen)]
    chart = RowChart(
        name=name,
        title="Service time of calls",
        caption=sentences(
            "From request to answer or failure of the last attempt, without waiting on our side; "
            "percentiles of all answered verdicts, no fitted distribution.",
            "The axis is logarithmic." if scale.log else "",
            simulated_note(known),
            left_out_note(entries, known, f"no {LATENCY.name}"),
        ),
        description=_in_words(known, seen),
        axis="service time (seconds)",
        form=LATENCY.form,
    )
    legend = [
        LegendItem("p50", theme.INK, "circle", filled=False),
        LegendItem("p50 to p90", _DARK),
        LegendItem("p90 to p99", _MIDDLE),
        LegendItem("p99 to max", _PALE),
        LegendItem("mean", theme.PALETTE[3], "diamond"),
    ]
    marks = [
        spans(_pairs(body, "p99", "max"), scale, 2, _PALE),
        spans(_pairs(body, "p90", "p99"), scale, 5, _MIDDLE),
        spans(_pairs(body, "p50", "p90"), scale, 9, _DARK),
        _medians(body, scale),
        symbols(
            [
                {"x": each["mean"], "y": y, "color": theme.PALETTE[3], "shape": "diamond"}
                for each, y in body
                if each.get("mean")
            ],
            beside("x", scale),
            pixels("y"),
            size=45,
        ),
    ]
    return chart.drawn(plan, scale, marks, legend)


def _service(entry: RankedModel) -> dict[str, float]:
    """Return the known statistics of service time in seconds; empty without a median."""
    seen = {name: entry.latency("service", name) for name in _STATISTICS}
    known = {name: value / 1000 for name, value in seen.items() if value is not None}
    return known if "p50" in known else {}


def _pairs(
    body: Sequence[tuple[dict[str, float], float]], low: str, high: str
) -> list[dict[str, float]]:
    return [
        {"low": seen[low], "high": seen[high], "y": y}
        for seen, y in body
        if seen.get(low) and seen.get(high)
    ]


def _medians(body: Sequence[tuple[dict[str, float], float]], scale: AxisScale) -> Layer:
    rows = [{"x": seen["p50"], "y": y, "color": theme.PAPER, "shape": "circle"} for seen, y in body]
    drawn = symbols(rows, beside("x", scale), pixels("y"), size=60)
    drawn["mark"] |= {"stroke": theme.INK, "strokeWidth": 1.5}
    return drawn


def _in_words(known: Sequence[RankedModel], seen: Sequence[dict[str, float]]) -> str:
    said = [
        f"{foreign_words(entry.model)}: "
        + ", ".join(f"{name} {format_ms(1000 * value)}" for name, value in each.items())
        for entry, each in zip(known, seen, strict=True)
    ]
    return "; ".join(said) + "."


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
