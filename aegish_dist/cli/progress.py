"""Progress on standard error: a bar for people, a line now and then for logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from aegish_dist.cli.printing import errors_are_on_terminal, note
from aegish_dist.cli.tables import TextTable, note_table, terminal_console
from aegish_dist.core.words import counted
from aegish_dist.pipeline.observer import Observer
from aegish_dist.pipeline.status import RunStatus

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_INTERVAL_S = 5.0


class StatusLine:
    """Shows a run's status as it moves."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task: TaskID | None = None
        self._printed_at = time.monotonic()

    def show(self, status: RunStatus) -> None:
        """Show the newest status."""
        if self._progress is None:
            self._print(status)
            return
        if self._task is None:
            self._task = self._progress.add_task(status.run_id, total=status.planned)
        self._progress.update(
            self._task, completed=status.done, description=f"{status.run_id} {_detail(status)}"
        )

    def _print(self, status: RunStatus) -> None:
        now = time.monotonic()
        if now - self._printed_at >= PLAIN_INTERVAL_S or status.done == status.planned:
            self._printed_at = now
            note(f"{status.run_id}: {status.done} of {status.planned} verdicts, {_detail(status)}")


def _detail(status: RunStatus) -> str:
    errors = sum(n for outcome, n in status.outcomes.items() if outcome.endswith("_ERROR"))
    rate = sum(model.rate_per_s for model in status.models)
    return f"{rate:.0f}/s, {errors} errors"


class Shown(Observer):
    """Shows on standard error how a use case goes on."""

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
        with _bar() if errors_are_on_terminal() else nullcontext() as progress:
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
        with status_line() as line:
            yield line.show


@contextmanager
def status_line() -> Iterator[StatusLine]:
    """Show a progress bar while the body runs, if standard error is a terminal."""
    if not errors_are_on_terminal():
        yield StatusLine(None)
        return
    with _bar() as progress:
        yield StatusLine(progress)


@contextmanager
def enqueue_line(total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Give a callback that shows how many items are enqueued.

    Args:
        total: Items there will be, and a note says how many there were; None when they are not
            counted beforehand, and their number is the result of the command.
    """
    enqueued = 0
    with _bar() if errors_are_on_terminal() else nullcontext() as progress:
        task = progress.add_task("enqueueing", total=total) if progress else None

        def show(items: int) -> None:
            nonlocal enqueued
            enqueued = items
            if progress is not None and task is not None:
                progress.update(task, completed=items)

        yield show
    if total is not None:
        note(f"enqueued {counted(enqueued, 'item')}")


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
