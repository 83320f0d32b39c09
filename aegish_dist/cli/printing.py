"""The one place that prints: results on standard output or into a file, notes on standard error.

Names, paths and messages that reach a line are foreign, so every line is made printable here. No
other module of the command line writes to a standard stream.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

import click

from aegish_dist.cli.command import FILE
from aegish_dist.core.text import (
    cell_width,
    printable,
    printable_json,
    printable_lines,
    sentence_lines,
)
from aegish_dist.errors import ClosedOutputError, ConfigError, OutputError
from aegish_dist.files import is_stream, replacing_text

if TYPE_CHECKING:
    from rich.console import Console


def say(*lines: str) -> None:
    """Print lines of a result; without any, a closed output is no trouble."""
    if lines:
        say_rendered("".join(f"{printable(line)}\n" for line in lines))


def say_lines(text: str) -> None:
    """Print a result of several lines, such as a prompt."""
    say_rendered(printable_lines(text) + "\n")


def say_json(document: Any) -> None:
    """Print one machine-readable document, in ASCII."""
    say_rendered(printable_json(document) + "\n")


def say_rendered(text: str) -> None:
    """Print what `aegish_dist.report` has made, which is printable and may hold colours."""
    standard_output()
    click.echo(text, nl=False)


def note(*lines: str) -> bool:
    """Print lines on standard error, and return whether it took them: no command fails by that."""
    return all(note_lines(printable(line)) for line in lines)


def note_next(*commands: str) -> None:
    """Print commands to type next, `aegish-dist` by the path that this one was called by."""
    program = "aegish-dist"
    if not shutil.which(program):
        # A program that is not on the PATH is named as it was called, to be copied.
        typed = sys.argv[0]
        by_path = Path(typed).name == program
        program = shlex.quote(typed) if by_path else "python -m aegish_dist"
    note("next:")
    for command in commands:
        note(f"  {command}".replace(" aegish-dist ", f" {program} "))


def confirmed(question: str) -> bool:
    """Ask on the terminal and return whether the answer was yes."""
    # The question is printed on standard error: an answer needs both to be a terminal.
    if sys.stdin is None or not (sys.stdin.isatty() and on_terminal(stderr=True)):
        raise ConfigError("there is no terminal to ask on: say --yes to go on without a question")
    return click.confirm(printable(question), err=True)


def note_lines(text: str) -> bool:
    """Print a note of several lines, such as a traceback; return whether it could be."""
    try:
        click.echo(printable_lines(text), err=True)
    except OSError:
        # Python would write the rest of its buffer at the end, and fail loudly.
        _discard(sys.stderr)
        return False
    return True


def note_usage(error: click.ClickException) -> None:
    """Print how a command is used and what was wrong; click quotes what was typed."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        note_lines(context.get_usage())
        note(f"Try '{context.command_path} --help' for help.", "")
    on_one_line = " ".join(error.format_message().split())
    note(f"Error: {on_one_line}")


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


def on_terminal(*, stderr: bool) -> bool:
    """Return whether standard output, or standard error, is a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return stream is not None and stream.isatty()


def can_redraw(*, stderr: bool) -> bool:
    """Return whether a stream is a terminal that can be drawn over, and a person looks at it."""
    in_ci = os.environ.get("CI", "").lower()
    terminal = os.environ.get("TERM", "").lower()
    if in_ci not in ("", "0", "false") or terminal in ("", "dumb", "unknown"):
        return False
    return on_terminal(stderr=stderr)


@contextmanager
def binary_output() -> Iterator[IO[bytes]]:
    """Give standard output for bytes that are printable ASCII already."""
    stream = standard_output().buffer
    with _writing_output():
        yield stream
        stream.flush()


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


def standard_output() -> TextIO:
    stream: TextIO | None = sys.stdout
    if stream is None:
        raise OutputError("standard output is closed: there is no place for the result")
    return stream


class _Checked:
    """A text stream whose failures are errors of one line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _writing_output():
            return self._stream.write(text)

    def flush(self) -> None:
        with _writing_output():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _writing_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedOutputError("the reader of standard output has closed it") from error
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"standard output cannot be written: {reason}") from error


