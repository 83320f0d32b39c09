"""Verdict lines: one JSON object per line, the format that other tools read and write."""

import codecs
import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import BinaryIO

from aegish_dist.errors import DatasetError
from aegish_dist.inputs.documents import open_input

MAX_LINE_BYTES = 64 * 2**20
JSON_ESCAPE = "aegish_dist.json"


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers from 1 on; blank ones are passed over.

    Raises:
        DatasetError: The file cannot be read, or a line is too long or not UTF-8; names the line.
    """
    with _opened(path) as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
            content = line.removesuffix(b"\n")
            problem = None
            if len(content) > MAX_LINE_BYTES:
                problem = f"is longer than {MAX_LINE_BYTES} bytes"
            elif not _is_utf8(content):  # also where the decoder passes over a key
                problem = "is not UTF-8"
            if problem is not None:
                raise DatasetError(problem, source=str(path), line=number)
            if content.strip():
                yield number, content


def in_ascii(lines: bytes) -> bytes:
    """Escape what is beyond ASCII in lines of JSON."""
    return lines if lines.isascii() else lines.decode().encode("ascii", JSON_ESCAPE)


def encode(value: object) -> str:
    """Encode on one line; what UTF-8 cannot hold is escaped like everything beyond ASCII."""
    return json.dumps(value, allow_nan=False, default=_plain)


def _plain(value: object) -> str | float:
    if not isinstance(value, Decimal):
        raise TypeError(f"no JSON for {type(value).__name__}")
    return number if Decimal(str(number := float(value))) == value else str(value)


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_input(path) as file:
            yield file
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise DatasetError(problem, source=str(path)) from error


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(JSON_ESCAPE, _escape)
