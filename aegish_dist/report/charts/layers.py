"""Layers of a specification: points, bars of intervals, lines and text.

Foreign text stands in values of data alone, never in the name of a field or in an expression. Where
a coordinate is in pixels of the area, its scale is None.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aegish_dist.report.charts.boxes import PixelLine
from aegish_dist.report.charts.chart import Layer
from aegish_dist.report.charts.scales import AxisScale
from aegish_dist.report.charts.theme import INK, TEXT_PX

Row = Mapping[str, Any]
"""Values of one mark, by our names of fields."""
Encoding = dict[str, Any]


def layer(rows: Sequence[Row], mark: Mapping[str, Any], **encoding: Any) -> Layer:
    """Return a layer."""
    return {"data": {"values": list(rows)}, "mark": dict(mark), "encoding": encoding}


def pixels(field: str) -> Encoding:
    """Return the channel of a field that is in pixels."""
    return {"field": field, "type": "quantitative", "scale": None, "axis": None}


def on_axis(field: str, scale: AxisScale, title: str, form: str, *, grid: bool = True) -> Encoding:
    """Return the channel of a field on an axis.

    Args:
        form: How ticks are written, in d3's words.
        grid: Whether lines go from the ticks through the plot, behind everything else.
    """
    axis = {"title": title, "values": list(scale.ticks), "format": form, "grid": grid}
    return {"field": field, "type": "quantitative", "scale": scale.scale, "axis": axis}


def beside(field: str, scale: AxisScale) -> Encoding:
    """Return the channel of a field on a scale whose axis another layer has."""
    return {"field": field, "type": "quantitative", "scale": scale.scale, "axis": None}


def axes(**scales: Encoding) -> Layer:
    """Return the layer that has the axes of a plot and draws nothing else.

    Args:
        scales: Channels of `on_axis`; a channel that is absent is in pixels.
    """
    row = {name: channel["scale"]["domain"][0] for name, channel in scales.items()}
    encoding = {name: scales.get(name, pixels(name)) for name in ("x", "y")}
    mark = {"type": "point", "opacity": 0, "size": 0, "color": INK}
    return layer([{"x": 0, "y": 0} | row], mark, **encoding)


def spans(rows: Sequence[Row], scale: AxisScale, width: float, color: str = "") -> Layer:
    """Return horizontal lines from `low` to `high` of a scale at `y` in pixels.

    Args:
        rows: With their own `color` unless one is given.
        color: Of all lines; empty: the rows have theirs.
    """
    mark = {"type": "rule", "strokeWidth": width} | ({"color": color} if color else {})
    own = {} if color else {"color": literal("color")}
    x = beside("low", scale)
    return layer(rows, mark, x=x, x2={"field": "high"}, y=pixels("y"), **own)


def boxes(rows: Sequence[Row]) -> Layer:
    """Return filled boxes in pixels: `x`, `y`, `x2`, `y2` and `color` of each row."""
    return layer(
        rows,
        {"type": "rect", "strokeWidth": 0},
        x=pixels("x"),
        y=pixels("y"),
        x2={"field": "x2"},
        y2={"field": "y2"},
        color=literal("color"),
    )


def box_row(x: float, y: float, x2: float, y2: float, color: str) -> Row:
    """Return the values of one box.

    Args:
        y: Upper side.
    """
    return {"x": round(x, 1), "y": round(y, 1), "x2": round(x2, 1), "y2": round(y2, 1),
            "color": color}  # fmt: skip


def symbols(rows: Sequence[Row], x: Encoding, y: Encoding, *, size: float = 75) -> Layer:
    """Return points whose rows have their own `color` and `shape`."""
    return layer(
        rows,
        {"type": "point", "filled": True, "opacity": 1, "size": size},
        x=x,
        y=y,
        color=literal("color"),
        shape=literal("shape"),
    )


def literal(field: str) -> Encoding:
    """Return the channel of a field that holds colours, shapes or widths themselves."""
    return {"field": field, "type": "nominal", "scale": None, "legend": None}


def lines(rows: Sequence[PixelLine], color: str, width: float = 1.0) -> Layer:
    """Return straight lines in pixels."""
    data = [
        {"x": round(each.x, 1), "y": round(each.y, 1), "x2": round(each.x2, 1),
         "y2": round(each.y2, 1)}
        for each in rows
    ]  # fmt: skip
    return layer(
        data,
        {"type": "rule", "color": color, "strokeWidth": width},
        x=pixels("x"),
        y=pixels("y"),
        x2={"field": "x2"},
        y2={"field": "y2"},
    )


def text_row(x: float, y: float, text: str, color: str = INK) -> Row:
    """Return the values of one text.

    Args:
        y: Pixels from its top, of the middle of the line.
    """
    return {"x": round(x, 1), "y": round(y, 1), "text": text, "color": color}


def texts(
    rows: Sequence[Row], *, align: str = "left", size: float = TEXT_PX, bold: bool = False
) -> Layer:
    """Return texts at places in pixels.

    Args:
        align: Which part of a text its `x` is: left, center or right.
    """
    mark = {"type": "text", "align": align, "baseline": "middle", "fontSize": size}
    return layer(
        rows,
        mark | ({"fontWeight": "bold"} if bold else {}),
        x=pixels("x"),
        y=pixels("y"),
        text={"field": "text", "type": "nominal"},
        color=literal("color"),
    )
