"""Results that go to standard output or, with `-o`, into a file."""

import shutil
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from aegish_dist.cli.printing import note, output_is_terminal, say_rendered
from aegish_dist.files import is_stream, replacing_text

to_file = click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file.")


def form_of(output: Path | None, known: Container[str]) -> str:
    """Return the format that a file's name ends with, if that is a known one; else `table`."""
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    return suffix if suffix in known else "table"


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """Open a file for a result; a note says that it is there, unless it is a stream."""
    with replacing_text(path) as stream:
        yield stream
    if not is_stream(path):
        note(f"written to {path}")


@contextmanager
def shown(output: Path | None) -> Iterator[Callable[[Callable[..., str | Iterator[str]]], object]]:
    """Give what takes a function that draws: with `width` and `color`, or for a file without.

    What is drawn is a text, or the parts of one, which go to a file one by one.

    The file is opened first, so that nothing is computed, or stored, for one that cannot be
    written.
    """
    if output is None:
        width = shutil.get_terminal_size((140, 40)).columns
        yield lambda draw: say_rendered(
            "".join(_parts(draw(width=width, color=output_is_terminal())))
        )
        return
    with written(output) as stream:
        yield lambda draw: stream.writelines(_parts(draw()))


def _parts(drawn: str | Iterator[str]) -> Iterator[str]:
    return iter((drawn,)) if isinstance(drawn, str) else drawn
