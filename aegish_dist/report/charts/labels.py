"""Placing the labels of points so that none covers another label, a point or the frame.

Each label takes the best free one of some two hundred places around its point, the most crowded
point first; then each is placed again among the others. The order is fixed and nothing is random:
the same points have the same labels at the same places. Which places are best follows Christensen,
Marks & Shieber 1995, "An empirical study of algorithms for point-feature label placement" (ACM ToG
14:203); a label that is away from its point has a line to it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.report.charts.spec import text_width


@dataclass(frozen=True, slots=True)
class PixelBox:
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


@dataclass(frozen=True, slots=True)
class PixelLine:
    """A straight line."""

    x: float
    y: float
    x2: float
    y2: float

    @property
    def length(self) -> float:
        return math.hypot(self.x2 - self.x, self.y2 - self.y)

    def crosses(self, box: PixelBox) -> bool:
        """Whether a part of it lies within a box (Liang & Barsky 1984, ACM ToG 3:1)."""
        if (
            max(self.x, self.x2) <= box.left
            or min(self.x, self.x2) >= box.right
            or max(self.y, self.y2) <= box.top
            or min(self.y, self.y2) >= box.bottom
        ):
            return False  # nearly always, and at a third of the time
        enters, leaves = 0.0, 1.0
        dx, dy = self.x2 - self.x, self.y2 - self.y
        for slope, room in (
            (-dx, self.x - box.left),
            (dx, box.right - self.x),
            (-dy, self.y - box.top),
            (dy, box.bottom - self.y),
        ):
            if slope == 0:
                if room <= 0:
                    return False
            elif slope < 0:
                enters = max(enters, room / slope)
            else:
                leaves = min(leaves, room / slope)
        return enters < leaves

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
_RINGS = (8.0, 14.0, 22.0, 32.0, 44.0, 58.0, 74.0, 92.0, 112.0, 134.0, 160.0, 190.0)
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


@dataclass(frozen=True, slots=True)
class LabelledPoint:
    """A point and the text that belongs to it."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class PlacedLabel:
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


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """All that a label has to look out for."""

    area: PixelBox
    marks: Sequence[PixelBox]
    bars: Sequence[PixelLine]
    placed: Sequence[PlacedLabel]

    def allows(self, label: PlacedLabel) -> bool:
        """Whether a label covers nothing that has to be seen."""
        roomy = label.box.grown(1.5)
        if not self.area.holds(label.box) or any(roomy.meets(mark) for mark in self.marks):
            return False
        line = label.line
        return not any(
            roomy.meets(other.box)
            or (other.line is not None and other.line.crosses(roomy))
            or (line is not None and line.crosses(other.box.grown(1)))
            for other in self.placed
        )

    def penalty(self, label: PlacedLabel) -> float:
        """Return what a place costs besides its distance."""
        covered = [bar for bar in self.bars if bar.crosses(label.box)]
        cost = sum(_STRUCK_OUT if bar.y == bar.y2 else _CROSSED for bar in covered)
        if label.line is not None:
            cost += 25.0 * sum(label.line.crosses(mark) for mark in self.marks)
            others = [other.line for other in self.placed if other.line is not None]
            cost += 60.0 * sum(label.line.meets(other) for other in others)
        return cost


def place_labels(
    points: Sequence[LabelledPoint],
    area: PixelBox,
    size: float,
    *,
    obstacles: Sequence[PixelBox] = (),
    bars: Sequence[PixelLine] = (),
) -> list[PlacedLabel | None]:
    """Place the labels of some points.

    Args:
        obstacles: What no label may cover besides points, such as the label of a line.
        bars: What labels had better not cover, such as bars of intervals.

    Returns:
        One for each point, in their order; None where no free place is left.
    """
    marks = [PixelBox(p.x, p.y, p.x, p.y).grown(MARK_PX) for p in points]
    blocks = _blocks(points)
    placed: list[PlacedLabel | None] = [None] * len(blocks)
    order = sorted(range(len(blocks)), key=lambda place: (-_crowd(blocks, place), place))
    for _ in range(_ROUNDS):
        for place in order:
            others = [each for at, each in enumerate(placed) if each is not None and at != place]
            around = _Surroundings(area, [*marks, *obstacles], bars, others)
            placed[place] = _best(blocks[place], size, around) or placed[place]
    return _split(points, blocks, placed)


