"""How far a run is: a screen for people while it goes on, lines for logs, and what to do next."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from aegish_dist.cli.printing import (
    TextTable,
    can_redraw,
    errors_are_on_terminal,
    in_columns,
    note,
    note_lines,
    note_table,
    output_is_terminal,
    print_table,
    terminal_console,
)
from aegish_dist.core.status import HELD, ModelStatus, RunStatus, State
from aegish_dist.core.text import counted
from aegish_dist.errors import AegishError, ClosedOutputError
from aegish_dist.pipeline.status import retry_command
from aegish_dist.pipeline.workspace import Observer

if TYPE_CHECKING:
    from rich.progress import Progress


def halted(status: RunStatus) -> Iterator[str]:
    """Say which models are not called any more, one line for each reason."""
    parked = ", ".join(_with_reason(m) for m in status.models if m.state is State.PARKED)
    if parked:
        yield (
            f"parked after too many failures in a row: {parked}; `aegish-dist models check` tells"
            f" what is wrong, then `aegish-dist resume --run-id {status.run_id}`"
        )
    for model in status.models:
        if model.state is State.WAITING and model.reason is not None:
            yield (
                f"no worker may call {model.model} ({status.workers} running):"
                f" {model.reason}; once one may, it goes on, at once after"
                f" `aegish-dist resume --run-id {status.run_id}`"
            )
    dear = ", ".join(m.model for m in status.models if m.state is State.OVER_BUDGET)
    if dear:
        yield (
            f"over budget, the rest of its items was not called: {dear}; with a higher cap it goes"
            f" on: `aegish-dist resume --run-id {status.run_id} --max-cost USD`"
        )

    yield from troubled_batches(status)
    if status.state in HELD:
        yield _HELD[status.state].format(run_id=status.run_id)


def troubled_batches(status: RunStatus) -> Iterator[str]:
    """Say which problems batches of models have, with which workers try them again."""
    for model in status.models:
        batches = model.batches
        if batches is not None and batches.problem is not None and model.in_batches:
            left = "workers try again" if batches.open else "what is left is asked again"
            if model.state is not State.COMPLETE:
                yield f"batches of {model.model}: {batches.problem}; {left}"


def next_steps(status: RunStatus, hint: str | None) -> Iterator[str]:
    """Say what a user could do about a run that is watched; each model's reason is shown there.

    Args:
        hint: What would have the run go on if it waits; None: nothing needs to be done for that.
    """
    resume = f"`aegish-dist resume --run-id {status.run_id}`"
    states = {model.state for model in status.models}
    if State.PARKED in states:
        yield f"parked: `aegish-dist models check` tells what is wrong, then {resume}"
    if any(m.state is State.WAITING and m.reason is not None for m in status.models):
        yield f"no worker may call it: once one may, it goes on, at once after {resume}"
    if State.OVER_BUDGET in states:
        yield f"over budget: {resume[:-1]} --max-cost USD` goes on with a higher cap"
    elif _reaches_cap(status):
        yield "the cap will be reached before the end: the rest will not be called"
    if status.state in HELD:
        yield _HELD[status.state].format(run_id=status.run_id)
    if hint is not None:
        yield hint
    yield from left_to_retry(status)


def _reaches_cap(status: RunStatus) -> bool:
    end, cap = status.cost_at_end_usd, status.max_cost_usd
    return bool(status.missing) and end is not None and cap is not None and end > cap


def waiting_hint(status: RunStatus, *, embedded: bool) -> str | None:
    """Say what would let a waiting run go on; None when nothing or more than one step would."""
    if status.state is not State.WAITING or status.ended:
        return None
    resume = f"`aegish-dist resume --run-id {status.run_id}`"
    if status.workers:
        return f"workers live but hold none of it: if its queues are empty, {resume} fills them"
    if embedded:
        return f"no command works on it: {resume} goes on"
    return "no worker is running: start one with `aegish-dist worker`"


_HELD = {
    State.PAUSED: "paused: `aegish-dist resume --run-id {run_id}` goes on",
    State.CANCELLED: "cancelled: `aegish-dist resume --run-id {run_id}` goes on",
}


def _with_reason(model: ModelStatus) -> str:
    return model.model if model.reason is None else f"{model.model} ({model.reason})"


def aggregated(status: RunStatus) -> Iterator[str]:
    """Say which snapshot workers made of a run, or why they made none."""
    if status.snapshot_id is not None:
        yield f"snapshot {status.snapshot_id} was made of it"
    elif status.aggregation_problem is not None:
        yield f"no snapshot was made of it: {status.aggregation_problem}"


def left_to_retry(status: RunStatus) -> Iterator[str]:
    """Say which calls brought no answer, and the command that makes them again."""
    command = retry_command(status)
    if command is not None:
        failed = ", ".join(f"{outcome} {number:,}" for outcome, number in status.failed.items())
        yield f"calls that brought no answer: {failed}; `{command}` makes them again"


def print_status(current: RunStatus, *, stderr: bool = False) -> None:
    """Print how far a run is: to a terminal what its live view shows, else a table.

    Args:
        stderr: Whether to print on standard error, otherwise on standard output.
    """
    if errors_are_on_terminal() if stderr else output_is_terminal():
        _print_drawn(current, stderr=stderr)
    elif stderr:
        note_lines(in_columns(_table(current)))
    else:
        print_table(_table(current))


def _print_drawn(current: RunStatus, *, stderr: bool) -> None:
    from aegish_dist.report.live_view import Canvas, Scene, draw  # noqa: PLC0415

    console = terminal_console(stderr=stderr)
    canvas = Canvas(console.width, sys.maxsize, console.options.ascii_only)
    for line in draw(Scene(current), canvas):
        console.print(line, no_wrap=True, overflow="crop", crop=False)


def _table(current: RunStatus) -> TextTable:
    eta = "" if not current.eta_s else f", about {current.eta_s:.0f} s left"
    return TextTable(
        ("Model", "State"),
        [_row(model, current.workers) for model in current.models],
        ("Done", "Planned", "Failed", "Replaced", "In flight", "Per second", "Cost $"),
        title=f"Run {current.run_id}: {current.state}, {current.done:,} of {current.planned:,}"
        + eta,
        caption="  ".join(f"{name} {number:,}" for name, number in current.outcomes.items()),
    )


def _row(model: ModelStatus, workers: int) -> tuple[str, ...]:
    return (
        model.model,
        _state(model, workers),
        f"{model.done:,}",
        f"{model.planned:,}",
        f"{model.failed:,}",
        f"{model.replaced:,}",
        f"{model.in_flight:,}",
        f"{model.rate_per_s:.1f}",
        "-" if model.cost_usd is None else f"{model.cost_usd:.4f}",
    )


def _state(model: ModelStatus, workers: int) -> str:
    from aegish_dist.report.run_words import batch_words  # noqa: PLC0415  only where it prints

    state, batches = _own_state(model, workers), batch_words(model)
    return f"{state}; {batches}" if batches else state


def _own_state(model: ModelStatus, workers: int) -> str:
    if model.reason is None:
        return model.state
    if model.state is State.PARKED:
        return f"{model.state}: {model.reason}"
    return f"{model.state}: no worker may call it ({workers} running): {model.reason}"


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
        from aegish_dist.report.run_words import changed, plain_line  # noqa: PLC0415

        now = time.monotonic()
        if now - self._noted_at < PLAIN_INTERVAL_S and status.missing:
            return
        if self._noted is None or changed(self._noted, status):
            self._noted_at, self._noted = now, status
            if not note(plain_line(status)) and self._only_watching:
                raise ClosedOutputError("the reader of standard error has closed it")


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
