"""`aegish-dist status`: how far a run is, on a screen or in lines, and what to do next."""

from __future__ import annotations

import gc
import io
import logging
import math
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec.structs import replace

from aegish_dist.cli.command import command, flag
from aegish_dist.cli.options import as_json, open_run, run_id, without_collector
from aegish_dist.cli.printing import (
    can_redraw,
    in_columns,
    note,
    note_lines,
    on_terminal,
    say_columns,
    say_json,
    terminal_console,
    terminal_width,
)
from aegish_dist.core.status import HELD, ModelStatus, RunStatus, State, retry_command
from aegish_dist.core.text import JsonObject
from aegish_dist.errors import ClosedOutputError
from aegish_dist.pipeline.observer import Observer

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from aegish_dist.report.live_view import Scene


def halted(status: RunStatus) -> Iterator[str]:
    """Say which models are not called any more, one line for each reason."""
    resume = f"aegish-dist resume --run-id {status.run_id}"
    parked = [_with_reason(model) for model in status.models if model.state is State.PARKED]
    if parked:
        yield (
            f"parked after too many failures in a row: {', '.join(parked)};"
            f" `aegish-dist models check` tells what is wrong, then `{resume}`"
        )
    for model in status.models:
        # The workers of a demo have ended with it: none is to be waited for.
        if model.state is State.WAITING and model.reason is not None and not status.demo:
            yield (
                f"no worker may call {model.model} ({status.workers} running):"
                f" {model.reason}; once one may, it goes on, at once after `{resume}`"
            )
    over_budget = [model.model for model in status.models if model.state is State.OVER_BUDGET]
    if over_budget:
        yield (
            f"over budget, the rest of its items was not called: {', '.join(over_budget)};"
            f" with a higher cap it goes on: `{resume} --max-cost USD`"
        )

    for model in status.models:
        batches = model.batches
        if batches is None or batches.problem is None or not model.in_batches:
            continue
        if model.state is not State.COMPLETE:
            left = "what is left is asked again"
            if batches.open:
                left = "workers try again"
            yield f"batches of {model.model}: {batches.problem}; {left}"
    yield from _held(status)


def _with_reason(model: ModelStatus) -> str:
    return model.model if model.reason is None else f"{model.model} ({model.reason})"


def _held(status: RunStatus) -> Iterator[str]:
    if status.state in HELD:
        yield f"{status.state}: `aegish-dist resume --run-id {status.run_id}` goes on"


def next_steps(status: RunStatus, hint: str | None) -> Iterator[str]:
    """Say what a user could do about a run that is watched; each model's reason is shown there.

    `hint` says what would have a waiting run go on; None: nothing needs to be done for that.
    """
    resume = f"aegish-dist resume --run-id {status.run_id}"
    states = {model.state for model in status.models}
    cap = math.inf if status.max_cost_usd is None else status.max_cost_usd
    cost_at_end = status.cost_at_end_usd or 0
    if State.PARKED in states:
        yield f"parked: `aegish-dist models check` tells what is wrong, then `{resume}`"
    unserved = any(m.state is State.WAITING and m.reason is not None for m in status.models)
    if unserved and not status.demo:
        yield f"no worker may call it: once one may, it goes on, at once after `{resume}`"
    if State.OVER_BUDGET in states:
        yield f"over budget: `{resume} --max-cost USD` goes on with a higher cap"
    elif status.missing and cost_at_end > cap:
        yield "the cap will be reached before the end: the rest will not be called"
    yield from _held(status)
    if hint is not None:
        yield hint
    yield from left_to_retry(status)


def waiting_hint(status: RunStatus, *, embedded: bool) -> str | None:
    """Say what would let a waiting run go on; None when nothing or more than one step would."""
    if status.state is not State.WAITING or status.ended:
        return None
    resume = f"`aegish-dist resume --run-id {status.run_id}`"
    if status.demo:
        return "this was a demo: `aegish-dist demo` starts again"
    if status.workers:
        return f"workers live but hold none of it: if its queues are empty, {resume} fills them"
    if embedded:
        return f"no command works on it: {resume} goes on"
    return "no worker is running: start one with `aegish-dist worker`"


def aggregated(status: RunStatus) -> Iterator[str]:
    """Say which snapshot workers made of a run, or why they made none."""
    if status.snapshot_id is not None:
        yield f"its scores are stored as snapshot {status.snapshot_id}"
    elif status.aggregation_problem is not None:
        yield f"its scores are not stored: {status.aggregation_problem}"


def left_to_retry(status: RunStatus) -> Iterator[str]:
    """Say which calls brought no answer, and the command that makes them again."""
    command = retry_command(status)
    if command is not None:
        numbers = ", ".join(f"{outcome} {number:,}" for outcome, number in status.failed.items())
        yield f"calls that brought no answer: {numbers}; `{command}` makes them again"


