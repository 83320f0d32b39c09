"""A plot: its specification, what it says in words, and its drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Layer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LegendItem:
    """One entry of a legend."""

    text: str
    color: str
    shape: str = "stroke"
    """Name of a symbol of Vega; `stroke` is a short line."""
    dash: tuple[int, ...] = ()
    """Lengths of the strokes and gaps of a line; empty: unbroken."""
    filled: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    """The drawing of a plot: an area with margins for its axes, and what is in it."""

    width: float
    height: float
    left: float
    """Pixels that axis, labels and margin take on the left."""
    right: float
    top: float
    bottom: float
    layers: Sequence[Layer]
    legend: Sequence[LegendItem] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot before it is drawn."""

    name: str
    """Short name, such as `score-by-cost`; a file name and an anchor."""
    title: str
    caption: str
    """Names what is drawn, its unit, n and the interval of its bars; may hold foreign text."""
    description: str
    """The finding in words, for those who do not see it; may hold foreign text."""
    panel: Panel


@dataclass(frozen=True, slots=True)
class NoChart:
    """A plot for which a report has no data."""

    name: str
    reason: str
    """Why there is nothing to draw, as a part of a sentence; may hold foreign text."""


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A plot as SVG."""

    name: str
    """Short name, such as `score-by-cost`; a file name and an anchor."""
    title: str
    caption: str
    """Names what is drawn, its unit and the interval of its bars; may hold foreign text."""
    description: str
    """The finding in words, for those who do not see it; may hold foreign text."""
    svg: str
    """One `<svg>` element, without style attributes, scripts, links or images."""
