"""One sample of a run with every verdict about it, all generations."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.sample import Sample, Target
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import READ, ErrorClass
from aegish_dist.core.verdict_record import STORED, AttemptRecord, VerdictRecord
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import RunModelRow
from aegish_dist.db.text import escaped_pattern
from aegish_dist.db.verdict_tables import CallErrorRow, VerdictRow

LEAST_DIGITS = 4
"""Fewer characters are no beginning of a sample id."""

_FIND = statement("find_named_samples")
_COLUMNS = [(each.name, VerdictRow.__table__.c[str(each.column)]) for each in STORED]


@dataclass(frozen=True, slots=True)
class FoundSample:
    """A sample of a run that a text may mean."""

    key: int
    dataset: str
    sample_id: str
    sample: Sample
    rank: int
    """0 where the text is its id or command, 1 where it begins its id, 2 where its command holds
    the text."""


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """One verdict about a sample."""

    record: VerdictRecord
    """All that is stored of it; messages of failed attempts are masked."""
    code: int
    """Outcome, error class and stop kind; see `codes`."""


def find_samples(
    session: Session, run_id: str, name: str, dataset: str | None, limit: int
) -> list[FoundSample]:
    """Return the samples of a run that a text may mean, the surest first.

    Args:
        name: A sample id, its first digits, a command or a part of one.
        dataset: Name of its dataset; None: it may be any of the run.
        limit: Samples at most.
    """
    pattern = escaped_pattern(name)
    rows = session.execute(
        _FIND,
        {
            "run": run_id,
            "name": name,
            "start": f"{pattern}%" if len(name) >= LEAST_DIGITS else None,
            "pattern": f"%{pattern}%",
            "dataset_name": dataset,
            "limit": limit,
        },
    )
    return [
        FoundSample(row.key, row.dataset, row.sample_id, _sample(row), row.rank) for row in rows
    ]


def _sample(row: Row[Any]) -> Sample:
    return Sample(row.command, Target(row.target), row.category, row.cluster, row.details)


def verdicts_about(
    session: Session, run: Run, found: FoundSample, models: Sequence[str]
) -> list[StoredVerdict]:
    """Return the verdicts about a sample by model, epoch and generation.

    Args:
        models: Models of the run; all when empty.
    """
    about = (VerdictRow.sample_key == found.key, RunModelRow.run_id == run.run_id)
    chosen = RunModelRow.model.in_(models or [spec.id for spec in run.models])
    errors = _errors(session, found.key, run.run_id)
    rows = session.execute(
        select(
            RunModelRow.model,
            VerdictRow.run_model_id,
            VerdictRow.code,
            *(column.label(name) for name, column in _COLUMNS),
        )
        .join(RunModelRow, RunModelRow.id == VerdictRow.run_model_id)
        .where(*about, chosen)
        .order_by(RunModelRow.model, VerdictRow.epoch, VerdictRow.generation)
    ).mappings()
    return [StoredVerdict(_record(dict(row), found, errors), row["code"]) for row in rows]


_Errors = Mapping[tuple[int, int, int], Sequence[AttemptRecord]]
"""Failed attempts by model key, epoch and generation."""


def _errors(session: Session, sample_key: int, run_id: str) -> _Errors:
    found: defaultdict[tuple[int, int, int], list[AttemptRecord]] = defaultdict(list)
    rows = session.scalars(
        select(CallErrorRow)
        .join(RunModelRow, RunModelRow.id == CallErrorRow.run_model_id)
        .where(RunModelRow.run_id == run_id, CallErrorRow.sample_key == sample_key)
        .order_by(CallErrorRow.attempt)
    )
    for row in rows:
        found[row.run_model_id, row.epoch, row.generation].append(
            AttemptRecord(
                attempt=row.attempt,
                error_class=ErrorClass(row.error_class),
                status=row.status,
                retry_after_s=row.retry_after_s,
                message=mask_key_shapes(row.message),
                at=row.at.isoformat(),
            )
        )
    return found


def _record(row: Mapping[str, Any], found: FoundSample, errors: _Errors) -> VerdictRecord:
    sample = found.sample
    stored = {name: _plain(row[name]) for name, _ in _COLUMNS}
    return VerdictRecord(
        model=row["model"],
        dataset=found.dataset,
        command=sample.command,
        target=sample.target,
        category=sample.category,
        cluster=sample.cluster,
        answered=stored["error_class"] is None,
        pruned=stored["completion"] is None and stored["outcome"] in READ,
        call_errors=tuple(errors.get((row["run_model_id"], row["epoch"], row["generation"]), ())),
        **stored,
    )


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
