"""The one place that prints: results on standard output, notes on standard error.

Names, paths and messages that reach a line are foreign, so every line is made printable here. No
other module of the command line writes to a standard stream.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO, cast

import click

from aegish_dist.core.printable import printable, printable_json, printable_lines
from aegish_dist.errors import ClosedOutputError, ConfigError, OutputError


def say(line: str) -> None:
    """Print one line of a result."""
    _print(printable(line) + "\n")


def say_lines(text: str) -> None:
    """Print a result of several lines, such as a prompt."""
    _print(printable_lines(text) + "\n")


def say_json(document: Any) -> None:
    """Print one machine-readable document, in ASCII."""
    _print(printable_json(document) + "\n")


def say_rendered(text: str) -> None:
    """Print what `aegish_dist.report` has made, which is printable and may hold colours."""
    _print(text)


def note(line: str) -> bool:
    """Print one line on standard error, if that takes it: no command fails for want of it.

    Returns:
        Whether it took the line.
    """
    return note_lines(printable(line))


def confirmed(question: str) -> bool:
    """Ask on the terminal and return whether the answer was yes.

    Raises:
        ConfigError: There is no terminal to ask on.
    """
    if sys.stdin is None or not (sys.stdin.isatty() and errors_are_on_terminal()):
        raise ConfigError("there is no terminal to ask on: say --yes to go on without a question")
    return click.confirm(printable(question), err=True)


def note_lines(text: str) -> bool:
    """Print a note of several lines, such as a traceback; return whether it could be."""
    try:
        click.echo(printable_lines(text), err=True)
    except OSError:
        _discard(sys.stderr)
        return False
    return True


def note_usage(error: click.ClickException) -> None:
    """Print how a command is used and what was wrong; click quotes what was typed."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        note_lines(context.get_usage())
        note(f"Try '{context.command_path} --help' for help.")
        note("")
    note(f"Error: {' '.join(error.format_message().split())}")


def prepare_output() -> None:
    """Have standard output write whole texts, with escapes where its encoding lacks a character."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        return
    if isinstance(stream.buffer, io.RawIOBase):
        # With PYTHONUNBUFFERED Python drops what a write to a nearly full disk leaves over.
        buffer = io.BufferedWriter(stream.buffer)
        sys.stdout = stream = io.TextIOWrapper(buffer, encoding=stream.encoding)
    stream.reconfigure(errors="backslashreplace")


def output_is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def errors_are_on_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def can_redraw(*, stderr: bool) -> bool:
    """Return whether a stream is a terminal that can be drawn over, and a person looks at it."""
    if not (errors_are_on_terminal() if stderr else output_is_terminal()):
        return False
    watched = os.environ.get("CI", "").lower() in ("", "0", "false")
    return watched and os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


@contextmanager
def binary_output() -> Iterator[IO[bytes]]:
    """Give standard output for bytes that are printable ASCII already."""
    stream = standard_output().buffer
    try:
        yield stream
        stream.flush()
    except OSError as error:
        raise _failure(error) from error


@contextmanager
def checked_output() -> Iterator[None]:
    """Tell failures of standard output from bugs, whichever library is printing."""
    stream = sys.stdout
    if stream is None:
        yield
        return
    sys.stdout = checked = cast("TextIO", _Checked(stream))
    try:
        yield
        checked.flush()
    finally:
        sys.stdout = stream


def discard_unwritten() -> None:
    """Let the interpreter end without trying again what could not be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)


def _print(text: str) -> None:
    standard_output()
    click.echo(text, nl=False)


def standard_output() -> TextIO:
    """Return standard output."""
    stream: TextIO | None = sys.stdout
    if stream is None:
        raise OutputError("standard output is closed: there is no place for the result")
    return stream


class _Checked:
    """A text stream whose failures are errors of one line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise _failure(error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise _failure(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _failure(error: OSError) -> OutputError:
    if isinstance(error, BrokenPipeError):
        return ClosedOutputError("the reader of standard output has closed it")
    return OutputError(f"standard output cannot be written: {error.strerror or error}")


def _discard(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
