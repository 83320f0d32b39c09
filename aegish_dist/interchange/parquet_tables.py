"""Rows of the store as Parquet: verdicts for other tools, and whole tables, exact, there and back.

Numbers of any size, JSON and lists are texts as PostgreSQL writes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from msgspec.inspect import BoolType, FloatType, IntType

from aegish_dist.core.verdict_record import FIELDS, RecordField
from aegish_dist.inputs.documents import ParquetLimits, bounded_batches, load_pyarrow, open_parquet

BLOCK_BYTES = 32 * 2**20  # become a group of rows; a row must not be longer
ROWS_PER_BATCH = 20_000
LIMITS = ParquetLimits(rows=2**40, group_rows=2**24, group_bytes=2**30, batch_bytes=2**29)
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


class RecordTables:
    """Verdicts exported as CSV to tables of Arrow, and these to a file."""

    def __init__(self, judged: Sequence[str] = (), about: Mapping[str, str] | None = None) -> None:
        self._arrow = load_pyarrow()
        types = [(each.name, _type_of_field(self._arrow, each)) for each in FIELDS]
        further = [(name, self._arrow.bool_()) for name in judged]
        self.schema = self._arrow.schema([*types, *further], metadata=about)

    def from_csv(self, data: bytes) -> Any:
        options = _csv_options(self._arrow, self.schema, max(len(data), 1))
        return self._arrow.csv.read_csv(self._arrow.BufferReader(data), **options)

    def write(self, tables: Iterable[Any], stream: IO[bytes]) -> None:
        _write(self._arrow, self.schema, tables, stream)


def write_table(source: Any, columns: Mapping[str, str], stream: IO[bytes]) -> None:
    """Write rows, given as CSV, as Parquet; `columns` have PostgreSQL's types."""
    arrow = load_pyarrow()
    types = {
        **dict.fromkeys(("smallint", "integer", "bigint"), arrow.int64()),
        "double precision": arrow.float64(),
        "boolean": arrow.bool_(),
        "timestamp with time zone": arrow.timestamp("us", tz="UTC"),
    }
    schema = arrow.schema(
        [(name, types.get(each, arrow.string())) for name, each in columns.items()]
    )
    options = _csv_options(arrow, schema, BLOCK_BYTES)
    _write(arrow, schema, arrow.csv.open_csv(arrow.PythonFile(source, mode="r"), **options), stream)


def copy_lines(path: Path) -> Iterator[bytes]:
    """Yield the rows of such a file as lines of COPY, some thousand at a time."""
    arrow = load_pyarrow()
    with open_parquet(path, LIMITS) as file:
        for batch in bounded_batches(file, str(path), LIMITS, ROWS_PER_BATCH):
            columns = [_copy_texts(arrow, column) for column in batch.columns]
            rows = arrow.compute.binary_join_element_wise(*columns, "\t")
            yield "".join(f"{row}\n" for row in rows.to_pylist()).encode()


def _copy_texts(arrow: Any, column: Any) -> Any:
    texts = column.cast(arrow.string())
    if arrow.types.is_string(column.type):
        for character, escape in _ESCAPES.items():
            texts = arrow.compute.replace_substring(texts, character, escape)
    return texts.fill_null(r"\N")


def _type_of_field(arrow: Any, field: RecordField) -> Any:
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


def _csv_options(arrow: Any, schema: Any, block_bytes: int) -> dict[str, Any]:
    """Return how CSV with a header is read; null is empty, the empty text is quoted."""
    csv = arrow.csv
    return {
        "read_options": csv.ReadOptions(block_size=block_bytes),
        "parse_options": csv.ParseOptions(newlines_in_values=True),
        "convert_options": csv.ConvertOptions(
            column_types={field.name: field.type for field in schema},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    }


def _write(arrow: Any, schema: Any, groups: Iterable[Any], stream: IO[bytes]) -> None:
    with arrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for rows in groups:
            if len(rows):
                writer.write(rows)
