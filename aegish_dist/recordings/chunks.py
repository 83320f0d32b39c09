"""Files in chunks, for several processes to read side by side."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from aegish_dist.core.recording import Cells, Recording, to_cells
from aegish_dist.core.sample import Sample
from aegish_dist.core.verdict import CallError
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.files import open_input
from aegish_dist.inputs.parquet import load_pyarrow
from aegish_dist.recordings.inspect_archive import InspectArchive
from aegish_dist.recordings.inspect_log import read_inspect_log
from aegish_dist.recordings.plain import plain_cells, plain_sample, present, require_label
from aegish_dist.recordings.plain_record import NotPlain, PlainRecord, plain_line, plain_row
from aegish_dist.recordings.record import from_record
from aegish_dist.recordings.verdict_lines import MAX_LINE_BYTES, line_fields, read_verdict_lines
from aegish_dist.recordings.verdict_parquet import (
    batch_rows,
    group_edges,
    parquet_batches,
    plain_rows,
    read_verdict_parquet,
    row_fields,
)

CHUNK_BYTES = 4 * 2**20
MAX_KNOWN = 300_000
"""Samples remembered at most."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a file."""

    path: Path
    start: int
    """First byte of a `.jsonl`, first row group of a `.parquet`, 0 of a log."""
    end: int
    """The first one that is not in it."""


class About(NamedTuple):
    """What a verdict is about."""

    dataset: str
    sample_id: str
    sample: Sample


class Row(NamedTuple):
    """A verdict."""

    model: str
    about: About
    cells: Cells
    simulated: bool = False
    errors: tuple[CallError, ...] = ()
    negative_time: bool = False


def split(path: Path) -> list[Chunk]:
    """Divide a file.

    Raises:
        DatasetError: It cannot be read.
        ConfigError: It is Parquet and pyarrow is not installed.
    """
    match path.suffix.lower():
        case ".jsonl":
            edges = list(_line_edges(path))
        case ".parquet":
            edges = group_edges(path)
        case _:
            with InspectArchive(path):  # refuses what is none before a process is started for it
                edges = [0, 1]
    return [Chunk(path, start, end) for start, end in pairwise(edges)]


def examine(chunk: Chunk) -> None:
    """Read a chunk in which something is wrong again, to find out where in the file that is.

    Raises:
        DatasetError: Names line and field.
    """
    match chunk.path.suffix.lower():
        case ".jsonl":
            recordings = read_verdict_lines(chunk.path, chunk.start)
        case ".parquet":
            recordings = read_verdict_parquet(chunk.path, chunk.start)
        case _:
            recordings = read_inspect_log(chunk.path)
    for _ in recordings:
        pass


class ChunkReader:
    """Reads chunks; remembers what it has seen, since the same samples come with every model."""

    def __init__(self) -> None:
        self._models: set[str] = set()
        self._known: dict[tuple[object, ...], About] = {}

    def read(self, chunk: Chunk) -> Iterator[Row]:
        """Yield the verdicts of a chunk.

        Raises:
            DatasetError: A record is wrong; `examine` tells which.
        """
        source = str(chunk.path)
        match chunk.path.suffix.lower():
            case ".jsonl":
                for line in _lines(chunk):
                    yield self._line(line, source)
            case ".parquet":
                for batch in parquet_batches(chunk.path, range(chunk.start, chunk.end)):
                    yield from self._batch(batch, source)
            case _:
                yield from map(_recorded, read_inspect_log(chunk.path))

    def _line(self, line: bytes, source: str) -> Row:
        try:
            return self._plain(plain_line(line), source)
        except NotPlain:
            return _recorded(from_record(line_fields(line, source)))

    def _batch(self, batch: Any, source: str) -> Iterator[Row]:
        rows = [self._row(row, source) for row in plain_rows(batch)]
        odd = [number for number, row in enumerate(rows) if row is None]
        if odd:
            others = batch_rows(batch.take(load_pyarrow().array(odd)), source)
            for number, other in zip(odd, others, strict=True):
                rows[number] = _recorded(from_record(row_fields(other, source)))
        yield from filter(None, rows)

    def _row(self, row: Mapping[str, Any], source: str) -> Row | None:
        try:
            return self._plain(plain_row(row), source)
        except NotPlain:
            return None

    def _plain(self, record: PlainRecord, source: str) -> Row:
        item = (
            *(record.dataset, record.command, record.target, record.category),
            record.cluster,
        )
        about = self._known.get(item) or self._learn(item, record, source)
        if record.model not in self._models:
            require_label(record.model)
            self._models.add(record.model)
        cells = plain_cells(record)
        return Row(record.model, about, cells, record.simulated or False)

    def _learn(self, item: tuple[object, ...], record: PlainRecord, source: str) -> About:
        sample = plain_sample(record)
        dataset = present(record.dataset) or Path(source).stem
        about = About(dataset, sample.sample_id, sample)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[item] = about
        return about


def _recorded(recording: Recording) -> Row:
    sample = recording.sample
    return Row(
        recording.model,
        About(recording.dataset, sample.sample_id, sample),
        to_cells(recording),
        recording.simulated,
        recording.verdict.call_errors,
        recording.negative_time,
    )


def _lines(chunk: Chunk) -> Iterator[bytes]:
    try:
        with open_input(chunk.path) as file:
            file.seek(chunk.start)
            data = file.read(chunk.end - chunk.start)
        if not data.isascii():
            data.decode()  # what is passed over within a line is not looked at again
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError("cannot be read", source=str(chunk.path)) from error
    for line in data.split(b"\n"):
        if len(line) > MAX_LINE_BYTES:
            raise DatasetError("holds too long a line", source=str(chunk.path))
        if line.strip():
            yield line


def _line_edges(path: Path) -> Iterator[int]:
    try:
        with open_input(path) as file:
            yield 0
            while file.seek(CHUNK_BYTES, os.SEEK_CUR) and file.readline(MAX_LINE_BYTES + 1):
                yield file.tell()
            size = file.seek(0, os.SEEK_END)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise DatasetError(problem, source=str(path)) from error
    yield size
