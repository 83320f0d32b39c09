"""Placing the labels of points so that none covers another label, a point or the frame.

Each label takes the best free one of some two hundred places around its point, the most crowded
point first; then each is placed again among the others. The order is fixed and nothing is random:
the same points have the same labels at the same places. Which places are best follows Christensen,
Marks & Shieber 1995, "An empirical study of algorithms for point-feature label placement" (ACM ToG
14:203); a label that is away from its point has a line to it.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

from msgspec import Struct

from aegish_dist.report.charts.spec import TEXT_PX, widest


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
        return PixelBox(self.left - by, self.top - by, self.right + by, self.bottom + by)


class PixelLine(Struct, frozen=True):
    """A straight line."""

    x: float
    y: float
    x2: float
    y2: float

    def crosses(self, box: PixelBox) -> bool:
        """Whether a part of it lies within a box."""
        across, down = sorted((self.x, self.x2)), sorted((self.y, self.y2))
        beside = across[1] <= box.left or across[0] >= box.right
        if beside or down[1] <= box.top or down[0] >= box.bottom:
            return False
        corners = product((box.left, box.right), (box.top, box.bottom))
        sides = [self.side(x, y) for x, y in corners]
        return min(sides) < 0 < max(sides)

    def meets(self, other: "PixelLine") -> bool:
        """Whether two lines cross."""
        return (
            self.side(other.x, other.y) * self.side(other.x2, other.y2) < 0
            and other.side(self.x, self.y) * other.side(self.x2, self.y2) < 0
        )

    def side(self, x: float, y: float) -> float:
        """Return on which side of the line a place is, by the sign; 0 on it."""
        return (self.x2 - self.x) * (y - self.y) - (self.y2 - self.y) * (x - self.x)


MARK_PX = 5.5
"""Half the width of the mark of a point."""
LINE_PX = 1.2 * TEXT_PX
"""Height of a line of text."""
_RINGS = (8.0, 14.0, 22.0, 32.0, 44.0, 58.0, 74.0, 92.0, 112.0, 134.0, 160.0, 190.0, 225.0)
_DIRECTIONS = [2 * math.pi * step / 16 for step in range(16)]
_ALIKE = 2.0
"""Pixels within which points are at one place."""


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
    line: PixelLine | None
    """From the label to its point; None where it stands beside the point."""
    align: str
    """The side of the box that the text begins or ends at, towards the point: left, center or
    right. Text may be narrower than measured."""

    @property
    def x(self) -> float:
        """Where the text stands, by its alignment."""
        middle = (self.box.left + self.box.right) / 2
        return {"left": self.box.left, "right": self.box.right}.get(self.align, middle)

    def covers(self, other: "PlacedLabel") -> bool:
        """Whether the text or the line of this one is in the way of the other's text."""
        roomy = other.box.grown(1.0)
        return roomy.meets(self.box) or (self.line is not None and self.line.crosses(roomy))


def place_labels(
    points: Sequence[LabelledPoint],
    area: PixelBox,
    bars: Sequence[PixelLine] = (),
    lines: Sequence[PixelLine] = (),
) -> list[PlacedLabel]:
    """Place the labels of points; a label is left out where no free place is left for it.

    No label covers a point or one of the lines, and none covers a bar if it can help it. Points at
    one place share a label of several lines: strokes to one place would not tell them apart.
    """
    cells = defaultdict[tuple[int, int], list[LabelledPoint]](list)
    for point in points:
        cells[round(point.x / _ALIKE), round(point.y / _ALIKE)].append(point)
    joined = [
        LabelledPoint(alike[0].x, alike[0].y, "\n".join(point.text for point in alike))
        for alike in cells.values()
    ]

    def crowd(point: LabelledPoint) -> int:
        return sum(math.hypot(point.x - p.x, point.y - p.y) < 70 for p in joined)

    placed: dict[LabelledPoint, PlacedLabel] = {}
    for point in sorted(joined, key=crowd, reverse=True) * 2:
        others = [label for other, label in placed.items() if other != point]
        best, least = None, math.inf
        for label, distance in _candidates(point):
            struck = any(line.crosses(label.box) for line in lines)
            if distance < least and area.holds(label.box) and not struck:
                cost = distance + _cost(label, points, bars, others)
                best, least = (label, cost) if cost < least else (best, least)
        if best is not None:
            placed[point] = best
    return [placed[point] for point in joined if point in placed]


def _cost(
    label: PlacedLabel,
    points: Sequence[LabelledPoint],
    bars: Sequence[PixelLine],
    others: Sequence[PlacedLabel],
) -> float:
    """Return what a place costs besides its distance; infinite where something would be hidden."""
    roomy, line = label.box.grown(1.5), label.line
    if any(roomy.meets(point.mark) for point in points):
        return math.inf
    if any(other.covers(label) or label.covers(other) for other in others):
        return math.inf
    # An upright bar hides a letter, one along the text strikes it out.
    cost = sum(28.0 if bar.y == bar.y2 else 7.0 for bar in bars if bar.crosses(label.box))
    if line is not None:
        cost += 25.0 * sum(line.crosses(point.mark) for point in points)
        cost += 60.0 * sum(each.line is not None and line.meets(each.line) for each in others)
    return cost


def _candidates(point: LabelledPoint) -> Iterator[tuple[PlacedLabel, float]]:
    """Yield labels at the places around a point with the costs of these, the nearest ring first."""
    lines = point.text.split("\n")
    width, height = widest(lines), LINE_PX * len(lines)
    for ring, angle in product(_RINGS, _DIRECTIONS):
        across, down = math.cos(angle), math.sin(angle)
        left = point.x + ring * across + width * (_share(across) - 0.5)
        top = point.y + ring * down + height * (_share(down) - 0.5)
        box = PixelBox(left, top, left + width, top + height)
        x = min(max(point.x, box.left), box.right)
        y = min(max(point.y, box.top), box.bottom)
        at = (x - left) / (width or 1)
        align = "left" if at < 0.34 else "right" if at > 0.66 else "center"
        away = math.hypot(x - point.x, y - point.y)
        line = PixelLine(x, y, point.x, point.y) if away > 11 else None
        preference = 1.5 * (across < -0.1) + 1.0 * (abs(across) < 0.1) + 0.5 * (down > 0.1)
        yield PlacedLabel(point.text, box, line, align), ring + preference


def _share(direction: float) -> float:
    """Return how far the middle of a box lies from its near edge, as a share of its width."""
    return max(-0.5, min(0.5, direction * 0.75))
