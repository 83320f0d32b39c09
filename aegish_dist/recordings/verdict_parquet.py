"""Verdict lines as Parquet: one column per key, for those who analyse millions of verdicts.

`metadata` and `call_errors` are JSON texts, and so is `cost_usd` a text, as no column type holds
every decimal. A text that UTF-8 cannot hold, half a surrogate pair in it, is stored as a JSON
string literal, and the row's `escaped` names its column.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from aegish_dist.core.recording import Recording
from aegish_dist.core.sample import Sample, Target
from aegish_dist.core.verdict import Outcome, Verdict
from aegish_dist.errors import ConfigError, DatasetError
from aegish_dist.recordings import json_text
from aegish_dist.recordings.fields import Fields
from aegish_dist.recordings.record import from_record, to_record

ROWS_PER_GROUP = 10_000
ROWS_PER_BATCH = 1_000
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


def read_verdict_parquet(path: Path) -> Iterator[Recording]:
    """Read a file row by row, counting rows from 1 where errors name a line.

    Raises:
        DatasetError: The file cannot be read, or a row is wrong; names row and field.
        ConfigError: pyarrow is not installed.
    """
    for number, row in enumerate(_rows(path), 1):
        yield from_record(_fields(row, str(path), number))


def write_verdict_parquet(recordings: Iterable[Recording], stream: IO[bytes]) -> None:
    """Write all recordings, a group of rows at a time.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    arrow = _pyarrow()
    rows = (_row(recording) for recording in recordings)
    schema = _schema(arrow)
    with arrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        while group := list(islice(rows, ROWS_PER_GROUP)):
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    arrow = _pyarrow()
    try:
        with arrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_PER_BATCH):
                yield from batch.to_pylist()
    except (OSError, ValueError, arrow.ArrowException) as error:
        problem = f"cannot be read as Parquet: {str(error).partition(chr(10))[0]}"
        raise DatasetError(problem, source=str(path)) from error


def _fields(row: dict[str, Any], source: str, number: int) -> Fields:
    fields = Fields(row, source, number)
    values = dict(row)
    for column in row.keys() & {*NESTED, *_escaped(row)}:
        if isinstance(row[column], str):
            try:
                values[column] = json_text.decode(row[column])
            except ValueError as error:
                raise fields.error(str(error), column) from error
    return Fields(values, source, number)


def _escaped(row: dict[str, Any]) -> list[str]:
    columns = row.get(ESCAPED)
    return [each for each in columns if isinstance(each, str)] if isinstance(columns, list) else []


def _row(recording: Recording) -> dict[str, Any]:
    record = to_record(recording)
    cost = record["cost_usd"]
    row = record | {column: json_text.encode(record[column]) for column in NESTED}
    row["cost_usd"] = None if cost is None else str(cost)
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


def _pyarrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "Parquet needs pyarrow: pip install 'aegish-dist[parquet]', or use .jsonl"
        ) from error
    return pyarrow
