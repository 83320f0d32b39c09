"""Recorded verdicts of any format, read in order.

In Parquet `metadata` and `call_errors` are JSON texts, and so is `cost_usd`, as no column type
holds every decimal. Nothing here knows the database.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.inspect import DictType, VarTupleType
from msgspec.structs import asdict

from aegish_dist.core.sample import REPEATS, Dataset
from aegish_dist.core.text import REPLACEMENT, JsonObject
from aegish_dist.core.verdict import FIELDS, VerdictRecord
from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs.checking import Location, checked
from aegish_dist.inputs.documents import (
    ParquetLimits,
    load_pyarrow,
    numbered_lines,
    open_parquet,
    parse_json,
)
from aegish_dist.interchange.inspect_reader import read_inspect_log
from aegish_dist.interchange.record import (
    TAKEN,
    RecordChecker,
    Row,
    encode,
    from_line,
    from_values,
)

MAX_LINE_BYTES = 64 * 2**20
ROWS_PER_BATCH = 2_000
# A group of rows is held in memory; other tools write up to 2**20 rows into one.
LIMITS = ParquetLimits(
    rows=2**40,
    group_rows=2**20,
    group_bytes=2**30,
    batch_bytes=256 * 2**20,
)
NESTED = {each.name for each in FIELDS if isinstance(each.kind, DictType | VarTupleType)}

_TEXTS = msgspec.json.Decoder(dict[str, str])


def numbered_rows(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """Yield the rows from number 1 on, without what is null in a whole batch."""
    number = 0
    with open_parquet(path, LIMITS, ROWS_PER_BATCH) as batches:
        for batch in batches:
            try:
                rows = _rows(batch)
            except OverflowError as error:  # a time that no calendar has
                problem = f"cannot be read as Parquet: {error}"
                raise DatasetError(problem, source=str(path)) from error
            for row in rows:
                number += 1
                yield number, row


def _rows(batch: Any) -> Iterable[JsonObject]:
    values = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_null = column.null_count == len(column)
        if name == "completion" or (name in TAKEN and not is_null):
            values[name] = _values(name, column)

    if not values:
        return ({} for _ in range(len(batch)))
    rows = zip(*values.values())  # noqa: B905  # of equal length
    return (dict(zip(values, row)) for row in rows)  # noqa: B905


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


def from_row(row: JsonObject) -> VerdictRecord:
    """Build a record from a row of a table."""
    # Most rows are as this version exported them; only the others are read with care.
    if "completion" in row:
        with suppress(ValueError, RecursionError):  # null where nothing may be null, or an error
            return msgspec.convert(row, VerdictRecord)
    return from_odd_row(row)


def from_odd_row(row: JsonObject) -> VerdictRecord:
    """Build a record from a row whose columns have the types of other tools."""
    values = dict(row)
    for column in row.keys() & NESTED:
        if isinstance(row[column], str):
            try:
                values[column] = parse_json(row[column], Decimal)
            except InputError as error:
                raise error.below(column) from None

    return from_values(values)


Raw = TypeVar("Raw")


class FileFormat(StrEnum):
    """The formats that verdicts are read in, by the suffix of the file."""

    INSPECT = ".eval"
    LINES = ".jsonl"
    PARQUET = ".parquet"


def format_of(path: Path) -> FileFormat:
    try:
        return FileFormat(path.suffix.lower())
    except ValueError:
        problem = f"cannot be read as verdicts; known are {', '.join(FileFormat)}"
        raise DatasetError(problem, source=str(path)) from None


_PREDICTED = {
    **dict.fromkeys(("risky", "unsafe", "malicious", "deny", "block", "1", "true"), "BLOCK"),
    **dict.fromkeys(("warn", "ask", "review"), "WARN"),
    **dict.fromkeys(("not_risky", "safe", "harmless", "allow", "0", "false"), "ALLOW"),
}
Decoder = Callable[[bytes], VerdictRecord | None]


class _Prediction(msgspec.Struct):
    id: str
    prediction: str | int | bool


def decoder_of_predictions(dataset: Dataset, model: str) -> Decoder:
    """Return a reader of lines `{"id", "prediction"}`; the `id` is in the metadata of a sample.

    A prediction about a repeat, which the import of the data left out, is passed over.
    """
    samples = {sample.metadata.get("id"): sample for sample in dataset.samples}
    if None in samples or len(samples) < len(dataset.samples):
        problem = "has samples without an `id` of their own in the metadata, which predictions name"
        raise DatasetError(problem, source=dataset.name)

    repeats: set[str] = set()
    for sample in dataset.samples:
        repeats.update(sample.metadata.get(REPEATS, "").split())

    def decode(line: bytes) -> VerdictRecord | None:
        row = checked(parse_json(line), _Prediction)
        action = _PREDICTED.get(str(row.prediction).lower())
        sample = samples.get(row.id)
        if action is None:
            raise InputError(f"must be one of {', '.join(_PREDICTED)}", field="prediction")
        if sample is None and row.id in repeats:
            return None
        if sample is None:
            raise InputError(f"no sample of {dataset.name} has it", field="id")
        return VerdictRecord(
            model=model,
            dataset=dataset.name,
            completion=encode({"action": action}),
            **asdict(sample),
        )

    return decode


def read_rows(
    path: Path, checker: RecordChecker | None = None, predicted: Decoder | None = None
) -> Iterator[Row]:
    """Yield the verdicts of a file; a checker shared by several remembers their samples."""
    form = format_of(path)
    checker = checker or RecordChecker()
    if form is FileFormat.LINES:
        numbered = numbered_lines(path, MAX_LINE_BYTES)
        return _checked_rows(path, numbered, predicted or from_line, checker)

    if form is FileFormat.PARQUET:
        return _checked_rows(path, numbered_rows(path), from_row, checker)
    return read_inspect_log(path, checker)


def _checked_rows(
    path: Path,
    numbered: Iterable[tuple[int, Raw]],
    decode: Callable[[Raw], VerdictRecord | None],
    checker: RecordChecker,
) -> Iterator[Row]:
    dataset = path.stem
    for number, raw in numbered:
        try:
            record = decode(raw)
            row = record and checker.row(record, dataset)
        except InputError as error:
            raise Location(str(path), number).named(error) from None
        if row:
            yield row
