"""Verdict lines as Parquet: one column per key, for those who analyse millions of verdicts.

`metadata` and `call_errors` are JSON texts, and so is `cost_usd` a text, as no column type holds
every decimal. A text that UTF-8 cannot hold, half a surrogate pair in it, is stored as a JSON
string literal, and the row's `escaped` names its column.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

from aegish_dist.core.recording import Recording
from aegish_dist.core.sample import Sample, Target
from aegish_dist.core.verdict import Outcome, Verdict
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.parquet import ParquetLimits, bounded_batches, load_pyarrow, open_parquet
from aegish_dist.recordings import json_text
from aegish_dist.recordings.fields import Fields
from aegish_dist.recordings.plain_record import PlainRecord, plain_texts
from aegish_dist.recordings.record import from_record, to_record

ROWS_PER_GROUP = 10_000
ROWS_PER_BATCH = 2_000
LIMITS = ParquetLimits(rows=2**40, group_rows=2**20, group_bytes=2**30, batch_bytes=256 * 2**20)
"""A group of rows is held in memory; other tools write up to 2**20 rows into one."""
INTEGERS = (
    *("epoch", "generation", "attempts", "parser_version", "input_tokens", "output_tokens"),
    *("reasoning_tokens", "cache_read_tokens", "cache_write_tokens"),
)
FLOATS = ("latency_ms", "queue_ms", "limiter_ms", "backoff_ms", "total_ms", "confidence")
NESTED = ("metadata", "call_errors")
ESCAPED = "escaped"
HALF = re.compile("[\ud800-\udfff]")

_BLANK = Recording("", "", Sample("", Target.HARMLESS), 1, Verdict(Outcome.ALLOW, None))
COLUMNS = (*to_record(_BLANK), ESCAPED)


def read_verdict_parquet(path: Path, start: int = 0) -> Iterator[Recording]:
    """Read a file row by row, counting rows from 1 where errors name a line.

    Args:
        path: The file.
        start: Row group to begin with.

    Raises:
        DatasetError: The file cannot be read, or a row is wrong; names row and field.
        ConfigError: pyarrow is not installed.
    """
    source = str(path)
    with open_parquet(path, LIMITS) as file:
        groups = range(start, file.num_row_groups)
        skipped = sum(file.metadata.row_group(group).num_rows for group in range(start))
    rows = (row for batch in parquet_batches(path, groups) for row in batch_rows(batch, source))
    for number, row in enumerate(rows, skipped + 1):
        yield from_record(row_fields(row, source, number))


def write_verdict_parquet(recordings: Iterable[Recording], stream: IO[bytes]) -> None:
    """Write all recordings, a group of rows at a time.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    arrow = load_pyarrow()
    rows = (_columns(to_record(recording)) for recording in recordings)
    schema = _schema(arrow)
    with arrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        while group := list(islice(rows, ROWS_PER_GROUP)):
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))


class RecordTables:
    """Exported text to tables of Arrow, and these to a file."""

    def __init__(self) -> None:
        """Prepare.

        Raises:
            ConfigError: pyarrow is not installed.
        """
        self._arrow = load_pyarrow()
        self._schema = _schema(self._arrow)

    def from_csv(self, data: bytes) -> Any:
        """Read CSV with a header; null is empty, the empty text is quoted."""
        csv, types = self._arrow.csv, {field.name: field.type for field in self._schema}
        moment = types.pop("created_at")
        table = csv.read_csv(
            self._arrow.BufferReader(data),
            read_options=csv.ReadOptions(block_size=max(len(data), 1)),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types={**types, "created_at": moment},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )
        nothing = self._arrow.array([[]] * len(table), types[ESCAPED])
        return table.append_column(ESCAPED, nothing).select(self._schema.names)

    def from_lines(self, data: bytes) -> Any:
        """Read lines of JSON, which may hold what UTF-8 cannot."""
        rows = [_columns(_typed(json_text.decode(line))) for line in data.splitlines()]
        return self._arrow.Table.from_pylist(rows, schema=self._schema)

    def write(self, tables: Iterable[Any], stream: IO[bytes]) -> None:
        """Write each table as a group of rows."""
        writer = self._arrow.parquet.ParquetWriter(stream, self._schema, compression="zstd")
        with writer:
            for table in tables:
                if len(table):
                    writer.write_table(table)


