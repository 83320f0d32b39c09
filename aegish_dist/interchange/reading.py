"""Recorded verdicts of any format, read in chunks.

Reading gives facts, judged by today's parser; nothing here knows the database.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeVar

from aegish_dist.core.verdict import Recording
from aegish_dist.core.verdict_record import VerdictRecord, verdict_of
from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs.checking import Location
from aegish_dist.interchange.inspect_archive import InspectArchive
from aegish_dist.interchange.inspect_reader import read_inspect_log
from aegish_dist.interchange.parquet import from_row, group_edges, numbered_rows, rows_before
from aegish_dist.interchange.record import RecordChecker, Row, from_line
from aegish_dist.interchange.verdict_lines import line_edges, lines_before, numbered_lines

Raw = TypeVar("Raw")


class FileFormat(StrEnum):
    """The formats that verdicts are read in, by the suffix of the file."""

    INSPECT = ".eval"
    LINES = ".jsonl"
    PARQUET = ".parquet"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a file."""

    path: Path
    start: int
    """First byte of a `.jsonl`, first row group of a `.parquet`, 0 of a log."""
    end: int
    """The first byte or row group that is not in it."""


def format_of(path: Path) -> FileFormat:
    """Return the format that a suffix names."""
    try:
        return FileFormat(path.suffix.lower())
    except ValueError:
        problem = f"cannot be read as verdicts; known are {', '.join(FileFormat)}"
        raise DatasetError(problem, source=str(path)) from None


def split(path: Path) -> list[Chunk]:
    """Divide a file.

    Raises:
        ConfigError: It is Parquet and pyarrow is not installed.
    """
    match format_of(path):
        case FileFormat.LINES:
            edges = line_edges(path)
        case FileFormat.PARQUET:
            edges = group_edges(path)
        case FileFormat.INSPECT:
            with InspectArchive(path):  # refuses what is none before a process is started for it
                edges = [0, 1]
    return [Chunk(path, start, end) for start, end in pairwise(edges)]


class ChunkReader:
    """Reads chunks; remembers the samples that it has seen."""

    def __init__(self) -> None:
        self._checker = RecordChecker()

    def read(self, chunk: Chunk) -> Iterator[Row]:
        """Yield the verdicts of a chunk.

        Raises:
            DatasetError: A record is wrong; names the file, the line or sample, and the field.
        """
        path, start = chunk.path, chunk.start
        match format_of(path):
            case FileFormat.LINES:
                lines = numbered_lines(path, start, chunk.end)
                return self._rows(path, lines, from_line, lambda: lines_before(path, start))
            case FileFormat.PARQUET:
                rows = numbered_rows(path, range(start, chunk.end))
                return self._rows(path, rows, from_row, lambda: rows_before(path, start))
            case FileFormat.INSPECT:
                return (
                    self._checker.row(record, path.stem, negative_time=negative)
                    for record, negative in read_inspect_log(path)
                )

    def _rows(
        self,
        path: Path,
        numbered: Iterable[tuple[int, Raw]],
        decode: Callable[[Raw], VerdictRecord],
        before: Callable[[], int],
    ) -> Iterator[Row]:
        for number, raw in numbered:
            try:
                row = self._checker.row(decode(raw), path.stem)
            except InputError as error:
                raise Location(str(path), before() + number).named(error) from None
            yield row


def read_recordings(path: Path) -> Iterator[Recording]:
    """Read the recordings of a file one by one, as its suffix says.

    Args:
        path: A log of Inspect AI (`.eval`), verdict lines (`.jsonl`) or the same as `.parquet`.

    Raises:
        DatasetError: At once when the suffix is none of these or the file cannot be opened; while
            iterating when the file is wrong somewhere.
        ConfigError: The file is Parquet and pyarrow is not installed.
    """
    return map(_recording, chain.from_iterable(map(ChunkReader().read, split(path))))


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