def _discard(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


to_file = click.option("-o", "--output", type=FILE, help="Write to a file.")


def form_of(output: Path | None, known: Container[str]) -> str:
    """Return the format that a file's name ends with, if that is a known one; else `table`."""
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    return suffix if suffix in known else "table"


def note_written(path: Path) -> None:
    if not is_stream(path):
        note(f"written to {path}")


def put_out(pieces: Iterable[str], output: Path | None) -> None:
    """Print what is rendered piece by piece, or write it into a file."""
    if output is None:
        for piece in pieces:
            say_rendered(piece)
    else:
        with replacing_text(output) as stream:
            stream.writelines(pieces)


@contextmanager
def shown(output: Path | None) -> Iterator[Callable[[Callable[..., str | Iterator[str]]], object]]:
    """Give what takes a function that draws: with `width` and `color`, or for a file without.

    What is drawn is a text, or the parts of one, which go to a file one by one.
    """
    if output is None:
        width = shutil.get_terminal_size((140, 40)).columns
        color = on_terminal(stderr=False) and not os.environ.get("NO_COLOR")

        def say_drawn(draw: Callable[..., str | Iterator[str]]) -> None:
            drawn = draw(width=width, color=color)
            say_rendered("".join(_parts(drawn)))

        yield say_drawn
        return
    # Opened before anything is computed, or stored, for a file that cannot be written.
    with replacing_text(output) as stream:
        yield lambda draw: stream.writelines(_parts(draw()))
    note_written(output)


def _parts(drawn: str | Iterator[str]) -> Iterator[str]:
    if isinstance(drawn, str):
        return iter([drawn])
    return drawn


GAP = 3


def list_width() -> int:
    """Return the columns of a list of commands: the terminal's or `COLUMNS`, in a pipe 100."""
    return max(shutil.get_terminal_size((100, 40)).columns, 40)


def terminal_width(*, stderr: bool = False) -> int | None:
    """Return the columns of the terminal that a stream is; None if it is none."""
    if on_terminal(stderr=stderr):
        return shutil.get_terminal_size().columns
    return None


def say_columns(text: str) -> None:
    """Print tables that `in_columns` has drawn, in the encoding of standard output."""
    stream = standard_output()
    stream.write(f"{text}\n")
    # A note on standard error may say what is left out, and belongs below.
    stream.flush()


def in_columns(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Sequence[str] = (),
    *,
    title: str = "",
    caption: str = "",
    ids: int = 0,
    width: int | None = None,
) -> str:
    """Return a table as lines of padded cells.

    Args:
        rows: Cells of `columns`, then of `numbers`, which stand at the right; foreign text is made
            printable.
        title: Stands above.
        caption: Stands below.
        ids: Columns at the left that are never folded: an id wider than a third of the width has a
            line of its own.
        width: Columns of the screen that texts are folded into; None to fold nothing.
    """
    headings = (*columns, *numbers)
    cells = [[printable(cell) for cell in row] for row in rows]
    columns_of_cells = zip(headings, *cells, strict=True)
    widths = [max(map(cell_width, column)) for column in columns_of_cells]
    texts = len(columns)
    if width is not None:
        widths = _narrowed(widths, texts, ids, width)
    lines = [printable(title), ""] if title else []
    lines += _lines(headings, widths, texts, ids)
    lines.append("-" * (sum(widths) + GAP * (len(widths) - 1)))
    for row in cells:
        lines += _lines(row, widths, texts, ids)
    if caption:
        below = printable(caption)
        lines.append("")
        lines += sentence_lines(below, width) if width else [below]
    return "\n".join(lines)


def say_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Sequence[str] = (),
    *,
    title: str = "",
    caption: str = "",
    ids: int = 0,
) -> None:
    """Print what `in_columns` draws, as wide as the terminal."""
    width = terminal_width()
    table = in_columns(columns, rows, numbers, title=title, caption=caption, ids=ids, width=width)
    say_columns(table)


def _narrowed(widths: Sequence[int], texts: int, ids: int, total: int) -> list[int]:
    """Return the widths of columns that fit into a total, as far as folding texts can help.

    Texts share the room that ids and numbers leave; what a short one does not need is the others'.
    """
    narrow = list(widths)
    widest_id = max(total // 3, 16)
    for place in range(ids):
        narrow[place] = min(narrow[place], widest_id)
    kept = sum(narrow[:ids]) + sum(narrow[texts:])
    room = total - kept - GAP * (len(narrow) - 1)
    # The narrowest first: what it leaves of its share is shared by the others.
    folded = sorted(range(ids, texts), key=narrow.__getitem__)
    for done, place in enumerate(folded):
        share = room // (len(folded) - done)
        narrow[place] = max(1, min(narrow[place], share))
        room -= narrow[place]
    return narrow


def _lines(row: Sequence[str], widths: Sequence[int], texts: int, ids: int) -> Iterator[str]:
    """Yield the lines of a row; an id that is too wide stands on a line of its own."""
    columns = []
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        if cell_width(cell) <= width or place >= texts:
            columns.append([cell])
        elif place < ids:
            yield cell
            columns.append([""])
        else:
            columns.append(sentence_lines(cell, width))
    gap = " " * GAP
    for cells in zip_longest(*columns, fillvalue=""):
        padded = []
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            # `ljust` counts characters, of which some take two columns and some none.
            space = " " * (width - cell_width(cell))
            padded.append(cell + space if place < texts else space + cell)
        yield gap.join(padded).rstrip()


def terminal_console(*, stderr: bool = False) -> Console:
    """Return a console that takes text as it stands: no markup, emoji or highlighting."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)