def _typed(record: Any) -> dict[str, Any]:
    moment = record["created_at"]
    numbers = {key: float(record[key]) for key in FLOATS if record[key] is not None}
    created_at = None if moment is None else datetime.fromisoformat(moment)
    return {**record, **numbers, "created_at": created_at}


def group_edges(path: Path) -> list[int]:
    """Return the numbers at which chunks of row groups begin and end.

    Raises:
        DatasetError: It cannot be read as Parquet.
        ConfigError: pyarrow is not installed.
    """
    with open_parquet(path, LIMITS) as file:
        return list(range(file.num_row_groups + 1))


def parquet_batches(path: Path, groups: Sequence[int]) -> Iterator[Any]:
    """Yield some groups of rows in batches.

    Raises:
        DatasetError: It cannot be read as Parquet.
        ConfigError: pyarrow is not installed.
    """
    with open_parquet(path, LIMITS) as file:
        yield from bounded_batches(file, str(path), LIMITS, ROWS_PER_BATCH, groups)


def batch_rows(batch: Any, source: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch.

    Raises:
        DatasetError: A column holds what is no text or no time, whatever its type says.
    """
    names, nothing = batch.schema.names, [None] * len(batch)
    try:
        columns = [
            nothing if column.null_count == len(batch) else column.to_pylist()
            for column in batch.columns
        ]
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"cannot be read as Parquet: {error}", source=source) from error
    yield from (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def plain_rows(batch: Any) -> Iterable[dict[str, Any]]:
    """Return the rows of a batch as `plain.plain_row` takes them, without what is nowhere given.

    Rows are empty where none is plain, or a column holds what is no text or no time, whatever its
    type says.
    """
    names = [name for name in batch.schema.names if name in PlainRecord.__struct_fields__]
    try:
        columns = {name: _plain_column(name, batch.column(name)) for name in names}
    # Of columns that share a name, or hold what their type cannot.
    except (KeyError, ValueError, OverflowError):
        return [{}] * len(batch)
    given = {name: column for name, column in columns.items() if column is not None}
    if "completion" not in given:
        return [{}] * len(batch)
    return (dict(zip(given, row)) for row in zip(*given.values(), strict=True))  # noqa: B905


def _plain_column(name: str, column: Any) -> list[Any] | None:
    arrow = load_pyarrow()
    if column.null_count == len(column) or (name == ESCAPED and not len(column.flatten())):
        return None
    if arrow.types.is_timestamp(column.type):  # a datetime of Python takes ten times as long
        column = column.cast(arrow.string())
    values: list[Any] = column.to_pylist()
    match name:
        case "metadata":
            return [plain_texts(text) if isinstance(text, str) else text for text in values]
        case "call_errors":
            return [() if text == "[]" else text for text in values]
        case _:
            return values


def row_fields(row: Mapping[str, Any], source: str, number: int | None = None) -> Fields:
    """Return the fields of a row, nested and escaped ones decoded."""
    fields = Fields(row, source, number)
    values = dict(row)
    for column in row.keys() & {*NESTED, *_escaped(row)}:
        if isinstance(row[column], str):
            try:
                values[column] = json_text.decode(row[column])
            except ValueError as error:
                raise fields.error(str(error), column) from error
    return Fields(values, source, number)


def _escaped(row: Mapping[str, Any]) -> list[str]:
    columns = row.get(ESCAPED)
    return [each for each in columns if isinstance(each, str)] if isinstance(columns, list) else []


def _columns(record: Mapping[str, Any]) -> dict[str, Any]:
    cost = record["cost_usd"]
    row = {**record, "cost_usd": None if cost is None else str(cost)}
    for column in NESTED:
        value = record[column]
        row[column] = value if isinstance(value, str) else json_text.encode(value)
    escaped = [key for key, value in row.items() if isinstance(value, str) and HALF.search(value)]
    return row | {ESCAPED: escaped} | {key: json_text.encode(row[key]) for key in escaped}


def _schema(arrow: Any) -> Any:
    types = dict.fromkeys(INTEGERS, arrow.int64()) | dict.fromkeys(FLOATS, arrow.float64())
    types |= {
        "answered": arrow.bool_(),
        "simulated": arrow.bool_(),
        "created_at": arrow.timestamp("us", tz="UTC"),
        ESCAPED: arrow.list_(arrow.string()),
    }
    return arrow.schema([(key, types.get(key, arrow.string())) for key in COLUMNS])
