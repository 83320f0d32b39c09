"""The one place that opens Parquet files to read, within limits.

A kilobyte of Parquet may hold sixty million equal rows, or one text of 300 MB a million times over:
sizes in the footer are checked first, and texts are read as dictionaries and measured before each
of them becomes a string of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aegish_dist.errors import ConfigError, DatasetError
from aegish_dist.inputs.documents import open_input

MAX_FOOTER_BYTES = 16 * 2**20
"""Bytes of a text in the footer, whose decoded structures take several times that."""
MAX_FIXED_BYTES = 2**20
"""Bytes of a value whose column states its length."""


@dataclass(frozen=True, slots=True)
class ParquetLimits:
    """The sizes up to which a file is read."""

    rows: int
    group_rows: int
    """Rows of a group; lists in it may hold as many values."""
    group_bytes: int
    batch_bytes: int


@contextmanager
def open_parquet(path: Path, limits: ParquetLimits) -> Iterator[Any]:
    """Open a file as `pyarrow.parquet.ParquetFile`, texts as dictionaries.

    Raises:
        DatasetError: It cannot be read as Parquet, here or in the body, or exceeds the limits.
    """
    arrow = load_pyarrow()
    limited = {"thrift_string_size_limit": MAX_FOOTER_BYTES}
    try:
        open_input(path).close()  # refuses what is no regular file
        with arrow.parquet.ParquetFile(path, **limited) as file:
            metadata = file.metadata
        _check(metadata, limits, str(path))
        texts = list(_texts(metadata.schema, str(path)))
        with arrow.parquet.ParquetFile(path, read_dictionary=texts, **limited) as file:
            yield file
    except (OSError, ValueError, arrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise DatasetError(f"cannot be read as Parquet: {reason}", source=str(path)) from error


def bounded_batches(
    file: Any, source: str, limits: ParquetLimits, batch_rows: int
) -> Iterator[Any]:
    """Yield the rows of a file in batches, texts as plain columns again.

    Args:
        limits: Its `batch_bytes` is the limit in bytes, decoded.
    """
    arrow = load_pyarrow()
    # One group at a time: a batch over several holds all of them, however long their texts are.
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(batch_rows, [group], use_threads=False):
            size = sum(_decoded_bytes(arrow, column) for column in batch.columns)
            if size > limits.batch_bytes:
                raise _exceeds(source, f"{batch_rows:,} rows", size, limits.batch_bytes)
            columns = [_plain(arrow, column) for column in batch.columns]
            yield arrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def load_pyarrow() -> Any:
    """Import pyarrow, 120 MB that most users never need, which is an extra."""
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.compute  # noqa: PLC0415
        import pyarrow.csv  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "Parquet needs pyarrow: pip install 'aegish-dist[parquet]', or use .jsonl"
        ) from error
    return pyarrow


def _check(metadata: Any, limits: ParquetLimits, source: str) -> None:
    if metadata.num_rows > limits.rows:
        problem = f"has {metadata.num_rows:,} rows, at most {limits.rows:,} are read"
        raise DatasetError(problem, source=source)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(index) for index in range(group.num_columns)]
        values = max([group.num_rows, *(column.num_values for column in columns)])
        if values > limits.group_rows:
            problem = f"has a group of {values:,} rows, at most {limits.group_rows:,} are read"
            raise DatasetError(f"{problem}; write smaller row groups", source=source)
        size = sum(column.total_uncompressed_size for column in columns)
        if size > limits.group_bytes:
            raise _exceeds(source, "a group of rows", size, limits.group_bytes)


def _exceeds(source: str, what: str, size: int, most: int) -> DatasetError:
    problem = f"{what} take {size / 2**20:,.0f} MiB, at most {most / 2**20:,.0f} MiB are read"
    return DatasetError(problem, source=source)


def _texts(schema: Any, source: str) -> Iterator[str]:
    """Yield the paths of the columns whose values may be of any length."""
    for index in range(len(schema)):
        column = schema.column(index)
        if column.physical_type == "BYTE_ARRAY" and column.logical_type.type != "DECIMAL":
            yield column.path
        elif column.length > MAX_FIXED_BYTES:
            raise _exceeds(source, f"values of {column.name!a}", column.length, MAX_FIXED_BYTES)


def _decoded_bytes(arrow: Any, column: Any) -> int:
    types = arrow.types
    if types.is_dictionary(column.type):
        lengths = arrow.compute.binary_length(column.dictionary)
        return int(arrow.compute.sum(lengths.take(column.indices)).as_py() or 0)
    if types.is_map(column.type):
        parts = [column.keys, column.items]
    elif types.is_struct(column.type):
        parts = column.flatten()
    elif types.is_nested(column.type):
        parts = [column.flatten()]
    else:
        return int(column.nbytes)
    return sum(_decoded_bytes(arrow, part) for part in parts)


def _plain(arrow: Any, column: Any) -> Any:
    return column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column
