"""Rows of the store as Parquet and back, exact: one column per column, typed where a type is exact.

Numbers of any size, JSON and lists are texts as PostgreSQL writes them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from aegish_dist.inputs.documents import ParquetLimits, bounded_batches, load_pyarrow, open_parquet

BLOCK_BYTES = 32 * 2**20
"""Bytes of CSV that become a group of rows; a row must not be longer."""
ROWS_PER_BATCH = 20_000
LIMITS = ParquetLimits(rows=2**40, group_rows=2**24, group_bytes=2**30, batch_bytes=2**29)
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def _types(arrow: Any, columns: Mapping[str, str]) -> dict[str, Any]:
    known = {
        **dict.fromkeys(("smallint", "integer", "bigint"), arrow.int64()),
        "double precision": arrow.float64(),
        "boolean": arrow.bool_(),
        "timestamp with time zone": arrow.timestamp("us", tz="UTC"),
    }
    return {name: known.get(kind, arrow.string()) for name, kind in columns.items()}


def write_table(source: Any, columns: Mapping[str, str], stream: IO[bytes]) -> None:
    """Write rows as a Parquet file.

    Args:
        source: Gives the rows as CSV with a header, read like a file; null is empty, the empty text
            is quoted.
    """
    arrow = load_pyarrow()
    csv, types = arrow.csv, _types(arrow, columns)
    with arrow.parquet.ParquetWriter(
        stream, arrow.schema(types.items()), compression="zstd"
    ) as writer:
        reader = csv.open_csv(
            source,
            read_options=csv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
                timestamp_parsers=[csv.ISO8601],
            ),
        )
        for batch in reader:
            if len(batch):
                writer.write_batch(batch)


def copy_lines(path: Path) -> Iterator[bytes]:
    """Yield the rows of a file as lines of COPY, some thousand at a time."""
    arrow = load_pyarrow()
    with open_parquet(path, LIMITS) as file:
        for batch in bounded_batches(file, str(path), LIMITS, ROWS_PER_BATCH):
            yield _lines(arrow, batch)


def _lines(arrow: Any, batch: Any) -> bytes:
    columns = [_column(arrow, column) for column in batch.columns]
    rows = arrow.compute.binary_join_element_wise(*columns, "\t")
    return "".join(f"{row}\n" for row in rows.to_pylist()).encode()


def _column(arrow: Any, column: Any) -> Any:
    texts = column.cast(arrow.string())
    if arrow.types.is_string(column.type):
        for character, escape in _ESCAPES.items():
            texts = arrow.compute.replace_substring(texts, character, escape)
    return texts.fill_null(r"\N")
