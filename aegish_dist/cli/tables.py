"""Tables of the smaller commands, all alike."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

FILE_WIDTH = 160
"""Columns when the output is no terminal, so that what reads it sees whole names."""


def plain_table(columns: Sequence[str], numbers: Sequence[str] = (), title: str = "") -> Table:
    """Return an empty table; long names are folded, never cut.

    Args:
        columns: Headings of text columns, on the left.
        numbers: Headings of the right-aligned columns that follow.
        title: Stands above, when given.
    """
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in columns:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def console() -> Console:
    """Return the console on standard output."""
    found = Console()
    return found if found.is_terminal else Console(width=FILE_WIDTH)
