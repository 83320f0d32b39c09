"""Datasets as Parquet files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from aegish_dist.datasets.draft import MAX_SAMPLES, MAX_TABLE_BYTES
from aegish_dist.inputs.parquet import ParquetLimits, bounded_batches, load_pyarrow, open_parquet

BATCH_ROWS = 1_000
LIMITS = ParquetLimits(
    rows=MAX_SAMPLES,
    group_rows=MAX_SAMPLES,
    group_bytes=MAX_TABLE_BYTES,
    batch_bytes=MAX_TABLE_BYTES,
)


def read_parquet(path: Path) -> Iterator[dict[str, object]]:
    """Yield the rows of a Parquet file, by column.

    Raises:
        DatasetError: When the file cannot be read or is too large.
        ConfigError: When pyarrow is not installed.
    """
    with open_parquet(path, LIMITS) as file:
        groups = range(file.num_row_groups)
        for batch in bounded_batches(file, str(path), LIMITS, BATCH_ROWS, groups):
            yield from batch.to_pylist()


def write_parquet(
    stream: IO[bytes], columns: Sequence[str], rows: Sequence[dict[str, str]]
) -> None:
    """Write text columns; what a row lacks is null.

    Raises:
        ConfigError: When pyarrow is not installed.
    """
    arrow = load_pyarrow()
    schema = arrow.schema([(column, arrow.string()) for column in columns])
    arrow.parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), stream)
