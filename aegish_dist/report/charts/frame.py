"""From a panel to a whole specification: title above, caption and small print below.

Everything is placed in pixels: sizes of texts are known beforehand (`text_width`), so nothing is
left to the layout of Vega, and the same chart has the same size wherever it is drawn.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from aegish_dist.report.charts import theme
from aegish_dist.report.charts.chart import Chart, Layer, LegendItem, Panel
from aegish_dist.report.charts.layers import layer, literal, pixels, text_row, texts
from aegish_dist.report.charts.text_width import text_width, wrapped

_SYMBOL_PX = 18
_GAP_PX = 16
_LEGEND_LINE_PX = 18


def whole_specification(chart: Chart, small_print: str) -> dict[str, Any]:
    """Return a chart with its title, its caption and where it comes from."""
    panel = chart.panel
    room = panel.left + panel.width + panel.right - 2 * theme.MARGIN
    title = list(wrapped(chart.title, theme.TITLE_PX * 1.2, room))
    caption = list(wrapped(chart.caption, theme.TEXT_PX, room))
    small = list(wrapped(small_print, theme.SMALL_PX, room))
    rows = _legend_rows(panel.legend, room)
    above = theme.MARGIN + len(title) * theme.TITLE_PX * theme.LEADING
    legend_height = len(rows) * _LEGEND_LINE_PX
    top = above + 4 + legend_height + panel.top
    left = theme.MARGIN - panel.left
    caption_at = panel.height + panel.bottom + 8
    small_at = caption_at + len(caption) * theme.TEXT_PX * theme.LEADING + 4
    end = small_at + len(small) * theme.SMALL_PX * theme.LEADING + theme.MARGIN - 6
    header = [
        *_paragraph(title, left, theme.MARGIN - top, theme.TITLE_PX, theme.INK, bold=True),
        *_legend(rows, left, above + 4 - top),
        *_paragraph(caption, left, caption_at, theme.TEXT_PX, theme.INK),
        *_paragraph(small, left, small_at, theme.SMALL_PX, theme.SOFT),
    ]
    return {"description": chart.description} | _framed(panel, header, top, end - panel.height)


def bare_specification(chart: Chart) -> dict[str, Any]:
    """Return a chart without title and caption, for a page that shows them as text."""
    panel = chart.panel
    rows = _legend_rows(panel.legend, panel.left + panel.width + panel.right - 2 * theme.MARGIN)
    top = 4 + len(rows) * _LEGEND_LINE_PX + panel.top
    legend = list(_legend(rows, theme.MARGIN - panel.left, 4 - top))
    framed = _framed(panel, legend, top, panel.bottom)
    return framed | {"background": None}


def _framed(panel: Panel, around: Sequence[Layer], top: float, bottom: float) -> dict[str, Any]:
    """Return a specification; margins are whole pixels, as Vega rounds sizes of pictures."""
    return {
        "$schema": theme.SCHEMA,
        "background": theme.PAPER,
        "autosize": {"type": "none"},
        "width": round(panel.width),
        "height": round(panel.height),
        "padding": {
            "left": round(panel.left),
            "right": round(panel.right),
            "top": round(top),
            "bottom": round(bottom),
        },
        "layer": [*panel.layers, *around],
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
        "config": theme.config(),
    }


def _paragraph(
    lines: Sequence[str], x: float, y: float, size: float, color: str, *, bold: bool = False
) -> Iterator[Layer]:
    leading = size * theme.LEADING
    rows = [text_row(x, y + leading * (at + 0.5), text, color) for at, text in enumerate(lines)]
    if rows:
        yield texts(rows, size=size, bold=bold)


def _legend_rows(items: Sequence[LegendItem], room: float) -> list[list[LegendItem]]:
    rows: list[list[LegendItem]] = []
    used = room
    for item in items:
        width = _item_width(item)
        if used + width > room:
            rows.append([])
            used = 0.0
        rows[-1].append(item)
        used += width
    return rows


def _item_width(item: LegendItem) -> float:
    return _SYMBOL_PX + text_width(item.text, theme.TEXT_PX) + _GAP_PX


def _legend(rows: Sequence[Sequence[LegendItem]], left: float, top: float) -> Iterator[Layer]:
    symbols, strokes, words = [], [], []
    for line, items in enumerate(rows):
        x, y = left, top + _LEGEND_LINE_PX * (line + 0.4)
        for item in items:
            words.append(text_row(x + _SYMBOL_PX, y, item.text))
            place = {"x": round(x, 1), "y": round(y, 1), "color": item.color}
            if item.shape == "stroke":
                strokes.append(place | {"x2": round(x + 14, 1), "dash": list(item.dash)})
            else:
                fill = item.color if item.filled else theme.PAPER
                symbols.append(place | {"x": round(x + 7, 1), "shape": item.shape, "fill": fill})
            x += _item_width(item)
    if symbols:
        yield layer(
            symbols,
            {"type": "point", "opacity": 1, "size": 75, "strokeWidth": 1.5, "filled": False},
            x=pixels("x"),
            y=pixels("y"),
            stroke=literal("color"),
            fill=literal("fill"),
            shape=literal("shape"),
        )
    for stroke in strokes:
        mark = {"type": "rule", "strokeWidth": 1.5, "strokeDash": stroke.pop("dash") or [1, 0]}
        yield layer(
            [stroke],
            mark,
            x=pixels("x"),
            y=pixels("y"),
            x2={"field": "x2"},
            color=literal("color"),
        )
    if words:
        yield texts(words)
