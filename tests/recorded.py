"""Stored verdicts as recordings, read column by column."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from aegish_dist.core.completion import Completion, StopKind, Usage
from aegish_dist.core.recording import Recording
from aegish_dist.core.verdict import CallError, ErrorClass, Outcome, Timing, Verdict
from aegish_dist.core.verdict_record import STORED
from aegish_dist.db.datasets import to_sample
from aegish_dist.db.tables import DatasetRow, RunModelRow, SampleRow
from aegish_dist.db.verdict_tables import CallErrorRow, VerdictRow

VERDICTS = VerdictRow.__table__.c


def export_verdicts(engine: Engine, run_id: str) -> list[Recording]:
    """Return every verdict of a run, all generations, in the order of an export."""
    with Session(engine) as session:
        return stored_recordings(session, run_id)


def stored_recordings(session: Session, run_id: str) -> list[Recording]:
    """Return every verdict of a run, all generations, in the order of an export."""
    rows = session.execute(
        select(*VERDICTS, SampleRow, RunModelRow, DatasetRow.name.label("dataset"))
        .join_from(VerdictRow, RunModelRow, RunModelRow.id == VERDICTS.run_model_id)
        .join(SampleRow, SampleRow.key == VERDICTS.sample_key)
        .join(DatasetRow, DatasetRow.id == SampleRow.dataset_id)
        .where(RunModelRow.run_id == run_id)
        .order_by(RunModelRow.model, DatasetRow.name)
        .order_by(VERDICTS.sample_key, VERDICTS.epoch, VERDICTS.generation)
    )
    return [
        Recording(
            model=row.RunModelRow.model,
            dataset=row.dataset,
            sample=to_sample(row.SampleRow),
            epoch=row.epoch,
            verdict=_verdict(row._asdict(), _call_errors(session, row._asdict())),
            generation=row.generation,
            simulated=bool(row.RunModelRow.spec.get("simulated")),
        )
        for row in rows
    ]


def _verdict(row: Mapping[str, Any], errors: tuple[CallError, ...]) -> Verdict:
    values = dict(row) | {"outcome": Outcome(row["outcome"])}
    if row["stop_kind"] is not None:
        values["stop_kind"] = StopKind(row["stop_kind"])
    if row["error_class"] is not None:
        values["error_class"] = ErrorClass(row["error_class"])

    def part(kind: type) -> dict[str, Any]:
        return {each.attribute: values[str(each.column)] for each in STORED if each.part is kind}

    completion = Completion(usage=Usage(**part(Usage)), **part(Completion))
    answer = None if row["error_class"] is not None else completion
    timing = Timing(**part(Timing))
    return Verdict(completion=answer, timing=timing, call_errors=errors, **part(Verdict))


def _call_errors(session: Session, row: Mapping[str, Any]) -> tuple[CallError, ...]:
    key = {name: row[name] for name in ("run_model_id", "sample_key", "epoch", "generation")}
    errors = session.scalars(
        select(CallErrorRow).filter_by(**key).order_by(CallErrorRow.attempt)
    ).all()
    return tuple(
        CallError(
            each.attempt,
            ErrorClass(each.error_class),
            each.status,
            each.retry_after_s,
            each.message,
            each.at,
        )
        for each in errors
    )
