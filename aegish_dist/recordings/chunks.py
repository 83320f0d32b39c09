"""Files in chunks, for several processes to read side by side."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from aegish_dist.core.recording import Cells, Recording, to_cells
from aegish_dist.core.sample import Sample
from aegish_dist.core.verdict import CallError
from aegish_dist.errors import DatasetError
from aegish_dist.recordings.fields import Fields
from aegish_dist.recordings.inspect_log import read_inspect_log
from aegish_dist.recordings.plain import DIGITS, NotPlain, plain_cells
from aegish_dist.recordings.plain_batch import PlainBatches
from aegish_dist.recordings.record import dataset_of, from_record, sample_of
from aegish_dist.recordings.verdict_lines import MAX_LINE_BYTES, line_fields, read_verdict_lines
from aegish_dist.recordings.verdict_parquet import (
    batch_rows,
    group_edges,
    load_pyarrow,
    parquet_batches,
    read_verdict_parquet,
    row_fields,
)

CHUNK_BYTES = 4 * 2**20
MAX_KNOWN = 300_000
"""Samples remembered at most."""
BLANK = " \t\n\r\v\f"
LABELS = ("dataset", "command", "target", "category", "cluster")
ITEM = ("model", *LABELS, "metadata", "simulated")

_DECODER = json.JSONDecoder(parse_float=DIGITS)


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

    def _line(self, line: str, source: str) -> Row:
        try:
            values = _DECODER.decode(line)
            return self._plain(values, plain_cells(values), partial(Fields, values, source))
        # Of what is no JSON, no object, or cannot be a key. It may be readable all the same.
        except (NotPlain, ValueError, RecursionError, AttributeError, TypeError):
            return _recorded(from_record(line_fields(line, source)))

    def _batch(self, batch: Any, source: str) -> Iterator[Row]:
        try:
            cells = PlainBatches(load_pyarrow()).cells(batch)
            items = batch.select([name for name in ITEM if name in batch.schema.names])
        # Of columns that share a name, or hold what their type cannot.
        except (NotPlain, KeyError, ValueError, OverflowError):
            for row in batch_rows(batch, source):
                yield _recorded(from_record(row_fields(row, source)))
            return
        for number, (item, plain) in enumerate(zip(batch_rows(items, source), cells, strict=True)):
            if plain is None:
                (row,) = batch.slice(number, 1).to_pylist()
                yield _recorded(from_record(row_fields(row, source)))
            else:
                yield self._plain(item, plain, partial(row_fields, item, source))

    def _plain(self, values: Mapping[str, Any], cells: Cells, fields: Callable[[], Fields]) -> Row:
        model, labels = values.get("model"), tuple(map(values.get, LABELS))
        about = self._known.get(labels)
        if about is None:
            about = self._learn(labels, fields())
        if model is None or model not in self._models:
            model = fields().required_label("model")
            self._models.add(model)
        return Row(model, about, cells, values.get("simulated") or False)

    def _learn(self, labels: tuple[object, ...], fields: Fields) -> About:
        sample = sample_of(fields)
        about = About(dataset_of(fields), sample.sample_id, sample)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[labels] = about
        return about


def _recorded(recording: Recording) -> Row:
    sample = recording.sample
    return Row(
        recording.model,
        About(recording.dataset, sample.sample_id, sample),
        to_cells(recording),
        recording.simulated,
        recording.verdict.call_errors,
    )


def _lines(chunk: Chunk) -> Iterator[str]:
    try:
        with chunk.path.open("rb") as file:
            file.seek(chunk.start)
            lines = file.read(chunk.end - chunk.start).decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError("cannot be read", source=str(chunk.path)) from error
    for line in lines:
        if len(line) > MAX_LINE_BYTES:
            raise DatasetError("holds too long a line", source=str(chunk.path))
        if line.strip(BLANK):
            yield line.removeprefix("\ufeff")


def _line_edges(path: Path) -> Iterator[int]:
    try:
        with path.open("rb") as file:
            yield 0
            while file.seek(CHUNK_BYTES, os.SEEK_CUR) and file.readline(MAX_LINE_BYTES + 1):
                yield file.tell()
            size = file.seek(0, os.SEEK_END)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise DatasetError(problem, source=str(path)) from error
    yield size
