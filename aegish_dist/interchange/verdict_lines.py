"""Verdict lines: one JSON object per line, the format that other tools read and write."""

import codecs
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

from aegish_dist.errors import DatasetError
from aegish_dist.inputs.documents import open_input

MAX_LINE_BYTES = 64 * 2**20
CHUNK_BYTES = 4 * 2**20
BLOCK_BYTES = 2**20
JSON_ESCAPE = "aegish_dist.json"


def line_edges(path: Path) -> list[int]:
    """Return the bytes at which chunks of whole lines begin and end."""
    edges = [0]
    with _opened(path) as file:
        while file.seek(CHUNK_BYTES, os.SEEK_CUR) and file.readline(MAX_LINE_BYTES + 1):
            edges.append(file.tell())
        return [*edges, file.seek(0, os.SEEK_END)]


def numbered_lines(path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines between two bytes with their numbers from 1 on; blank ones are passed over.

    Args:
        start: First byte, the first one of a line.
        end: First byte that is not read, behind the end of a line.

    Raises:
        DatasetError: The file cannot be read, or a line is too long or not UTF-8; names the line.
    """
    with _opened(path) as file:
        file.seek(start)
        data = file.read(end - start)
    is_utf8 = _is_utf8(data)
    for number, line in enumerate(data.split(b"\n"), 1):
        problem = None
        if len(line) > MAX_LINE_BYTES:
            problem = f"is longer than {MAX_LINE_BYTES} bytes"
        elif not (is_utf8 or _is_utf8(line)):  # also where the decoder passes over a key
            problem = "is not UTF-8"
        if problem is not None:
            number += lines_before(path, start)  # noqa: PLW2901
            raise DatasetError(problem, source=str(path), line=number)
        if line.strip():
            yield number, line


def lines_before(path: Path, end: int) -> int:
    """Count the lines before a byte, for the number of one after it."""
    count = 0
    with _opened(path) as file:
        while (left := end - file.tell()) > 0 and (block := file.read(min(left, BLOCK_BYTES))):
            count += block.count(b"\n")
    return count


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
