"""The plot with a panel for each model, and the heat map of categories."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from aegish_dist.core.text import filled, printable
from aegish_dist.report.charts.spec import (
    BAND,
    BAR,
    INK,
    LEGEND_LINES,
    LINE,
    PALETTE,
    PAPER,
    SHADES,
    SMALL_PX,
    SOFT,
    TEXT_PX,
    WHITE_FROM,
    Chart,
    Json,
    NoChart,
    fitted,
    layer,
    legend,
    number,
    shade_bounds,
    text_width,
    widest,
)
from aegish_dist.report.charts.words import (
    DETECTION,
    foreign_words,
    interval_note,
    left_out_note,
    percent,
    row_names,
    sentences,
    simulated_note,
)
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import RankedModel, category_names
from aegish_dist.report.numbers import format_count, format_span
from aegish_dist.statistics.rates import Estimate

_LINES = "split(datum.label, '\\n')"
"""Draws a label on several lines."""

_CELL_PX, _ROW_PX, _LINE_PX = 86.0, 34.0, 13.0
_HEADING_LINES = 3
_PARTS = re.compile("[^-]*-|[^-]+")


def heat_map(name: str, _: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return the detection rate of each model in each category."""
    categories = category_names(entries)
    known = [entry for entry in entries if entry.part("categories")]
    if not categories:
        return NoChart(name, "the run has no category")
    names = row_names(known)
    headings = [_heading(known, category) for category in categories]
    cells = [
        {"model": row, "category": heading} | _cell(percent(entry.category(category)))
        for row, entry in zip(names, known, strict=True)
        for category, heading in zip(categories, headings, strict=True)
    ]
    bounds = shade_bounds(each.category(name).value for each in known for name in categories)
    width = _CELL_PX * len(categories)
    body = {
        "width": width,
        "height": _ROW_PX * len(names),
        "encoding": {"x": _band("category", headings, True), "y": _band("model", names, False)},
        "layer": list(_cell_layers(cells, bounds)),
    }
    caption = sentences(
        "Malicious commands detected, in % of the scored ones of a category; darker is more. "
        "n: commands of the category.",
        interval_note([DETECTION], "Brackets"),
        simulated_note(known),
    )
    description = _heat_in_words(known, categories)
    left = widest(names) + 12
    title = "Detection rate by category (%)"
    return Chart(name, title, caption, description, body, left, left + width)


def _band(field: str, names: Sequence[str], on_top: bool) -> Json:
    look = {"title": None, "ticks": False, "domain": False, "labelPadding": 8}
    above = {"orient": "top", "labelAngle": 0, "labelOverlap": False, "labelExpr": _LINES}
    above |= {"labelLineHeight": _LINE_PX, "labelPadding": 8 + (_HEADING_LINES - 1) * _LINE_PX}
    scale = {"domain": list(names), "padding": 0}
    axis = look | (above if on_top else {})
    return {"field": field, "type": "nominal", "scale": scale, "axis": axis}


def _cell(seen: Estimate) -> dict[str, Any]:
    value = "\N{EN DASH}" if seen.value is None else f"{seen.value:.1f}"
    interval = "" if seen.ci_low is None else f"[{seen.ci_low:.0f}, {seen.ci_high:.0f}]"
    return {"rate": seen.value, "value": value, "interval": interval}


def _cell_layers(cells: Sequence[Mapping[str, Any]], bounds: Sequence[float]) -> Iterator[Json]:
    ends = [100 * bound for bound in bounds]
    steps = {"type": "threshold", "domain": ends, "range": SHADES}
    shade = {"field": "rate", "type": "quantitative", "scale": steps, "legend": None}
    empty = {"test": "datum.rate === null", "value": BAND}
    grid = {"stroke": PAPER, "strokeWidth": 1}
    yield layer(cells, "rect", grid, color={"condition": empty} | shade)
    white = min(ends[WHITE_FROM - 1 :], default=101)
    dark = {"test": f"datum.rate !== null && datum.rate >= {white:g}"}
    color = {"condition": dark | {"value": PAPER}, "value": INK}
    for field, style in (("value", {"dy": -5}), ("interval", {"dy": 8, "fontSize": SMALL_PX})):
        yield layer(cells, "text", style, text={"field": field, "type": "nominal"}, color=color)


def _heading(entries: Sequence[RankedModel], category: str) -> str:
    """Return the name of a category, on two lines where it is too wide for one, over its n."""
    sizes = (entry.category(category).n or 0 for entry in entries)
    size = "n " + format_span(sizes, "\N{EN DASH}")
    lines = [*_on_two_lines(printable(category)), size]
    return "\n" * (_HEADING_LINES - len(lines)) + "\n".join(lines)


def _on_two_lines(name: str) -> list[str]:
    """Break a name that is too wide after a hyphen, as far as that helps."""
    room = _CELL_PX - 6
    pieces = (fitted(piece, TEXT_PX, room) for piece in _PARTS.findall(name))
    first, *rest = filled(pieces, room, lambda line: text_width(line, TEXT_PX)) or [""]
    return [first, fitted("".join(rest), TEXT_PX, room)] if rest else [first]


