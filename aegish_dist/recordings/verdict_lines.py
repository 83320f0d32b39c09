"""Verdict lines: one JSON object per line, the format that other tools read and write."""

import codecs
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

from aegish_dist.core.recording import Recording
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.files import open_input
from aegish_dist.recordings import json_text
from aegish_dist.recordings.fields import Fields
from aegish_dist.recordings.record import from_record, to_record

MAX_LINE_BYTES = 64 * 2**20
"""A longer line is no verdict."""
BLOCK_BYTES = 2**20
JSON_ESCAPE = "aegish_dist.json"


def read_verdict_lines(path: Path, start: int = 0) -> Iterator[Recording]:
    """Read a file line by line; blank lines are passed over.

    Args:
        path: The file.
        start: Byte at which to begin, the first one of a line.

    Raises:
        DatasetError: The file cannot be read, or a line is wrong; names line and field.
    """
    source = str(path)
    try:
        with open_input(path) as file:
            skipped = sum(block.count(b"\n") for block in _blocks(file, start))
            for number, line in enumerate(_lines(file), skipped + 1):
                if len(line) > MAX_LINE_BYTES:
                    problem = f"is longer than {MAX_LINE_BYTES} bytes"
                    raise DatasetError(problem, source=source, line=number)
                if line.strip():
                    yield from_record(line_fields(line, source, number))
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise DatasetError(problem, source=source) from error


def write_verdict_lines(recordings: Iterable[Recording], stream: IO[str]) -> None:
    """Write each recording as one line of ASCII."""
    for recording in recordings:
        stream.write(json_text.encode(to_record(recording)) + "\n")


def _blocks(file: BinaryIO, end: int) -> Iterator[bytes]:
    while (left := end - file.tell()) > 0 and (block := file.read(min(left, BLOCK_BYTES))):
        yield block


def _lines(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.readline(MAX_LINE_BYTES + 1), b"")


def line_fields(line: str | bytes, source: str, number: int | None = None) -> Fields:
    """Return the fields of one line.

    Raises:
        DatasetError: It is no JSON object.
    """
    try:
        values = json_text.decode(line)
    except ValueError as error:
        raise DatasetError(str(error), source=source, line=number) from error
    if not isinstance(values, dict):
        raise DatasetError("is not a JSON object", source=source, line=number)
    return Fields(values, source, number)


def in_ascii(lines: bytes) -> bytes:
    """Escape what is beyond ASCII in lines of JSON."""
    return lines if lines.isascii() else lines.decode().encode("ascii", JSON_ESCAPE)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(JSON_ESCAPE, _escape)
