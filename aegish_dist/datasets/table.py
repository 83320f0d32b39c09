"""Datasets as tables: JSONL, CSV or Parquet with the columns of a sample.

Columns: `command`, `target`, `category`, `cluster`, `source`, `licence`. A `source` or `licence`
that is the same in every row describes the dataset; otherwise it describes its row. Any other
column becomes metadata; in JSONL there may also be a nested `metadata` object.
"""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from aegish_dist.core.sample import Dataset, Sample
from aegish_dist.datasets.draft import MAX_SAMPLES, Draft, dataset_name, read_text
from aegish_dist.datasets.parquet import read_parquet
from aegish_dist.datasets.rows import Row, decode_json
from aegish_dist.errors import DatasetError

MAX_LINE_CHARS = 2**20
"""Of JSON; a command may have a hundredth of it."""
MAX_COLUMNS = 1_000
_REQUIRED = ("command", "target")


def import_table(path: Path, name: str | None = None) -> Dataset:
    """Read and check a table of samples.

    Args:
        path: A file ending in `.jsonl`, `.csv` or `.parquet`.
        name: Name of the dataset; None takes it from the file's name.

    Raises:
        DatasetError: For the first thing wrong, naming file, line and field.
        ConfigError: When Parquet is asked for and pyarrow is not installed.
    """
    return read_table(path, name).checked()


def read_table(path: Path, name: str | None = None) -> Draft:
    """Read a table of samples without the label checks; see `import_table`."""
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise DatasetError(f"is none of {', '.join(_READERS)}", source=str(path))
    name = dataset_name(path, name)
    lines: list[int] = []
    samples: list[Sample] = []
    about: list[_About] = []
    for row in read(path):
        if len(lines) == MAX_SAMPLES:
            problem = f"more than {MAX_SAMPLES:,} samples are not read"
            raise DatasetError(problem, source=str(path), line=row.line)
        lines.append(row.line)
        about.append(_About(row.optional_text("source"), row.optional_text("licence")))
        samples.append(_without_about(row).sample())
    common = _About(*(_same_in_all(values) for values in zip(*about, strict=True)))
    return Draft(
        name=name,
        samples=tuple(map(partial(_described, common), samples, about)),
        lines=tuple(lines),
        file=str(path),
        source=common.source or path.name,
        licence=common.licence or "",
    )


class _About(NamedTuple):
    """Where a sample, or all of them, come from."""

    source: str | None = None
    licence: str | None = None


def _same_in_all(values: tuple[str | None, ...]) -> str | None:
    return values[0] if len(set(values)) == 1 else None


def _without_about(row: Row) -> Row:
    kept = {field: value for field, value in row.values.items() if field not in _About._fields}
    return Row(row.file, row.line, kept)


def _described(common: _About, sample: Sample, about: _About) -> Sample:
    """Return a sample whose metadata hold what does not hold for all."""
    own = {
        field: value
        for field, value, of_all in zip(_About._fields, about, common, strict=True)
        if value is not None and of_all is None
    }
    return replace(sample, metadata={**own, **sample.metadata}) if own else sample


def _read_jsonl(path: Path) -> Iterator[Row]:
    # Not splitlines: U+2028 and its like are legal inside a JSON string.
    for line, text in enumerate(_split(read_text(path)), start=1):
        if len(text) > MAX_LINE_CHARS:
            problem = f"is longer than {MAX_LINE_CHARS:,} characters"
            raise DatasetError(problem, source=str(path), line=line)
        if text.strip():
            yield Row(str(path), line, _object(text, path, line))


def _split(text: str) -> Iterator[str]:
    """Yield the lines one by one: a list of all takes as much memory again."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _object(text: str, path: Path, line: int) -> dict[str, object]:
    try:
        values = decode_json(text)
    except ValueError as error:
        reason = getattr(error, "msg", error)
        raise DatasetError(f"is not JSON: {reason}", source=str(path), line=line) from error
    if not isinstance(values, dict):
        raise DatasetError("is not a JSON object", source=str(path), line=line)
    return values


def _read_csv(path: Path) -> Iterator[Row]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    line = 1
    try:
        header = next(reader, [])
        _check_header(header, path)
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                yield Row(str(path), line, _cells_by_column(header, cells, path, line))
            line = reader.line_num + 1  # a quoted newline makes a record longer than a line
    except csv.Error as error:
        raise DatasetError(f"is not CSV: {error}", source=str(path), line=line) from error


def _check_header(header: list[str], path: Path) -> None:
    if len(header) > MAX_COLUMNS:
        raise DatasetError(f"has more than {MAX_COLUMNS:,} columns", source=str(path), line=1)
    for column in _REQUIRED:
        if column not in header:
            raise DatasetError("there is no such column", source=str(path), line=1, field=column)
    for column in header:
        if not column or header.count(column) > 1:
            problem = "a column needs a name" if not column else "the column is there twice"
            raise DatasetError(problem, source=str(path), line=1, field=column)


def _cells_by_column(
    header: list[str], cells: list[str], path: Path, line: int
) -> dict[str, str | None]:
    if len(cells) != len(header):
        problem = f"has {len(cells)} cells, the header has {len(header)}"
        raise DatasetError(problem, source=str(path), line=line)
    return {column: cell or None for column, cell in zip(header, cells, strict=True)}


def _read_parquet(path: Path) -> Iterator[Row]:
    for record, values in enumerate(read_parquet(path), start=1):
        yield Row(str(path), record, values)


_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