def _heat_in_words(entries: Sequence[RankedModel], categories: Sequence[str]) -> str:
    said = []
    for entry in entries:
        seen = [(percent(entry.category(each)).value, each) for each in categories]
        known = [(value, category) for value, category in seen if value is not None]
        if known:
            (least, worst), (most, best) = min(known), max(known)
            said.append(
                f"{foreign_words(entry.model)}: from {least:.1f} % ({foreign_words(worst)}) to "
                f"{most:.1f} % ({foreign_words(best)})"
            )
    return "; ".join(said) + "."


_SIDE_PX, _COLUMNS = 170.0, 5
_BINS, _PERFECT = "verdicts in ten bins of confidence", "perfect calibration"
_OF_ALL = "share of the verdicts"


def reliability(name: str, _: ReportData, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return accuracy against stated confidence, a panel for each model."""
    stated = [entry for entry in entries if entry.reliability]
    if not stated:
        return NoChart(name, "no model states a confidence")
    names = row_names(stated, _SIDE_PX + 40)
    rows = list(chain.from_iterable(map(_bin_rows, stated, names)))
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    header = {"labelExpr": _LINES, "labelPadding": 4}
    body = {
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "nominal", "sort": panels, "header": header},
        "columns": _COLUMNS,
        "spacing": {"row": 24, "column": 24},
        "spec": {"width": _SIDE_PX, "height": _SIDE_PX, "layer": list(_bin_layers())},
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
    }
    caption = sentences(
        "Scored verdicts that state a confidence: mean confidence and share of correct ones in "
        "each of ten bins of equal width. Bars: 95 % confidence intervals (Wilson; exact where "
        "events are few).",
        simulated_note(stated),
        left_out_note(entries, stated, lambda _: "no confidence stated"),
    )
    width = min(len(stated), _COLUMNS) * (_SIDE_PX + 70)
    description = _bins_in_words(stated)
    return Chart(name, "Accuracy by stated confidence", caption, description, body, 34, width)


def _bin_rows(entry: RankedModel, name: str) -> Iterator[dict[str, Any]]:
    total, ece = sum(each.n for each in entry.reliability), entry.metric("ece").value
    words = f"n = {format_count(total)}" + ("" if ece is None else f", ECE {ece:.3f}")
    for each in entry.reliability:
        yield {
            "panel": f"{name}\n{words}",
            "confidence": 100 * (each.confidence or 0.0),
            "accuracy": 100 * (each.accuracy or 0.0),
            "ci_low": None if each.ci_low is None else 100 * max(each.ci_low, 0.0),
            "ci_high": None if each.ci_high is None else 100 * min(each.ci_high, 1.0),
            "n": each.n,
            "begin": 100 * each.low + 0.6,
            "end": 100 * each.high - 0.6,
            "share": max(13 * each.n / total, 0.3),  # in the unit of the axis
        }


def _bin_layers() -> Iterator[Json]:
    scale = {"domain": [0, 100], "nice": False}
    tall = {"values": [0, 25, 50, 75, 100], "labelOverlap": True, "labelFontSize": SMALL_PX}
    look = tall | {"titleFontSize": SMALL_PX, "ticks": False, "domain": False}
    look |= {"titlePadding": 4, "labelPadding": 6}
    x = number("confidence", "stated confidence (%)", scale=scale, **look)
    y = number("accuracy", "correct (%)", scale=scale, **look)
    yield _mark("rect", {"color": BAR}, x=number("begin"), x2={"field": "end"}, y=number("share"),
                y2={"datum": 0}, fill=_named(_OF_ALL, BAR, {"symbolType": "square"}))  # fmt: skip
    ends = [{"confidence": each, "accuracy": each} for each in (0, 100)]
    dashed = {"color": SOFT, "strokeDash": [5, 3], "strokeWidth": 1}
    yield layer(ends, "line", dashed, x=x, y=y, strokeDash=_named(_PERFECT, [5, 3], LEGEND_LINES))
    ticks: Json = {"x": x, "y": number("ci_low"), "y2": {"field": "ci_high"}}
    yield _mark("rule", {"color": LINE, "strokeWidth": 1.5}, **ticks)
    color = _named(_BINS, PALETTE[0], {"symbolType": "circle"})
    yield _mark("point", {"size": 40}, x=x, y=y, color=color)


def _mark(mark: str, style: Json, **encoding: Any) -> Json:
    """Return a layer that draws the rows of its panel."""
    return {"mark": {"type": mark} | style, "encoding": encoding}


def _named(words: str, look: Any, symbol: Json) -> Json:
    """Return the channel of a layer that stands in the legend under a name."""
    return legend({"datum": words}, {words: look}, **symbol)


def _bins_in_words(entries: Sequence[RankedModel]) -> str:
    said = []
    for entry in entries:
        most = max(entry.reliability, key=lambda each: each.n)
        total = format_count(sum(each.n for each in entry.reliability))
        said.append(
            f"{foreign_words(entry.model)}: {total} verdicts, most "
            f"with a confidence of {100 * (most.confidence or 0):.0f} %, of which "
            f"{100 * (most.accuracy or 0):.0f} % are correct"
        )
    return "; ".join(said) + "."
