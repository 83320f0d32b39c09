"""The models x commands grid of the page, with every verdict."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """The verdicts of a run, for the page."""


def grid_section(grid: Grid) -> Iterator[str]:
    """Yield the section of the grid, with its data."""
    del grid
    yield from ()
