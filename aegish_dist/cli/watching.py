"""Showing a run that goes on: as a screen to people, as a line now and then to everything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aegish_dist.cli.halts import next_steps
from aegish_dist.cli.print_status import print_status
from aegish_dist.cli.printing import can_redraw, note
from aegish_dist.core.status import RunStatus
from aegish_dist.errors import AegishError, ClosedOutputError

PLAIN_INTERVAL_S = 5.0
"""Seconds between two lines, at least."""


@contextmanager
def watched(
    hint: Callable[[RunStatus], str | None], *, stderr: bool
) -> Iterator[Callable[[RunStatus], None]]:
    """Show the counts of a run until the body ends.

    Args:
        hint: Says what would have the run go on if it waits.
        stderr: Whether the screen is drawn on standard error, where the results of the command are
            not progress.

    Raises:
        ClosedOutputError: The command does nothing but watch, and its reader is gone.
    """
    if not can_redraw(stderr=stderr):
        yield _Lines(only_watching=not stderr).show
        return
    from aegish_dist.cli.screen import FullScreen  # noqa: PLC0415

    last: RunStatus | None = None
    screen = FullScreen(stderr=stderr)

    def show(status: RunStatus) -> None:
        nonlocal last
        last = status
        screen.show(status, [*next_steps(status, hint(status))])

    try:
        with screen:
            yield show
    except (KeyboardInterrupt, SystemExit, AegishError):
        if last is not None:
            print_status(last, stderr=stderr)
        raise


class _Lines:
    """Notes what has changed."""

    def __init__(self, *, only_watching: bool) -> None:
        self._only_watching = only_watching
        self._noted_at = time.monotonic()
        self._noted: RunStatus | None = None

    def show(self, status: RunStatus) -> None:
        from aegish_dist.report.live.plain import changed, plain_line  # noqa: PLC0415

        now = time.monotonic()
        if now - self._noted_at < PLAIN_INTERVAL_S and status.missing:
            return
        if self._noted is None or changed(self._noted, status):
            self._noted_at, self._noted = now, status
            if not note(plain_line(status)) and self._only_watching:
                raise ClosedOutputError("the reader of standard error has closed it")
