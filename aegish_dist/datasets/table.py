"""Datasets as tables: JSONL, CSV or Parquet with the columns of a sample.

Columns: `command`, `target`, `category`, `cluster`, `source`, `licence`. A `source` or `licence`
that is the same in every row describes the dataset; otherwise it describes its row. Any other
column becomes metadata; in JSONL there may also be a nested `metadata` object.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from aegish_dist.core.sample import Dataset
from aegish_dist.datasets.draft import Draft, dataset_name, read_text
from aegish_dist.datasets.parquet import read_parquet
from aegish_dist.datasets.rows import Row
from aegish_dist.errors import DatasetError

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
    rows = list(read(path))
    source, licence = _same_in_all(rows, "source"), _same_in_all(rows, "licence")
    common = {"source": source, "licence": licence}
    own = [_without(row, [field for field, value in common.items() if value]) for row in rows]
    return Draft(
        name=name,
        samples=tuple(row.sample() for row in own),
        lines=tuple(row.line for row in own),
        file=str(path),
        source=source or path.name,
        licence=licence or "",
    )


def _same_in_all(rows: list[Row], field: str) -> str | None:
    values = {row.optional_text(field) for row in rows}
    return values.pop() if len(values) == 1 else None


def _without(row: Row, fields: list[str]) -> Row:
    kept = {field: value for field, value in row.values.items() if field not in fields}
    return Row(row.file, row.line, kept)


def _read_jsonl(path: Path) -> Iterator[Row]:
    # Not splitlines: U+2028 and its like are legal inside a JSON string.
    for line, text in enumerate(read_text(path).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", error)
            raise DatasetError(f"is not JSON: {reason}", source=str(path), line=line) from error
        if not isinstance(values, dict):
            raise DatasetError("is not a JSON object", source=str(path), line=line)
        yield Row(str(path), line, values)


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
