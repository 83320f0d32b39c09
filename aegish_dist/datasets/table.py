"""Datasets as files: tables in JSONL, CSV or Parquet, and the JSON of the reference benchmark.

A `source` or `licence` that is the same in every row describes the dataset; otherwise its row.
Unknown columns become metadata; in JSONL there may also be a nested `metadata` object. The
reference benchmark labels a command either by `category` (a GTFOBins function, with its `binary`)
or by `ground_truth`.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.text import JsonObject, known
from aegish_dist.datasets.draft import (
    CATEGORIES,
    MAX_FILE_BYTES,
    MAX_SAMPLES,
    Draft,
    Problem,
    SampleRecord,
    dataset_name,
    given,
    to_sample,
)
from aegish_dist.datasets.formats import format_of_checkout, read_format
from aegish_dist.datasets.gtfobins import read_gtfobins
from aegish_dist.errors import DatasetError
from aegish_dist.files import replacing, replacing_text
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import (
    ParquetLimits,
    load_pyarrow,
    open_parquet,
    parse_json,
    read_text,
)

MAX_BYTES = 16 * 2**20  # decoded as a whole, hostile files take twenty times that
_TARGETS = {
    "ALLOW": TrueLabel.HARMLESS,
    "WARN": TrueLabel.MALICIOUS,
    "BLOCK": TrueLabel.MALICIOUS,
}


class _Labels(Struct, frozen=True):
    binary: str | None = None
    category: str | None = None
    ground_truth: str | None = None  # action a guard should take, in any letter case


def read_aegish(path: Path, name: str | None = None) -> Draft:
    """Read a dataset of the reference benchmark."""
    location = Location(str(path))
    with location:
        values = parse_json(read_text(path, MAX_BYTES))
    content = location.checked(values, JsonObject)
    commands = location.checked(content.get("commands"), list[Any], "commands")
    if len(commands) > MAX_SAMPLES:
        raise location.error(f"more than {MAX_SAMPLES:,} samples are not read", "commands")
    about = location.checked(content.get("metadata") or {}, JsonObject, "metadata")
    dataset = dataset_name(path, name)
    samples = []
    for number, entry in enumerate(commands, start=1):
        samples.append(_sample(Location(str(path), number), entry))
    return Draft(
        name=dataset,
        samples=tuple(samples),
        lines=tuple(range(1, len(samples) + 1)),
        file=str(path),
        source=str(about.get("source") or path.name),
        licence=str(about.get("license") or ""),
    )


def _sample(location: Location, entry: object) -> Sample:
    values = location.checked(entry, JsonObject, "commands")
    labels = location.checked(given(values, _Labels), _Labels)
    if labels.category not in (None, *CATEGORIES):
        problem = f"{labels.category!a} is none of {', '.join(CATEGORIES)}"
        raise location.error(problem, "category")

    values["target"] = _target(location, labels)
    values["cluster"] = values.pop("binary", None)
    record = location.checked(given(values, SampleRecord), SampleRecord)
    return to_sample(location, record, values)


def _target(location: Location, labels: _Labels) -> TrueLabel:
    truth = labels.ground_truth
    if truth is None and labels.category:
        return TrueLabel.MALICIOUS
    if truth is None:
        raise location.error("is missing, and there is no category either", "ground_truth")
    if truth.upper() not in _TARGETS:
        raise location.error(f"{truth!a} is none of {', '.join(_TARGETS)}", "ground_truth")
    return _TARGETS[truth.upper()]


def read_dataset(path: Path) -> Draft:
    with Location(str(path)):
        is_there = path.exists()
        form = format_of_checkout(path)

    if not is_there:
        raise DatasetError("no such file or folder", source=str(path))
    if form:
        return read_format(form, path)
    if path.is_dir():
        return read_gtfobins(path)
    if path.suffix.lower() == ".json":
        return read_aegish(path)
    return read_table(path)


_COLUMNS = ("command", "target", "category", "cluster", "source", "licence")


def export_dataset(dataset: Dataset, path: Path) -> None:
    """Write all samples; JSONL keeps all of it, CSV and Parquet flatten the metadata."""
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise DatasetError(f"is none of {', '.join(_WRITERS)}", source=str(path))
    write(dataset, path)


def dataset_lines(dataset: Dataset) -> Iterator[str]:
    for sample in dataset.samples:
        values = {
            "command": sample.command,
            "target": sample.target,
            "category": sample.category,
            "cluster": sample.cluster,
            "source": dataset.source or None,
            "licence": dataset.licence or None,
            "metadata": dict(sample.metadata),
        }
        yield json.dumps(values, ensure_ascii=False) + "\n"


def _write_jsonl(dataset: Dataset, path: Path) -> None:
    with replacing_text(path) as file:
        file.writelines(dataset_lines(dataset))


def _write_csv(dataset: Dataset, path: Path) -> None:
    with replacing_text(path) as file:
        writer = csv.DictWriter(file, _flat_columns(dataset), lineterminator="\n")
        writer.writeheader()
        writer.writerows(_flat(dataset, sample) for sample in dataset.samples)


def _write_parquet(dataset: Dataset, path: Path) -> None:
    arrow = load_pyarrow()
    columns = [(column, arrow.string()) for column in _flat_columns(dataset)]
    rows = [_flat(dataset, sample) for sample in dataset.samples]
    table = arrow.Table.from_pylist(rows, schema=arrow.schema(columns))
    with replacing(path) as stream:
        arrow.parquet.write_table(table, stream)


def _flat_columns(dataset: Dataset) -> list[str]:
    columns = dict.fromkeys(_COLUMNS)
    for sample in dataset.samples:
        columns |= dict.fromkeys(sample.metadata)
    return list(columns)


def _flat(dataset: Dataset, sample: Sample) -> dict[str, str]:
    fields = {
        "source": dataset.source,
        "licence": dataset.licence,
        **sample.metadata,
        "command": sample.command,
        "target": sample.target.value,
        "category": sample.category,
        "cluster": sample.cluster,
    }
    return {column: value for column, value in fields.items() if value}


_WRITERS: dict[str, Callable[[Dataset, Path], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}


MAX_LINE_CHARS = 2**20  # a command may have a hundredth of it
MAX_COLUMNS = 1_000
PARQUET_BATCH_ROWS = 1_000
PARQUET_LIMITS = ParquetLimits(
    rows=MAX_SAMPLES,
    group_rows=MAX_SAMPLES,
    group_bytes=MAX_FILE_BYTES,
    batch_bytes=MAX_FILE_BYTES,
)
Records = Iterator[tuple[Location, JsonObject]]  # by column, and where it stands
_LINE = re.compile("^.*", re.MULTILINE)
_REQUIRED = ("command", "target")
_MEANT = {
    "cmd": "command",
    "commands": "command",
    "label": "target",
    "labels": "target",
}


def read_table(path: Path, name: str | None = None) -> Draft:
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise DatasetError(f"is none of {', '.join(_READERS)}", source=str(path))
    name = dataset_name(path, name)
    lines: list[int] = []
    samples: list[Sample] = []
    records: list[_TableRecord] = []
    refused: list[Problem] = []
    for location, values in read(path):
        if len(lines) + len(refused) == MAX_SAMPLES:
            raise location.error(f"more than {MAX_SAMPLES:,} samples are not read")
        try:
            record = location.checked(given(values, _TableRecord), _TableRecord)
            samples.append(to_sample(location, record, values))
            lines.append(location.line or 0)
            records.append(record)
        except DatasetError as error:
            refused.append(Problem(location.line or 0, error.field, error.problem))

    # Where rows differ, each keeps its own source and licence among its metadata.
    sources = {record.source for record in records}
    licences = {record.licence for record in records}
    for number, record in enumerate(records):
        own = {
            "source": record.source if len(sources) > 1 else None,
            "licence": record.licence if len(licences) > 1 else None,
        }
        if texts := known(own):
            metadata = {**texts, **samples[number].metadata}
            samples[number] = replace(samples[number], metadata=metadata)

    return Draft(
        name=name,
        samples=tuple(samples),
        lines=tuple(lines),
        file=str(path),
        source=_common(sources) or path.name,
        licence=_common(licences) or "",
        refused=tuple(refused),
    )


class _TableRecord(SampleRecord, frozen=True, kw_only=True):
    source: str | None = None
    licence: str | None = None


def _common(texts: set[str | None]) -> str | None:
    """Return the text that all records have; None where they differ."""
    if len(texts) == 1:
        return texts.pop()
    return None


def _read_jsonl(path: Path) -> Records:
    with Location(str(path)):
        text = read_text(path, MAX_FILE_BYTES)
    # Not splitlines: U+2028 and its like are legal inside a JSON string, and a list of all lines
    # takes as much memory again.
    for number, found in enumerate(_LINE.finditer(text), start=1):
        line = found[0]
        location = Location(str(path), number)
        if len(line) > MAX_LINE_CHARS:
            raise location.error(f"is longer than {MAX_LINE_CHARS:,} characters")
        if line.strip():
            with location:
                values = parse_json(line)
            yield location, location.checked(values, JsonObject)


def _read_csv(path: Path) -> Records:
    with Location(str(path)):
        text = read_text(path, MAX_FILE_BYTES)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    location = Location(str(path), 1)
    try:
        header = next(reader, [])
        _check_header(header, location)
        location = Location(str(path), reader.line_num + 1)
        for cells in reader:
            if cells and len(cells) != len(header):
                raise location.error(f"has {len(cells)} cells, the header has {len(header)}")
            if cells:
                values = [cell or None for cell in cells]
                yield location, dict(zip(header, values, strict=True))
            # A quoted newline makes a record longer than a line.
            location = Location(str(path), reader.line_num + 1)
    except csv.Error as error:
        raise location.error(f"is not CSV: {error}") from error


def _check_header(header: list[str], location: Location) -> None:
    if len(header) > MAX_COLUMNS:
        raise location.error(f"has more than {MAX_COLUMNS:,} columns")
    for name in _REQUIRED:
        if name not in header:
            raise location.error(_missing(header), name)

    if "" in header:
        raise location.error("a column needs a name")
    for name, times in Counter(header).items():
        if times > 1:
            raise location.error("the column is there twice", name)


def _missing(header: list[str]) -> str:
    named = ", ".join(header)[:200]
    renames = []
    for name in header:
        meant = _MEANT.get(name.lower())
        if meant is not None:
            renames.append(f"{name} to {meant}")

    problem = f"there is no such column; found: {named}"
    if renames:
        problem += f"; rename {', '.join(renames)}"
    return problem


def _read_parquet(path: Path) -> Records:
    with open_parquet(path, PARQUET_LIMITS, PARQUET_BATCH_ROWS) as batches:
        numbers = count(1)
        for batch in batches:
            for values in batch.to_pylist():
                yield Location(str(path), next(numbers)), values


_READERS: dict[str, Callable[[Path], Records]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
