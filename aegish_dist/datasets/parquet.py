"""The only place that knows pyarrow: 120 MB that most users never need, so it is an extra."""

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from aegish_dist.errors import ConfigError, DatasetError


def read_parquet(path: Path) -> list[dict[str, object]]:
    """All rows of a Parquet file, by column.

    Raises:
        DatasetError: When the file cannot be read.
        ConfigError: When pyarrow is not installed.
    """
    arrow = _pyarrow()
    try:
        rows: list[dict[str, object]] = arrow.parquet.read_table(path).to_pylist()
    except (OSError, ValueError, arrow.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise DatasetError(f"cannot be read as Parquet: {reason}", source=str(path)) from error
    return rows


def write_parquet(
    stream: IO[bytes], columns: Sequence[str], rows: Sequence[dict[str, str]]
) -> None:
    """Write text columns; what a row lacks is null.

    Raises:
        ConfigError: When pyarrow is not installed.
    """
    arrow = _pyarrow()
    schema = arrow.schema([(column, arrow.string()) for column in columns])
    arrow.parquet.write_table(arrow.Table.from_pylist(list(rows), schema=schema), stream)


def _pyarrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "Parquet needs pyarrow: pip install 'aegish-dist[parquet]', or use .jsonl or .csv"
        ) from error
    return pyarrow
