"""The frame of a plot with two axes, and the labels of the points in it.

What is drawn lies in pixels from the top left corner: labels are placed before Vega-Lite draws
anything. A label stands right of its point or left of it, and moves up or down while it would cover
another label, a point, a line or the frame. A label that is away from its point has a line to it.
Nothing is random: the same points have the same labels at the same places.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from aegish_dist.core.text import JsonObject
from aegish_dist.report.charts.vega_lite import (
    LINE,
    PAPER,
    TEXT_PX,
    Chart,
    at_pixels,
    layer,
    nominal,
    widest,
)
from aegish_dist.report.charts.words import Measure


class PixelBox(Struct, frozen=True):
    """An upright rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "PixelBox") -> bool:
        """Whether two boxes have an area in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def holds(self, other: "PixelBox") -> bool:
        """Whether another box lies within this one."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom

    def grown(self, by: float) -> "PixelBox":
        """Return the box with a margin around it."""
        return PixelBox(
            self.left - by,
            self.top - by,
            self.right + by,
            self.bottom + by,
        )


class PixelLine(Struct, frozen=True):
    """A straight line."""

    x: float
    y: float
    x2: float
    y2: float

    def crosses(self, box: PixelBox) -> bool:
        """Whether a part of it lies within a box."""
        left, right = sorted((self.x, self.x2))
        top, bottom = sorted((self.y, self.y2))
        if not PixelBox(left, top, right, bottom).meets(box):
            return False
        # A line that leaves all corners on one side of it passes the box.
        corners = product((box.left, box.right), (box.top, box.bottom))
        sides = [self._side(x, y) for x, y in corners]
        return min(sides) < 0 < max(sides)

    def _side(self, x: float, y: float) -> float:
        """Return on which side of the line a place is, by the sign; 0 on it."""
        return (self.x2 - self.x) * (y - self.y) - (self.y2 - self.y) * (x - self.x)


# Half the width of the mark of a point.
MARK_PX = 5.5
# Height of a line of text.
LINE_PX = 1.2 * TEXT_PX
# Between a point and a label beside it.
_GAP_PX = 8.0
# Half lines of text that a label may be away from its point.
_STEPS = 40
# Within which points are at one place.
_ALIKE_PX = 2.0


class LabelledPoint(Struct, frozen=True):
    """A point and the lines of text that belong to it."""

    x: float
    y: float
    text: str

    @property
    def mark(self) -> PixelBox:
        return PixelBox(self.x, self.y, self.x, self.y).grown(MARK_PX)


class PlacedLabel(Struct, frozen=True):
    """A text and its place."""

    text: str
    box: PixelBox
    align: str
    """The side of the box that is towards the point, where the text begins or ends: left or right.
    Text may be narrower than measured."""
    line: PixelLine | None
    """From the label to its point; None where it stands beside the point."""

    @property
    def x(self) -> float:
        """Where the text stands, by its alignment."""
        return self.box.left if self.align == "left" else self.box.right

    @property
    def row(self) -> JsonObject:
        """The text and its place, for a layer."""
        return {"x": round(self.x, 1), "y": round(self.box.top + LINE_PX / 2, 1), "text": self.text}

    def covers(self, other: "PlacedLabel") -> bool:
        """Whether the text or the line of this one is in the way of the other's text."""
        roomy = other.box.grown(1.0)
        return roomy.meets(self.box) or (self.line is not None and self.line.crosses(roomy))


def place_labels(
    points: Sequence[LabelledPoint], area: PixelBox, lines: Sequence[PixelLine] = ()
) -> list[PlacedLabel]:
    """Place the labels of points; a label is left out where no free place is left for it."""
    marks = [point.mark for point in points]
    placed: list[PlacedLabel] = []
    for point in _places_of_points(points):
        for label in _candidates(point):
            if area.holds(label.box) and _is_free(label, marks, lines, placed):
                placed.append(label)
                break
    return placed


def _places_of_points(points: Sequence[LabelledPoint]) -> list[LabelledPoint]:
    """Join the texts of points at one place: lines to one place would not tell them apart."""
    places: dict[tuple[int, int], LabelledPoint] = {}
    for point in points:
        place = round(point.x / _ALIKE_PX), round(point.y / _ALIKE_PX)
        first = places.setdefault(place, point)
        if first is not point:
            places[place] = replace(first, text=f"{first.text}\n{point.text}")
    return sorted(places.values(), key=lambda point: (point.y, point.x))


def _candidates(point: LabelledPoint) -> Iterator[PlacedLabel]:
    """Yield the places for a label, the nearest first."""
    lines = point.text.split("\n")
    width = widest(lines)
    height = LINE_PX * len(lines)
    for step in range(_STEPS):
        away = step * LINE_PX / 2
        gap = _GAP_PX + away / 3  # room for the line
        for middle in (point.y + away, point.y - away):
            top = middle - height / 2
            bottom = middle + height / 2
            after = point.x + gap
            before = point.x - gap
            yield _label(point, PixelBox(after, top, after + width, bottom), "left")
            yield _label(point, PixelBox(before - width, top, before, bottom), "right")


def _label(point: LabelledPoint, box: PixelBox, align: str) -> PlacedLabel:
    label = PlacedLabel(point.text, box, align, None)
    if box.top <= point.y <= box.bottom:
        return label
    # From the corner that is nearest to the point.
    y = box.top if point.y < box.top else box.bottom
    line = PixelLine(label.x, y, point.x, point.y)
    return replace(label, line=line)


