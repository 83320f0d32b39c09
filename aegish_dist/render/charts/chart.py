"""A plot: its specification, what it says in words, and its drawing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A plot as SVG."""

    name: str
    """Short name, such as `score-by-cost`; a file name and an anchor."""
    title: str
    """One line, without the run."""
    caption: str
    """Names what is drawn, its unit and the interval of its bars; may hold foreign text."""
    description: str
    """The finding in words, for those who do not see it; may hold foreign text."""
    svg: str
    """One `<svg>` element, without style attributes, scripts, links or images."""
