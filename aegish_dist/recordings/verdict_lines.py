"""Verdict lines: one JSON object per line, the format that other tools read and write."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO

from aegish_dist.core.recording import Recording
from aegish_dist.errors import DatasetError
from aegish_dist.recordings import json_text
from aegish_dist.recordings.fields import Fields
from aegish_dist.recordings.record import from_record, to_record

MAX_LINE_BYTES = 64 * 2**20
"""A longer line is no verdict."""


def read_verdict_lines(path: Path) -> Iterator[Recording]:
    """Read a file line by line; blank lines are passed over.

    Raises:
        DatasetError: The file cannot be read, or a line is wrong; names line and field.
    """
    source = str(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file), 1):
                if len(line) > MAX_LINE_BYTES:
                    problem = f"is longer than {MAX_LINE_BYTES} bytes"
                    raise DatasetError(problem, source=source, line=number)
                if line.strip():
                    yield from_record(_fields(line, source, number))
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise DatasetError(problem, source=source) from error


def write_verdict_lines(recordings: Iterable[Recording], stream: IO[str]) -> None:
    """Write each recording as one line of ASCII."""
    for recording in recordings:
        stream.write(json_text.encode(to_record(recording)) + "\n")


def _lines(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.readline(MAX_LINE_BYTES + 1), b"")


def _fields(line: bytes, source: str, number: int) -> Fields:
    try:
        values = json_text.decode(line)
    except ValueError as error:
        raise DatasetError(str(error), source=source, line=number) from error
    if not isinstance(values, dict):
        raise DatasetError("is not a JSON object", source=source, line=number)
    return Fields(values, source, number)