def _is_free(
    label: PlacedLabel,
    marks: Sequence[PixelBox],
    lines: Sequence[PixelLine],
    placed: Sequence[PlacedLabel],
) -> bool:
    """Whether a label hides no mark, is struck out by no line, and leaves other labels alone."""
    roomy = label.box.grown(1.5)
    if any(roomy.meets(mark) for mark in marks):
        return False
    if any(line.crosses(label.box) for line in lines):
        return False
    return not any(label.covers(other) or other.covers(label) for other in placed)


# Layers with labels, and the texts that have no room.
Labels = tuple[list[JsonObject], list[str]]
WIDTH, HEIGHT, TALL = 640.0, 400.0, 560.0
# What the upright axis takes on the left.
_LEFT_PX = 44.0
# The ratio of the greatest amount to the least one.
_LOGARITHMIC_FROM = 12


class Axis(Struct, frozen=True):
    """The ends of an axis, and its length."""

    measure: Measure
    low: float
    high: float
    pixels: float
    kind: str = "linear"  # or `log`, `sqrt`, as Vega-Lite names scales

    def along(self, value: float) -> float:
        """Return the distance of a value from the beginning of the axis, in pixels.

        What a logarithmic axis does not reach, such as 0, lies at its beginning.
        """
        if self.kind == "log":
            share = math.log(max(value / self.low, 1.0)) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        if self.kind == "sqrt":
            share = math.sqrt(share)
        return self.pixels * share

    def channel(self, field: str, **look: Any) -> JsonObject:
        """Return the channel of a field with this axis."""
        scale = {"type": self.kind, "domain": [self.low, self.high], "nice": False}
        axis = {"title": self.measure.axis, "tickCount": 8, "format": self.measure.form}
        return {"field": field, "type": "quantitative", "axis": axis | look, "scale": scale}


def axis_of(measure: Measure, values: Sequence[float], length: float) -> Axis:
    """Return an axis around some values, of rates from 0 to 100 at most.

    An axis of amounts is logarithmic where they span much; it then leaves out amounts of 0.
    """
    is_rate = bool(measure.metric)
    positive = [value for value in values if value > 0]
    if positive and not is_rate:
        least, greatest = min(positive), max(positive)
        if greatest / least >= _LOGARITHMIC_FROM:
            return Axis(measure, least / 1.25, greatest * 1.25, length, "log")
    low, high = min(values), max(values)
    margin = 0.1 * (max(high - low, high * 0.02) or 1.0)
    most = 100.0 if is_rate else math.inf
    return Axis(
        measure,
        max(low - margin, 0.0),
        min(high + margin, most),
        length,
    )


class Frame(Struct, frozen=True):
    """Both axes of a plot."""

    x: Axis
    y: Axis

    def place(self, across: float, up: float) -> tuple[float, float]:
        """Return where a pair of values lies."""
        return self.x.along(across), self.y.pixels - self.y.along(up)

    def line(
        self,
        across: float,
        up: float,
        across2: float,
        up2: float,
    ) -> PixelLine:
        """Return the line from one pair of values to another."""
        return PixelLine(*self.place(across, up), *self.place(across2, up2))

    def level(self, up: float) -> PixelLine:
        """Return the line at a value, from the left edge to the right one."""
        return self.line(self.x.low, up, self.x.high, up)

    def labels(self, points: Sequence[LabelledPoint], lines: Sequence[PixelLine]) -> Labels:
        """Return layers with the labels of points, and the texts that have no room.

        A label hides what is behind it, and a line leads from it to a point that is away.
        """
        area = PixelBox(0, 0, self.x.pixels, self.y.pixels)
        placed = place_labels(points, area, lines)
        boxes = [label.box for label in placed]
        leaders = [label.line for label in placed if label.line]
        layers = [
            in_pixels("rect", boxes, {"color": PAPER, "fillOpacity": 0.8}),
            in_pixels("rule", leaders, {"color": LINE, "strokeWidth": 0.8}),
        ]
        for align in ("left", "right"):
            style = {
                "align": align,
                "baseline": "middle",
                "lineBreak": "\n",
                "lineHeight": LINE_PX,
            }
            rows = [label.row for label in placed if label.align == align]
            layers.append(at_pixels(rows, "text", style, text=nominal("text")))
        shown = "\n".join(label.text for label in placed).split("\n")
        return layers, [point.text for point in points if point.text not in shown]

    def chart(
        self,
        name: str,
        title: str,
        caption: str,
        description: str,
        layers: Sequence[JsonObject],
        **look: Any,
    ) -> Chart:
        """Return a plot with both axes, over which layers lie in pixels."""
        x, y = self.x.channel("x", **look), self.y.channel("y")
        axes = layer([{}], "point", {"opacity": 0}, x=x, y=y)
        view = {
            "width": self.x.pixels,
            "height": self.y.pixels,
            "layer": [axes, *layers],
            "resolve": {"axis": {"x": "independent", "y": "independent"}},
        }
        return Chart(name, title, caption, description, view, _LEFT_PX, WIDTH + 80)


def in_pixels(
    mark: str, shapes: Iterable[PixelLine | PixelBox], style: JsonObject, **encoding: JsonObject
) -> JsonObject:
    """Return lines or boxes, from corner to corner."""
    rows = []
    for shape in shapes:
        ends = [round(end, 1) for end in astuple(shape)]
        rows.append(dict(zip(("x", "y", "x2", "y2"), ends, strict=True)))
    return at_pixels(
        rows,
        mark,
        style,
        x2={"field": "x2"},
        y2={"field": "y2"},
        **encoding,
    )
