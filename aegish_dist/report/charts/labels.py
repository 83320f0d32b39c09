"""Placing the labels of points so that none covers another label, a point or the frame.

Each label takes the best free one of some two hundred places around its point, the most crowded
point first; then each is placed again among the others. The order is fixed and nothing is random:
the same points have the same labels at the same places. Which places are best follows Christensen,
Marks & Shieber 1995, "An empirical study of algorithms for point-feature label placement" (ACM ToG
14:203); a label that is away from its point has a line to it.
"""

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

from aegish_dist.report.charts.spec import text_width


class PixelBox(Struct, frozen=True):
    """An upright rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "PixelBox") -> bool:
        """Whether two boxes have an area in common."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def holds(self, other: "PixelBox") -> bool:
        """Whether another box lies within this one."""
        return (
            self.left <= other.left
            and self.top <= other.top
            and other.right <= self.right
            and other.bottom <= self.bottom
        )

    def grown(self, by: float) -> "PixelBox":
        """Return the box with a margin around it."""
        return PixelBox(self.left - by, self.top - by, self.right + by, self.bottom + by)

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Return its place that is nearest to another place."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)


class PixelLine(Struct, frozen=True):
    """A straight line."""

    x: float
    y: float
    x2: float
    y2: float

    @property
    def length(self) -> float:
        return math.hypot(self.x2 - self.x, self.y2 - self.y)

    def crosses(self, box: PixelBox) -> bool:
        """Whether a part of it lies within a box."""
        if (
            max(self.x, self.x2) <= box.left
            or min(self.x, self.x2) >= box.right
            or max(self.y, self.y2) <= box.top
            or min(self.y, self.y2) >= box.bottom
        ):
            return False
        sides = [self.side(x, y) for x in (box.left, box.right) for y in (box.top, box.bottom)]
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
_RINGS = (8.0, 14.0, 22.0, 32.0, 44.0, 58.0, 74.0, 92.0, 112.0, 134.0, 160.0, 190.0, 225.0, 270.0,
          330.0, 400.0, 500.0, 620.0)  # fmt: skip
_DIRECTIONS = 16
_LINE_FROM = 11.0
"""From this distance on a label has a line to its point."""
_CROWDED = 70.0
_ALIKE = 2.0
"""Pixels within which points have their labels in one block."""
_LINE = 1.2
_CROSSED, _STRUCK_OUT = 7.0, 28.0
"""Costs of standing on an upright line, and on one along the text."""
_ROUNDS = 2


class LabelledPoint(Struct, frozen=True):
    """A point and the text that belongs to it."""

    x: float
    y: float
    text: str


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

    @property
    def y(self) -> float:
        """The middle of the line of text."""
        return (self.box.top + self.box.bottom) / 2


class _Block(Struct, frozen=True):
    """Points at one place, whose labels stand below each other."""

    x: float
    y: float
    width: float
    height: float
    members: Sequence[int]


def place_labels(
    points: Sequence[LabelledPoint],
    area: PixelBox,
    size: float,
    *,
    obstacles: Sequence[PixelBox] = (),
    bars: Sequence[PixelLine] = (),
) -> list[PlacedLabel | None]:
    """Place a label for each point; None where no free place is left.

    No label covers a point or an obstacle, and none covers a bar if it can help it.
    """
    marks = [PixelBox(p.x, p.y, p.x, p.y).grown(MARK_PX) for p in points]
    blocks = _blocks(points, size)
    crowds = [sum(_distance(one, other) < _CROWDED for other in blocks) for one in blocks]
    placed: dict[int, PlacedLabel] = {}
    for _ in range(_ROUNDS):
        for place in sorted(range(len(blocks)), key=lambda at: (-crowds[at], at)):
            others = [label for at, label in placed.items() if at != place]
            around = _Surroundings(area, [*marks, *obstacles], bars, others)
            best = around.best(blocks[place])
            if best is not None:
                placed[place] = best
    found: list[PlacedLabel | None] = [None] * len(points)
    for at, label in placed.items():
        step = blocks[at].height / len(blocks[at].members)
        for line, member in enumerate(blocks[at].members):
            top = label.box.top + line * step
            box = PixelBox(label.box.left, top, label.box.right, top + step - 0.01)
            leader = None if line else label.line
            found[member] = PlacedLabel(points[member].text, box, leader, label.align)
    return found