@dataclass(frozen=True, slots=True)
class _Block:
    """Points at one place, whose labels stand below each other."""

    x: float
    y: float
    members: tuple[int, ...]
    texts: tuple[str, ...]

    def size(self, font: float) -> tuple[float, float]:
        return max(text_width(text, font) for text in self.texts), font * _LINE * len(self.texts)


def _blocks(points: Sequence[LabelledPoint]) -> list[_Block]:
    """Join points that lie on each other: lines to one place would not tell them apart."""
    blocks: list[_Block] = []
    for place, point in enumerate(points):
        for at, block in enumerate(blocks):
            if math.hypot(block.x - point.x, block.y - point.y) < _ALIKE:
                members, texts = (*block.members, place), (*block.texts, point.text)
                blocks[at] = _Block(block.x, block.y, members, texts)
                break
        else:
            blocks.append(_Block(point.x, point.y, (place,), (point.text,)))
    return blocks


def _split(
    points: Sequence[LabelledPoint],
    blocks: Sequence[_Block],
    placed: Sequence[PlacedLabel | None],
) -> list[PlacedLabel | None]:
    """Return the labels of the points; the first one of a block has its line."""
    found: list[PlacedLabel | None] = [None] * len(points)
    for block, label in zip(blocks, placed, strict=True):
        if label is None:
            continue
        height = (label.box.bottom - label.box.top) / len(block.members)
        for at, place in enumerate(block.members):
            top = label.box.top + at * height
            box = PixelBox(label.box.left, top, label.box.right, top + height - 0.01)
            line = None if at else label.line
            found[place] = PlacedLabel(points[place].text, box, line, label.align)
    return found


def _crowd(blocks: Sequence[_Block], place: int) -> int:
    block = blocks[place]
    return sum(math.hypot(b.x - block.x, b.y - block.y) < _CROWDED for b in blocks)


def _best(point: _Block, size: float, around: _Surroundings) -> PlacedLabel | None:
    best, least = None, math.inf
    for box, ring, distance in _candidates(point, size):
        if ring >= least:
            break
        if distance >= least or not around.area.holds(box):
            continue
        label = _label(point, box)
        if around.allows(label):
            cost = distance + around.penalty(label)
            if cost < least:
                best, least = label, cost
    if best is not None:
        return best
    return next((each for each in _anywhere(point, size, around.area) if around.allows(each)), None)


def _candidates(point: _Block, size: float) -> Iterator[tuple[PixelBox, float, float]]:
    """Yield places around a point with their ring and cost, the nearest ring first."""
    width, height = point.size(size)
    for ring in _RINGS:
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * step / _DIRECTIONS
            across, down = math.cos(angle), math.sin(angle)
            x = point.x + ring * across + width * _share(across)
            y = point.y + ring * down + height * _share(down)
            box = PixelBox(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            preference = 1.5 * (across < -0.1) + 1.0 * (abs(across) < 0.1) + 0.5 * (down > 0.1)
            yield box, ring, ring + preference


def _share(direction: float) -> float:
    """Return how far the middle of a box lies from its near edge, as a share of its width."""
    return max(-0.5, min(0.5, direction * 0.75))


def _anywhere(point: _Block, size: float, area: PixelBox) -> list[PlacedLabel]:
    """Return places all over the plot, the nearest first."""
    width, height = point.size(size)
    columns = int(max(area.right - area.left - width, 0) // 12)
    rows = int(max(area.bottom - area.top - height, 0) // 5)
    found = []
    for row in range(rows + 1):
        for column in range(columns + 1):
            left, top = area.left + 12 * column, area.top + 5 * row
            found.append(_label(point, PixelBox(left, top, left + width, top + height)))
    return sorted(found, key=lambda each: each.line.length if each.line else 0.0)


def _label(point: _Block, box: PixelBox) -> PlacedLabel:
    x, y = box.nearest(point.x, point.y)
    width = box.right - box.left
    at = (x - box.left) / width if width else 0.0
    align = "left" if at < 0.34 else "right" if at > 0.66 else "center"
    line = PixelLine(x, y, point.x, point.y)
    return PlacedLabel(point.texts[0], box, line if line.length > _LINE_FROM else None, align)
