"""Rows of the store as Parquet: verdicts for other tools, and whole tables, exact, there and back.

Numbers of any size, JSON and lists are texts as PostgreSQL writes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from msgspec.inspect import BoolType, FloatType, IntType

from aegish_dist.core.verdict_record import FIELDS
from aegish_dist.inputs.documents import ParquetLimits, load_pyarrow, open_parquet

BLOCK_BYTES = 32 * 2**20  # become a group of rows; a row must not be longer
ROWS_PER_BATCH = 20_000
LIMITS = ParquetLimits(rows=2**40, group_rows=2**24, group_bytes=2**28, batch_bytes=2**26)
"""Of 32 MiB of CSV: texts are no longer decoded, and a number of one digit takes 8 bytes."""
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def records_schema(judged: Sequence[str] = (), about: Mapping[str, str] | None = None) -> Any:
    """Return the columns of exported verdicts; `judged` are added."""
    arrow = load_pyarrow()
    types = {IntType: arrow.int64(), FloatType: arrow.float64(), BoolType: arrow.bool_()}
    others = {False: arrow.string(), True: arrow.timestamp("us", tz="UTC")}
    columns = [(f.name, types.get(type(f.kind), others[f.is_moment])) for f in FIELDS]
    columns += [(name, arrow.string()) for name in ("run_id", "sample_id")]
    columns += [(name, arrow.bool_()) for name in judged]
    return arrow.schema(columns, metadata=about)


def write_records(parts: Iterable[bytes], schema: Any, stream: IO[bytes]) -> None:
    """Write verdicts exported as CSV, each part a group of rows, as Parquet."""
    arrow = load_pyarrow()

    def table(data: bytes) -> Any:
        options = _csv_options(arrow, schema, max(len(data), 1))
        return arrow.csv.read_csv(arrow.BufferReader(data), **options)

    _write(arrow, schema, map(table, parts), stream)


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
    with open_parquet(path, LIMITS, ROWS_PER_BATCH) as batches:
        for batch in batches:
            columns = [_copy_texts(arrow, column) for column in batch.columns]
            rows = arrow.compute.binary_join_element_wise(*columns, "\t")
            yield "".join(f"{row}\n" for row in rows.to_pylist()).encode()


def _copy_texts(arrow: Any, column: Any) -> Any:
    texts = column.cast(arrow.string())
    if arrow.types.is_string(column.type):
        for character, escape in _ESCAPES.items():
            texts = arrow.compute.replace_substring(texts, character, escape)
    return texts.fill_null(r"\N")


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