def _distance(one: LabelledPoint | _Block, other: LabelledPoint | _Block) -> float:
    return math.hypot(one.x - other.x, one.y - other.y)


def _blocks(points: Sequence[LabelledPoint], size: float) -> list[_Block]:
    """Join points that lie on each other: lines to one place would not tell them apart."""
    joined: list[list[int]] = []
    for place, point in enumerate(points):
        near = (each for each in joined if _distance(points[each[0]], point) < _ALIKE)
        found = next(near, None)
        if found is None:
            joined.append([place])
        else:
            found.append(place)
    return [
        _Block(
            points[members[0]].x,
            points[members[0]].y,
            max(text_width(points[member].text, size) for member in members),
            size * _LINE * len(members),
            members,
        )
        for members in joined
    ]


class _Surroundings(Struct, frozen=True):
    """All that a label has to look out for."""

    area: PixelBox
    marks: Sequence[PixelBox]
    bars: Sequence[PixelLine]
    placed: Sequence[PlacedLabel]

    def best(self, block: _Block) -> PlacedLabel | None:
        """Return the label at the free place that costs least."""
        best, least = None, math.inf
        for box, ring, distance in _candidates(block):
            if ring >= least:
                break
            if distance < least and self.area.holds(box):
                label = _label(block, box)
                if self._allows(label):
                    cost = distance + self._penalty(label)
                    best, least = (label, cost) if cost < least else (best, least)
        return best

    def _allows(self, label: PlacedLabel) -> bool:
        """Whether a label covers nothing that has to be seen."""
        roomy, line = label.box.grown(1.5), label.line
        return not any(roomy.meets(mark) for mark in self.marks) and not any(
            roomy.meets(other.box)
            or (other.line is not None and other.line.crosses(roomy))
            or (line is not None and line.crosses(other.box.grown(1)))
            for other in self.placed
        )

    def _penalty(self, label: PlacedLabel) -> float:
        """Return what a place costs besides its distance."""
        covered = [bar for bar in self.bars if bar.crosses(label.box)]
        cost = sum(_STRUCK_OUT if bar.y == bar.y2 else _CROSSED for bar in covered)
        if label.line is not None:
            cost += 25.0 * sum(label.line.crosses(mark) for mark in self.marks)
            others = [other.line for other in self.placed if other.line is not None]
            cost += 60.0 * sum(label.line.meets(other) for other in others)
        return cost


def _candidates(block: _Block) -> Iterator[tuple[PixelBox, float, float]]:
    """Yield places around a point with their ring and cost, the nearest ring first."""
    width, height = block.width, block.height
    for ring in _RINGS:
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * step / _DIRECTIONS
            across, down = math.cos(angle), math.sin(angle)
            x = block.x + ring * across + width * _share(across)
            y = block.y + ring * down + height * _share(down)
            box = PixelBox(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            preference = 1.5 * (across < -0.1) + 1.0 * (abs(across) < 0.1) + 0.5 * (down > 0.1)
            yield box, ring, ring + preference


def _share(direction: float) -> float:
    """Return how far the middle of a box lies from its near edge, as a share of its width."""
    return max(-0.5, min(0.5, direction * 0.75))


def _label(block: _Block, box: PixelBox) -> PlacedLabel:
    x, y = box.nearest(block.x, block.y)
    at = (x - box.left) / (box.right - box.left or 1)
    align = "left" if at < 0.34 else "right" if at > 0.66 else "center"
    line = PixelLine(x, y, block.x, block.y)
    return PlacedLabel("", box, line if line.length > _LINE_FROM else None, align)
