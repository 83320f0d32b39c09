"""Tables of the smaller commands, all alike.

Terminals get them from rich, which knows how to fold; what reads a file or a pipe gets columns of
whole names, and waits 30 ms less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from aegish_dist.cli.printing import (
    errors_are_on_terminal,
    note_lines,
    output_is_terminal,
    standard_output,
)
from aegish_dist.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GAP = 3
FILE_WIDTH = 160
"""Columns when the output is no terminal, so that what reads it sees whole names."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as text; long names are folded or take their room, never cut."""

    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    """Cells; foreign text is made printable when it is drawn."""
    numbers: Sequence[str] = ()
    title: str = ""
    """Stands above, when given."""
    caption: str = ""
    """Stands below, when given."""


def print_table(table: TextTable) -> None:
    """Print a table on standard output."""
    if output_is_terminal():
        terminal_console().print(_drawn(table))
    else:
        standard_output().write(in_columns(table) + "\n")


def note_table(table: TextTable) -> None:
    """Print a table on standard error."""
    if errors_are_on_terminal():
        terminal_console(stderr=True).print(_drawn(table))
    else:
        note_lines(in_columns(table))


def in_columns(table: TextTable) -> str:
    """Return a table as lines of padded cells."""
    headings = (*table.columns, *table.numbers)
    rows = [headings, *(tuple(map(printable, row)) for row in table.rows)]
    widths = [max(map(_cells, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths, len(table.columns)) for row in rows]
    lines.insert(1, "-" * (sum(widths) + GAP * (len(widths) - 1)))
    above = [printable(table.title), ""] if table.title else []
    below = ["", printable(table.caption)] if table.caption else []
    return "\n".join([*above, *lines, *below])


def _line(row: Sequence[str], widths: Sequence[int], texts: int) -> str:
    padded = (
        cell + " " * (width - _cells(cell)) if place < texts else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return (" " * GAP).join(padded).rstrip()


def _cells(text: str) -> int:
    """Return how many columns a text takes; Chinese and the like take two for each character."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(c) in "FW") for c in text)


def terminal_console(*, stderr: bool = False) -> Console:
    """Return a console that takes text as it stands: no markup, emoji or highlighting."""
    from rich.console import Console  # noqa: PLC0415

    width = None if stderr or output_is_terminal() else FILE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def _drawn(table: TextTable) -> Table:
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    drawn = Table(
        title=printable(table.title) or None,
        caption=printable(table.caption) or None,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in table.columns:
        drawn.add_column(heading, overflow="fold")
    for heading in table.numbers:
        drawn.add_column(heading, justify="right")
    for row in table.rows:
        drawn.add_row(*map(printable, row))
    return drawn
