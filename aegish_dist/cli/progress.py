"""Progress on standard error: a bar for people, a line now and then for logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from aegish_dist.cli.halts import waiting_hint
from aegish_dist.cli.print_status import print_status
from aegish_dist.cli.printing import can_redraw, note
from aegish_dist.cli.tables import TextTable, note_table, terminal_console
from aegish_dist.cli.watching import PLAIN_INTERVAL_S, watched
from aegish_dist.core.status import RunStatus
from aegish_dist.core.words import counted
from aegish_dist.pipeline.observer import Observer

if TYPE_CHECKING:
    from rich.progress import Progress


class Shown(Observer):
    """Shows on standard error how a use case goes on."""

    def __init__(self, *, here: bool = False) -> None:
        """Begin.

        Args:
            here: Whether this process works on the run, if one is watched.
        """
        self._here = here

    def note(self, line: str) -> None:
        """Print a line."""
        note(line)

    def note_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table."""
        note_table(TextTable(columns, rows))

    def enqueueing(self, total: int | None = None) -> AbstractContextManager[Callable[[int], None]]:
        """Show how many items are enqueued."""
        return enqueue_line(total)

    @contextmanager
    def counting(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show how many rows have been worked on, as a bar on a terminal or a line now and then."""
        with _bar() if can_redraw(stderr=True) else nullcontext() as progress:
            task = progress.add_task(what, total=total) if progress else None
            noted_at = time.monotonic()

            def show(rows: int) -> None:
                nonlocal noted_at
                if progress is not None and task is not None:
                    progress.update(task, completed=rows)
                elif time.monotonic() - noted_at >= PLAIN_INTERVAL_S:
                    noted_at = time.monotonic()
                    note(f"{rows:,} {what}")

            yield show

    @contextmanager
    def watching(self) -> Iterator[Callable[[RunStatus], None]]:
        """Show each count."""
        with status_shown(here=self._here) as show:
            yield show


@contextmanager
def status_shown(*, here: bool) -> Iterator[Callable[[RunStatus], None]]:
    """Give what shows each count of a run, on standard error; the last one stays on a terminal.

    Args:
        here: Whether this process works on the run; then nothing else has to be started for it.
    """
    hint = _no_hint if here else partial(waiting_hint, embedded=False)
    last: RunStatus | None = None
    with watched(hint, stderr=True) as show:

        def keep(status: RunStatus) -> None:
            nonlocal last
            last = status
            show(status)

        yield keep
    if last is not None and can_redraw(stderr=True):
        print_status(last, stderr=True)


@contextmanager
def enqueue_line(total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Give a callback that shows how many items are enqueued.

    Args:
        total: Items there will be, and a note says how many there were; None when they are not
            counted beforehand, and their number is the result of the command.
    """
    enqueued = 0
    with _bar() if can_redraw(stderr=True) else nullcontext() as progress:
        task = progress.add_task("enqueueing", total=total) if progress else None

        def show(items: int) -> None:
            nonlocal enqueued
            enqueued = items
            if progress is not None and task is not None:
                progress.update(task, completed=items)

        yield show
    if total is not None:
        note(f"enqueued {counted(enqueued, 'item')}")


def _no_hint(_: RunStatus) -> None:
    return None


def _bar() -> Progress:
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=terminal_console(stderr=True),
    )
