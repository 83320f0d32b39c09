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
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
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
from aegish_dist.inputs.checking import Location, refuse
from aegish_dist.inputs.documents import (
    ParquetLimits,
    load_pyarrow,
    open_parquet,
    parse_json,
    read_text,
)

MAX_BYTES = 16 * 2**20  # decoded as a whole, hostile files take twenty times that
_TARGETS = {"ALLOW": TrueLabel.HARMLESS, "WARN": TrueLabel.MALICIOUS, "BLOCK": TrueLabel.MALICIOUS}


class _Labels(Struct, frozen=True):
    binary: str | None = None
    category: str | None = None
    ground_truth: str | None = None  # action a guard should take, in any letter case


def read_aegish(path: Path, name: str | None = None) -> Draft:
    """Read a dataset of the reference benchmark."""
    location = Location(str(path))
    with location:
        values = parse_json(read_text(path, MAX_BYTES))
    content = location.checked(values, dict[str, Any])
    commands = location.checked(content.get("commands"), list[Any], "commands")
    if len(commands) > MAX_SAMPLES:
        raise location.error(f"more than {MAX_SAMPLES:,} samples are not read", "commands")
    about = location.checked(content.get("metadata") or {}, dict[str, Any], "metadata")
    return Draft(
        name=dataset_name(path, name),
        samples=tuple(
            _sample(Location(str(path), record), each) for record, each in enumerate(commands, 1)
        ),
        lines=tuple(range(1, len(commands) + 1)),
        file=str(path),
        source=str(about.get("source") or path.name),
        licence=str(about.get("license") or ""),
    )


def _sample(location: Location, entry: object) -> Sample:
    values = location.checked(entry, dict[str, Any], "commands")
    labels = location.checked(given(values, _Labels), _Labels)
    if labels.category is not None and labels.category not in CATEGORIES:
        raise location.error(f"{labels.category!a} is none of {', '.join(CATEGORIES)}", "category")
    fields = {**values, "target": _target(location, labels), "cluster": labels.binary}
    fields.pop("binary", None)
    return to_sample(location, location.checked(given(fields, SampleRecord), SampleRecord), fields)


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
    if not path.exists():
        raise DatasetError("no such file or folder", source=str(path))
    if form := format_of_checkout(path):
        return read_format(form, path)
    if path.is_dir():
        return read_gtfobins(path)
    return read_aegish(path) if path.suffix.lower() == ".json" else read_table(path)


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
    schema = arrow.schema([(column, arrow.string()) for column in _flat_columns(dataset)])
    rows = [_flat(dataset, sample) for sample in dataset.samples]
    with replacing(path) as stream:
        arrow.parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), stream)


def _flat_columns(dataset: Dataset) -> list[str]:
    keys = dict.fromkeys(key for sample in dataset.samples for key in sample.metadata)
    return [*_COLUMNS, *(key for key in keys if key not in _COLUMNS)]


def _flat(dataset: Dataset, sample: Sample) -> dict[str, str]:
    fields = {"source": dataset.source, "licence": dataset.licence, **sample.metadata}
    fields |= {"command": sample.command, "target": sample.target.value}
    fields |= {"category": sample.category or "", "cluster": sample.cluster or ""}
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
    rows=MAX_SAMPLES, group_rows=MAX_SAMPLES, group_bytes=MAX_FILE_BYTES, batch_bytes=MAX_FILE_BYTES
)
Records = Iterator[tuple[Location, Mapping[str, object]]]  # by column, and where it stands
_LINE = re.compile("^.*", re.MULTILINE)
_REQUIRED = ("command", "target")
_MEANT = {"cmd": "command", "commands": "command", "label": "target", "labels": "target"}


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
    common = {
        field: all_have.pop()
        for field in ("source", "licence")
        if len(all_have := {getattr(record, field) for record in records}) == 1
    }
    return Draft(
        name=name,
        samples=tuple(map(partial(_described, common), samples, records)),
        lines=tuple(lines),
        file=str(path),
        source=common.get("source") or path.name,
        licence=common.get("licence") or "",
        refused=tuple(refused),
    )


class _TableRecord(SampleRecord, frozen=True, kw_only=True):
    source: str | None = None
    licence: str | None = None


def _described(common: Collection[str], sample: Sample, record: _TableRecord) -> Sample:
    texts = {"source": record.source, "licence": record.licence}
    own = {key: text for key, text in texts.items() if text is not None and key not in common}
    return replace(sample, metadata={**own, **sample.metadata}) if own else sample


def _read_jsonl(path: Path) -> Records:
    with Location(str(path)):
        text = read_text(path, MAX_FILE_BYTES)
    # Not splitlines: U+2028 and its like are legal inside a JSON string, and a list of all lines
    # takes as much memory again.
    for number, line in enumerate(map(itemgetter(0), _LINE.finditer(text)), start=1):
        location = Location(str(path), number)
        if len(line) > MAX_LINE_CHARS:
            raise location.error(f"is longer than {MAX_LINE_CHARS:,} characters")
        if line.strip():
            with location:
                values = parse_json(line)
            yield location, location.checked(values, dict[str, Any])


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
            if len(cells) not in (0, len(header)):
                raise location.error(f"has {len(cells)} cells, the header has {len(header)}")
            if cells:
                yield location, dict(zip(header, (cell or None for cell in cells), strict=True))
            # A quoted newline makes a record longer than a line.
            location = Location(str(path), reader.line_num + 1)
    except csv.Error as error:
        raise location.error(f"is not CSV: {error}") from error


def _check_header(header: list[str], location: Location) -> None:
    if len(header) > MAX_COLUMNS:
        raise location.error(f"has more than {MAX_COLUMNS:,} columns")
    renames = [f"{name} to {_MEANT[name.lower()]}" for name in header if name.lower() in _MEANT]
    missing = f"there is no such column; found: {', '.join(header)[:200]}"
    missing += f"; rename {', '.join(renames)}" if renames else ""
    with location:
        refuse(
            *((name not in header, name, missing) for name in _REQUIRED),
            *((not name, name, "a column needs a name") for name in header),
            *((n > 1, name, "the column is there twice") for name, n in Counter(header).items()),
        )


def _read_parquet(path: Path) -> Records:
    with open_parquet(path, PARQUET_LIMITS, PARQUET_BATCH_ROWS) as batches:
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, values in enumerate(rows, 1):
            yield Location(str(path), number), values


_READERS: dict[str, Callable[[Path], Records]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
