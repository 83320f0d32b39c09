"""Recorded verdicts of any format, read one by one.

Reading gives facts, judged by today's parser; nothing here knows the database.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from aegish_dist.core.verdict import Recording
from aegish_dist.core.verdict_record import VerdictRecord, verdict_of
from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs.checking import Location
from aegish_dist.interchange.inspect_reader import read_inspect_log
from aegish_dist.interchange.parquet import from_row, numbered_rows
from aegish_dist.interchange.record import RecordChecker, Row, from_line
from aegish_dist.interchange.verdict_lines import numbered_lines

Raw = TypeVar("Raw")


class FileFormat(StrEnum):
    """The formats that verdicts are read in, by the suffix of the file."""

    INSPECT = ".eval"
    LINES = ".jsonl"
    PARQUET = ".parquet"


def format_of(path: Path) -> FileFormat:
    """Return the format that a suffix names."""
    try:
        return FileFormat(path.suffix.lower())
    except ValueError:
        problem = f"cannot be read as verdicts; known are {', '.join(FileFormat)}"
        raise DatasetError(problem, source=str(path)) from None


def read_rows(path: Path, checker: RecordChecker | None = None) -> Iterator[Row]:
    """Yield the verdicts of a file.

    Args:
        checker: Remembers the samples, over several files where they share it.

    Raises:
        DatasetError: The suffix is unknown, the file cannot be read, or a record is wrong; names
            the file, the line or sample, and the field.
        ConfigError: It is Parquet and pyarrow is not installed.
    """
    checker = checker or RecordChecker()
    match format_of(path):
        case FileFormat.LINES:
            return _rows(path, numbered_lines(path), from_line, checker)
        case FileFormat.PARQUET:
            return _rows(path, numbered_rows(path), from_row, checker)
        case FileFormat.INSPECT:
            return (
                checker.row(record, path.stem, negative_time=negative)
                for record, negative in read_inspect_log(path)
            )


def _rows(
    path: Path,
    numbered: Iterable[tuple[int, Raw]],
    decode: Callable[[Raw], VerdictRecord],
    checker: RecordChecker,
) -> Iterator[Row]:
    for number, raw in numbered:
        try:
            row = checker.row(decode(raw), path.stem)
        except InputError as error:
            raise Location(str(path), number).named(error) from None
        yield row


def read_recordings(path: Path) -> Iterator[Recording]:
    """Read the recordings of a file one by one, as its suffix says.

    Args:
        path: A log of Inspect AI (`.eval`), verdict lines (`.jsonl`) or the same as `.parquet`.

    Raises:
        DatasetError: At once when the suffix is none of these; while iterating when the file cannot
            be opened or is wrong somewhere.
        ConfigError: The file is Parquet and pyarrow is not installed.
    """
    return map(_recording, read_rows(path))


def _recording(row: Row) -> Recording:
    return Recording(
        model=row.record.model,
        dataset=row.about.dataset,
        sample=replace(row.about.sample, metadata=row.record.metadata),  # no part of its identity
        epoch=row.record.epoch,
        verdict=verdict_of(row.record),
        generation=row.record.generation,
        simulated=row.record.simulated,
        negative_time=row.negative_time,
    )
