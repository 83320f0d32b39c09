"""The terminal as one screen, given back as it was found.

The screen is the terminal's alternate one: what stood before stands there again afterwards. What
would be printed meanwhile, such as lines of the log, is kept and printed then.
"""

from __future__ import annotations

import io
import logging
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NoReturn

from msgspec.structs import replace
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from aegish_dist.cli.printing import terminal_console
from aegish_dist.core.status import RunStatus
from aegish_dist.report.live_view import Canvas, Scene, draw


class FullScreen(ExitStack):
    """A run on the whole terminal, from its first count to the end of the `with`."""

    def __init__(self, *, stderr: bool) -> None:
        super().__init__()
        self._stderr = stderr
        self.scene: Scene | None = None

    def show(self, status: RunStatus, steps: Sequence[str]) -> None:
        """Show a count; the first one takes the terminal."""
        before = self.scene
        if before is not None and before.status is status:
            return  # it was not counted again
        self.scene = Scene(status, time.strftime("%H:%M:%S"), steps)
        if before is None:
            self._take_terminal()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the newest count in the terminal's present size."""
        if self.scene is not None:
            size = console.size
            canvas = Canvas(size.width, size.height, options.ascii_only)
            for line in draw(self.scene, canvas):
                line.no_wrap, line.overflow = True, "crop"
                yield line

    def _interrupt(self) -> NoReturn:
        """Say that the command ends: calls in flight may take a while."""
        if self.scene is not None:
            self.scene = replace(self.scene, steps=("interrupted: waiting for calls in flight",))
        raise KeyboardInterrupt

    def _take_terminal(self) -> None:
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
                refresh_per_second=2,  # a terminal that changes its size is followed so soon
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
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is stream
    ]
    for handler in handlers:
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
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, lambda *_: end())
    try:
        yield
    finally:
        signal.signal(number, before)
