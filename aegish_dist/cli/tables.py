"""Tables of the smaller commands, all alike; rich is imported where one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aegish_dist.cli.printing import output_is_terminal, standard_output
from aegish_dist.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FILE_WIDTH = 160
"""Columns when the output is no terminal, so that what reads it sees whole names."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table as text; long names are folded, never cut."""

    columns: Sequence[str]
    """Headings of text columns, on the left."""
    rows: Iterable[Sequence[str]]
    """Cells; foreign text is made printable when it is drawn."""
    numbers: Sequence[str] = ()
    """Headings of the right-aligned columns that follow."""
    title: str = ""
    """Stands above, when given."""
    caption: str = ""
    """Stands below, when given."""


def print_table(table: TextTable) -> None:
    """Print a table on standard output."""
    standard_output()
    terminal_console().print(_drawn(table))


def note_table(table: TextTable) -> None:
    """Print a table on standard error."""
    terminal_console(stderr=True).print(_drawn(table))


@contextmanager
def table_that_changes(first: TextTable) -> Iterator[Callable[[TextTable], None]]:
    """Show a table on standard output until the body ends; gives what replaces it."""
    from rich.live import Live  # noqa: PLC0415

    standard_output()
    with Live(_drawn(first), console=terminal_console(), refresh_per_second=4) as live:
        yield lambda table: live.update(_drawn(table))


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