def print_status(current: RunStatus, *, stderr: bool = False) -> None:
    """Print how far a run is: to a terminal what its live view shows, else a table."""
    if not on_terminal(stderr=stderr):
        say_or_note = note_lines if stderr else say_columns
        say_or_note(_table(current))
        return
    from aegish_dist.report.live_view import Canvas, Scene, draw  # noqa: PLC0415

    console = terminal_console(stderr=stderr)
    canvas = Canvas(console.width, sys.maxsize, console.options.ascii_only)
    for line in draw(Scene(current), canvas):
        console.print(line, no_wrap=True, overflow="crop", crop=False)


def _table(current: RunStatus) -> str:
    from aegish_dist.report.run_words import time_left  # noqa: PLC0415  only where it prints

    rows = []
    for model in current.models:
        counts = (model.done, model.planned, model.failed, model.replaced, model.in_flight)
        row = [model.model, _state(model, current.workers)]
        row += [f"{count:,}" for count in counts]
        row.append(f"{model.rate_per_s:.1f}")
        row.append("-" if model.cost_usd is None else f"{model.cost_usd:.4f}")
        rows.append(row)
    title = f"Run {current.run_id}: {current.state}, {current.done:,} of {current.planned:,}"
    if current.missing:
        title += f", {time_left(current)}"
    numbers = ("Done", "Planned", "Failed", "Replaced", "In flight", "Per second", "Cost $")
    outcomes = "  ".join(f"{name} {number:,}" for name, number in current.outcomes.items())
    return in_columns(("Model", "State"), rows, numbers, title=title, caption=outcomes)


def _state(model: ModelStatus, workers: int) -> str:
    from aegish_dist.report.run_words import batch_words  # noqa: PLC0415  only where it prints

    state = str(model.state)
    if model.reason is not None:
        if model.state is not State.PARKED:
            state += f": no worker may call it ({workers} running)"
        state += f": {model.reason}"
    batches = batch_words(model)
    if batches:
        state += f"; {batches}"
    return state


PLAIN_INTERVAL_S = 5.0  # seconds between two lines, at least


@contextmanager
def watched(
    hint: Callable[[RunStatus], str | None], *, stderr: bool
) -> Iterator[Callable[[RunStatus], None]]:
    """Show the counts of a run until the body ends.

    `hint` says what would have the run go on if it waits. Where results of the command are not
    progress, the screen is drawn on standard error. A command that does nothing but watch ends in a
    ClosedOutputError when its reader is gone.
    """
    if not can_redraw(stderr=stderr):
        yield _lines(only_watching=not stderr)
        return
    screen = FullScreen(stderr=stderr)
    ends_early = True
    try:
        with screen:
            yield lambda status: screen.show(status, [*next_steps(status, hint(status))])
        ends_early = False
    finally:
        # The terminal has forgotten the screen. `status` prints the last count itself.
        if screen.scene is not None and (ends_early or stderr):
            print_status(screen.scene.status, stderr=stderr)


class FullScreen(ExitStack):
    """A run on the whole terminal, from its first count to the end of the `with`.

    The screen is the terminal's alternate one: what stood before stands there again afterwards.
    What would be printed meanwhile, such as lines of the log, is kept and printed then.
    """

    def __init__(self, *, stderr: bool) -> None:
        super().__init__()
        self._stderr = stderr
        self.scene: Scene | None = None

    def show(self, status: RunStatus, steps: Sequence[str]) -> None:
        """Show a count; the first one takes the terminal."""
        before = self.scene
        if before is not None and before.status is status:
            return  # it was not counted again
        from aegish_dist.report.live_view import Scene  # noqa: PLC0415

        self.scene = Scene(status, time.strftime("%H:%M:%S"), steps)
        if before is None:
            self._take_terminal()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the newest count in the terminal's present size."""
        from aegish_dist.report.live_view import Canvas, draw  # noqa: PLC0415

        if self.scene is not None:
            size = console.size
            canvas = Canvas(size.width, size.height, options.ascii_only)
            for line in draw(self.scene, canvas):
                line.no_wrap = True
                line.overflow = "crop"
                yield line

    def _interrupt(self) -> NoReturn:
        """Say that the command ends: calls in flight may take a while."""
        if self.scene is not None:
            self.scene = replace(self.scene, steps=("interrupted: waiting for calls in flight",))
        raise KeyboardInterrupt

    def _take_terminal(self) -> None:
        from rich.live import Live  # noqa: PLC0415

        console = terminal_console(stderr=self._stderr)
        console.file = sys.stderr if self._stderr else sys.stdout
        self.enter_context(_kept_back())
        # The exit code is the one that shells give after the signal.
        self.enter_context(_on_signal(signal.SIGTERM, partial(sys.exit, 143)))
        self.enter_context(_on_signal(signal.SIGINT, self._interrupt))
        self.enter_context(
            Live(
                self,
                console=console,
                screen=True,
                # A terminal that changes its size is followed so soon.
                refresh_per_second=2,
                redirect_stdout=False,
                redirect_stderr=False,
            )
        )


