"""Documents read from `tests/data`, recordings written to files, and verdicts read from the store column by column."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.inspect import BoolType, DecimalType, EnumType, FloatType, IntType
from msgspec.structs import asdict, replace
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from aegish_dist.core.sample import Sample
from aegish_dist.core.verdict import (
    FIELDS,
    STORED,
    CallError,
    Completion,
    RecordField,
    Timing,
    Usage,
    Verdict,
    VerdictRecord,
    columns_of,
    completion_of,
    part_of,
)
from aegish_dist.db.runs import sample_of
from aegish_dist.db.schema import CALL_ERRORS, DATASETS, RUN_MODELS, SAMPLES, VERDICTS
from aegish_dist.interchange.parquet_tables import records_schema
from aegish_dist.interchange.record import Row, encode
from aegish_dist.interchange.verdict_files import read_rows

DATA = Path(__file__).parent / "data"
FLOATS = [each.name for each in FIELDS if isinstance(each.kind, FloatType)]


def document_of(name: str) -> Any:
    return json.loads((DATA / name).read_text("ascii"))


def lines_of(name: str) -> list[Any]:
    """Return the JSON lines of a file of `tests/data`."""
    return [json.loads(line) for line in (DATA / name).read_text("ascii").splitlines()]


def value_of(field: RecordField) -> Any:
    """Return a value that a verdict line may hold: the largest number, a text of any characters."""
    match field.kind:
        case IntType(le=most) | FloatType(le=most):
            return most
        case DecimalType():
            return Decimal("0.001457489878542510121457489879")
        case EnumType(cls=members):
            return list(members)[-1]
        case BoolType():
            return True
    return (
        "2026-02-05T14:56:43.396296+00:00"
        if field.is_moment
        else f"{field.name} \u00e4\ue000\U0001f9a0"
    )


class Recording(Struct, frozen=True):
    """One line of a verdict export, or one sample of an imported log."""

    model: str
    dataset: str
    sample: Sample
    epoch: int
    verdict: Verdict
    generation: int = 0
    simulated: bool = False
    negative_time: bool = False


def verdict_of(record: VerdictRecord) -> Verdict:
    errors = (asdict(each) | {"at": _instant(each.at)} for each in record.call_errors)
    created_at = record.created_at
    return Verdict(
        completion=completion_of(record),
        timing=Timing(**part_of(record, Timing)),
        call_errors=tuple(CallError(**each) for each in errors),
        **part_of(record, Verdict)
        | {"created_at": None if created_at is None else _instant(created_at)},
    )


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def read_recordings(path: Path) -> Iterator[Recording]:
    """Read the recordings of a log of Inspect AI (`.eval`), `.jsonl` or `.parquet` file."""
    return map(_recording, read_rows(path))


def _recording(row: Row) -> Recording:
    return Recording(
        model=row.record.model,
        dataset=row.about.dataset,
        sample=replace(row.about.sample, metadata=row.record.metadata),  # no part of its identity
        epoch=row.record.epoch,
        verdict=verdict_of(row.record),
        generation=row.record.generation,
        simulated=row.record.simulated,
        negative_time=row.negative_time,
    )


def write_recordings(
    recordings: Iterable[Recording], path: Path, rows_per_group: int = 10_000
) -> None:
    """Write recordings to a `.jsonl` or `.parquet` file, as an export would."""
    lines = written(recordings).encode("ascii").splitlines(keepends=True)
    if path.suffix != ".parquet":
        path.write_bytes(b"".join(lines))
        return
    schema = records_schema()
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for start in range(0, len(lines), rows_per_group):
            rows = list(map(_row, lines[start : start + rows_per_group]))
            file.write(pa.Table.from_pylist(rows, schema=schema))


def _row(line: bytes) -> dict[str, Any]:
    """Return a verdict line as the columns of a table."""
    row: dict[str, Any] = json.loads(line, parse_float=Decimal)
    for name in ("metadata", "call_errors"):
        row[name] = encode(row[name])
    if row["created_at"] is not None:
        row["created_at"] = datetime.fromisoformat(row["created_at"])
    return row | {
        name: None if row[name] is None else kind(row[name])
        for name, kind in {"cost_usd": str, **dict.fromkeys(FLOATS, float)}.items()
    }


def written(recordings: Iterable[Recording]) -> str:
    return "".join(f"{encode(_record(each))}\n" for each in recordings)


def _record(recording: Recording) -> dict[str, Any]:
    verdict, sample = recording.verdict, recording.sample
    columns = columns_of(verdict)
    if verdict.created_at is not None:
        columns["created_at"] = verdict.created_at.isoformat()
    errors = [asdict(error) | {"at": error.at.isoformat()} for error in verdict.call_errors]
    others = asdict(recording) | asdict(sample) | {"pruned": False, "call_errors": errors}
    others |= {"answered": verdict.completion is not None, "metadata": dict(sample.metadata)}
    return {
        each.name: others[each.name] if each.name in others else columns[str(each.column)]
        for each in FIELDS
    }


def export_verdicts(engine: Engine, run_id: str) -> list[Recording]:
    with Session(engine) as session:
        return stored_recordings(session, run_id)


def stored_recordings(session: Session, run_id: str) -> list[Recording]:
    """Return every verdict of a run, all generations, in the order of an export."""
    columns = (each for each in SAMPLES.c if each.name != "key")
    run_model = (RUN_MODELS.c.model, RUN_MODELS.c.spec)
    rows = session.execute(
        select(VERDICTS, *columns, *run_model, DATASETS.c.name.label("dataset"))
        .join_from(VERDICTS, RUN_MODELS, RUN_MODELS.c.id == VERDICTS.c.run_model_id)
        .join(SAMPLES, SAMPLES.c.key == VERDICTS.c.sample_key)
        .join(DATASETS, DATASETS.c.id == SAMPLES.c.dataset_id)
        .where(RUN_MODELS.c.run_id == run_id)
        .order_by(RUN_MODELS.c.model, DATASETS.c.name)
        .order_by(VERDICTS.c.sample_key, VERDICTS.c.epoch, VERDICTS.c.generation)
    )
    return [
        Recording(
            model=row.model,
            dataset=row.dataset,
            sample=sample_of(row),
            epoch=row.epoch,
            verdict=_verdict(session, row._asdict()),
            generation=row.generation,
            simulated=bool(row.spec.get("simulated")),
        )
        for row in rows
    ]


def _verdict(session: Session, row: Mapping[str, Any]) -> Verdict:
    def part(kind: type) -> dict[str, Any]:
        return {each.attribute: row[str(each.column)] for each in STORED if each.part is kind}

    key = {name: row[name] for name in ("run_model_id", "sample_key", "epoch", "generation")}
    columns = [CALL_ERRORS.c[name] for name in CallError.__struct_fields__]
    errors = session.execute(select(*columns).filter_by(**key).order_by(CALL_ERRORS.c.attempt))
    answered = row["error_class"] is None
    parts = {
        "completion": part(Completion) | {"usage": part(Usage)} if answered else None,
        "timing": part(Timing),
        "call_errors": [
            dict(zip(CallError.__struct_fields__, each, strict=True)) for each in errors
        ],
    }
    return msgspec.convert(part(Verdict) | parts, Verdict)
