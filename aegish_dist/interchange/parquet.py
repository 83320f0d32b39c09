"""Verdict lines as Parquet: one column per key, for those who analyse millions of verdicts.

`metadata` and `call_errors` are JSON texts, and so is `cost_usd` a text, as no column type holds
every decimal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.inspect import BoolType, DictType, FloatType, IntType, VarTupleType

from aegish_dist.core.text import REPLACEMENT
from aegish_dist.core.verdict_record import FIELDS, RecordField, VerdictRecord
from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs.documents import parse_json
from aegish_dist.inputs.parquet import ParquetLimits, bounded_batches, load_pyarrow, open_parquet
from aegish_dist.interchange.record import FACTS, from_values

ROWS_PER_BATCH = 2_000
LIMITS = ParquetLimits(rows=2**40, group_rows=2**20, group_bytes=2**30, batch_bytes=256 * 2**20)
"""A group of rows is held in memory; other tools write up to 2**20 rows into one."""
NESTED = {each.name for each in FIELDS if isinstance(each.kind, DictType | VarTupleType)}

_TEXTS = msgspec.json.Decoder(dict[str, str])


def numbered_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file, without what is null in a whole batch, from number 1 on.

    Raises:
        DatasetError: It cannot be read as Parquet, or a column holds what its type cannot.
    """
    number = 0
    with open_parquet(path, LIMITS) as file:
        for batch in bounded_batches(file, str(path), LIMITS, ROWS_PER_BATCH):
            try:
                rows = _rows(batch)
            except OverflowError as error:  # a time that no calendar has
                problem = f"cannot be read as Parquet: {error}"
                raise DatasetError(problem, source=str(path)) from error
            for row in rows:
                number += 1
                yield number, row


def _rows(batch: Any) -> Iterable[dict[str, Any]]:
    columns = zip(batch.schema.names, batch.columns, strict=True)
    known = {name: column for name, column in columns if name in FACTS}
    given = {name: column for name, column in known.items() if column.null_count < len(column)}
    if "completion" in known:
        given["completion"] = known["completion"]
    values = [_values(name, column) for name, column in given.items()]
    if not values:
        return ({} for _ in range(len(batch)))
    return (dict(zip(given, row)) for row in zip(*values))  # noqa: B905  # of equal length


def _values(name: str, column: Any) -> list[Any]:
    arrow = load_pyarrow()
    # As text, since a datetime of Python takes ten times as long; nanoseconds would be cut off.
    if arrow.types.is_timestamp(column.type) and column.type.unit != "ns":
        arrow.compute.min_max(column).as_py()  # refuses what no calendar has
        column = column.cast(arrow.string())
    if arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type):
        column = arrow.compute.replace_substring(column, "\0", REPLACEMENT)
    values: list[Any] = column.to_pylist()
    if arrow.types.is_timestamp(column.type):
        return [None if moment is None else moment.isoformat() for moment in values]
    if name == "metadata":
        return [_texts(text) if isinstance(text, str) else text for text in values]
    if name == "call_errors":
        return [() if text == "[]" else text for text in values]
    return values


@lru_cache(10_000)
def _texts(encoded: str) -> dict[str, str] | str:
    """Decode an object of plain texts; anything else stays for `from_row` to look at."""
    with suppress(ValueError, RecursionError):
        if "\\u0000" not in encoded:
            return _TEXTS.decode(encoded)
    return encoded


def from_row(row: Mapping[str, Any]) -> VerdictRecord:
    """Build a record from a row of a table.

    Raises:
        InputError: A field is missing, of the wrong type or out of range.
    """
    if "completion" in row:
        with suppress(ValueError, RecursionError):  # null where nothing may be null, or an error
            return msgspec.convert(row, VerdictRecord)
    return from_odd_row(row)


def from_odd_row(row: Mapping[str, Any]) -> VerdictRecord:
    """Build a record from a row whose columns have the types of other tools."""
    values = dict(row)
    for column in row.keys() & NESTED:
        if isinstance(row[column], str):
            try:
                values[column] = parse_json(row[column], Decimal)
            except InputError as error:
                raise error.below(column) from None
    return from_values(values)


class RecordTables:
    """Exported text to tables of Arrow, and these to a file."""

    def __init__(self, judged: Sequence[str] = (), about: Mapping[str, str] | None = None) -> None:
        """Prepare.

        Args:
            judged: Names of further columns that are true, false or null; no reader reads them.
        """
        self._arrow = load_pyarrow()
        types = [(each.name, _arrow_type(self._arrow, each)) for each in FIELDS]
        further = [(name, self._arrow.bool_()) for name in judged]
        self.schema = self._arrow.schema([*types, *further], metadata=about)

    def from_csv(self, data: bytes) -> Any:
        """Read CSV with a header; null is empty, the empty text is quoted."""
        csv, types = self._arrow.csv, {field.name: field.type for field in self.schema}
        return csv.read_csv(
            self._arrow.BufferReader(data),
            read_options=csv.ReadOptions(block_size=max(len(data), 1)),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )

    def write(self, tables: Iterable[Any], stream: IO[bytes]) -> None:
        """Write each table as a group of rows."""
        writer = self._arrow.parquet.ParquetWriter(stream, self.schema, compression="zstd")
        with writer:
            for table in tables:
                if len(table):
                    writer.write_table(table)


def _arrow_type(arrow: Any, field: RecordField) -> Any:
    match field.kind:
        case IntType():
            return arrow.int64()
        case FloatType():
            return arrow.float64()
        case BoolType():
            return arrow.bool_()
        case _ if field.is_moment:
            return arrow.timestamp("us", tz="UTC")
        case _:
            return arrow.string()