@contextmanager
def _kept_back() -> Iterator[None]:
    """Keep what is written to a terminal on standard error, and write it at the end."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield
        return
    kept = _Kept()
    # A handler of the log has taken the stream as it was: each is given another one.
    handlers = []
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
            handlers.append(handler)
            handler.setStream(kept)
    sys.stderr = kept
    try:
        yield
    finally:
        sys.stderr = stream
        for handler in handlers:
            handler.setStream(stream)
        stream.write("".join(kept.lines))
        stream.flush()


class _Kept(io.StringIO):
    """A stream that keeps its newest lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=500)

    def write(self, text: str) -> int:
        self.lines.extend(text.splitlines(keepends=True))
        return len(text)


@contextmanager
def _on_signal(number: signal.Signals, end: Callable[[], NoReturn]) -> Iterator[None]:
    """Have a signal end the body in order, so that the terminal is given back."""
    # Python takes handlers of signals in the main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, lambda *_: end())
    try:
        yield
    finally:
        signal.signal(number, before)


def _lines(*, only_watching: bool) -> Callable[[RunStatus], None]:
    """Return what notes a count now and then, where something has changed."""
    noted_at = time.monotonic()
    noted = None
    kinds_noted = set[object]()

    def show(status: RunStatus) -> None:
        from aegish_dist.report.run_words import changed, plain_error, plain_line  # noqa: PLC0415

        nonlocal noted_at, noted
        now = time.monotonic()
        if now - noted_at < PLAIN_INTERVAL_S and status.missing:
            return
        if noted is not None and not changed(noted, status):
            return
        noted_at = now
        noted = status
        lines = [plain_line(status)]
        # One error of each kind is enough, and one a line: a log is read by people.
        for error in status.last_errors:
            kind = (error.model, error.error_class, error.status)
            if kind not in kinds_noted:
                kinds_noted.add(kind)
                lines.append(plain_error(status, error))
                break
        if not note(*lines) and only_watching:
            raise ClosedOutputError("the reader of standard error has closed it")

    return show


class Shown(Observer):
    """Shows on standard error how a use case goes on."""

    def __init__(self, *, here: bool = False) -> None:
        """Begin; `here` says if this process works on the run, if one is watched."""
        self._here = here

    def note(self, line: str) -> None:
        note(line)

    def note_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        note_lines(in_columns(columns, rows, width=terminal_width(stderr=True)))

    @contextmanager
    def counting(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show how many rows have been worked on, as a bar on a terminal or a line now and then."""
        noted_at = time.monotonic()

        def note_rows(rows: int) -> None:
            nonlocal noted_at
            if time.monotonic() - noted_at >= PLAIN_INTERVAL_S:
                noted_at = time.monotonic()
                note(f"{rows:,} {what}")

        if not can_redraw(stderr=True):
            yield note_rows
            return
        # rich takes a tenth of a second to import, which only a terminal is worth.
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=terminal_console(stderr=True),
        ) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)

    def watching(self) -> AbstractContextManager[Callable[[RunStatus], None]]:
        """Show each count; the last one stays."""
        return watched(
            lambda status: None if self._here else waiting_hint(status, embedded=False), stderr=True
        )


@command("aegish-dist status", "aegish-dist status --run-id nightly --watch")
@run_id(default="latest")
@flag("--watch", help="Keep showing it until the run is complete.")
@as_json
def status(run_id: str, watch: bool, as_json: bool) -> None:
    """Show how far a run is: verdicts by model and outcome, speed, cost, time left."""
    with without_collector():
        from aegish_dist.pipeline import status as counts  # noqa: PLC0415  not for `submit`

        gc.freeze()  # what is imported stays

    store, run = open_run(run_id)
    current = counts.run_status(store.engine, run)
    if as_json:
        say_json(_document(current))
        return
    hint = partial(waiting_hint, embedded=store.settings.embedded_broker)
    if watch and not current.settled:
        with watched(hint, stderr=False) as show:
            show(current)
            current = counts.watch(store.engine, current, show)
    print_status(current)
    note(*halted(current), *aggregated(current), *left_to_retry(current))
    advice = hint(current)
    if advice is not None:
        note(advice)


def _document(current: RunStatus) -> JsonObject:
    document: JsonObject = msgspec.to_builtins(current, builtin_types=(datetime, Decimal))
    # JSON has no type for times and exact amounts.
    for error in document["last_errors"]:
        error["at"] = error["at"].isoformat()
    for model in document["models"]:
        batches = model["batches"]
        if batches is not None and batches["expected_usd"] is not None:
            batches["expected_usd"] = float(batches["expected_usd"])
    return document
