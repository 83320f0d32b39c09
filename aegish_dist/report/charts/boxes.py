"""Rectangles and lines on a page, in pixels from the top left corner."""

import math
from dataclasses import dataclass


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
        """Its length."""
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
