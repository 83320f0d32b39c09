"""Progress on standard error: a bar for people, a line now and then for logs."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from aegish_dist.pipeline.status import RunStatus

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
            click.echo(
                f"{status.run_id}: {status.done} of {status.planned} verdicts, {_detail(status)}",
                err=True,
            )


def _detail(status: RunStatus) -> str:
    errors = sum(n for outcome, n in status.outcomes.items() if outcome.endswith("_ERROR"))
    rate = sum(model.rate_per_s for model in status.models)
    return f"{rate:.0f}/s, {errors} errors"


@contextmanager
def status_line() -> Iterator[StatusLine]:
    """Show a progress bar while the body runs, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield StatusLine(None)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield StatusLine(progress)
