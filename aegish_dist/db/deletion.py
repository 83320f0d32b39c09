"""Deleting runs: their verdicts in batches, then the run and what nothing else refers to.

Or their completions alone: the verdicts stay, with tokens, cost and times.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from aegish_dist.db.datasets import one_at_a_time
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import (
    AggregationRow,
    DatasetRow,
    PromptRow,
    RunDatasetRow,
    RunModelRow,
    RunRow,
    SnapshotRow,
    VerdictRow,
)

_LAST_OF_BATCH = statement("last_of_batch")


@dataclass(frozen=True, slots=True)
class RunSize:
    """How much would be lost with a run."""

    models: int
    verdicts: int
    snapshots: int


def size_of(session: Session, run_id: str) -> RunSize:
    """Return how much a run holds."""
    models = select(RunModelRow.id).where(RunModelRow.run_id == run_id)
    verdicts = select(func.count()).where(VerdictRow.run_model_id.in_(models))
    snapshots = select(func.count()).where(SnapshotRow.run_id == run_id)
    return RunSize(
        len(session.scalars(models).all()),
        session.scalars(verdicts).one(),
        session.scalars(snapshots).one(),
    )


def model_keys(session: Session, run_id: str) -> Sequence[int]:
    """Return the keys of the models of a run."""
    models = select(RunModelRow.id).where(RunModelRow.run_id == run_id)
    return session.scalars(models.order_by(RunModelRow.id)).all()


@dataclass(frozen=True, slots=True)
class DeletedBatch:
    """A part of a model's verdicts that is gone."""

    verdicts: int
    through: int
    """Key of the last sample that it covered."""


def last_of_batch(session: Session, run_model_id: int, after: int, limit: int) -> int | None:
    """Return the key of the last sample among the next verdicts of a model of a run.

    Returns:
        None when there are no more.
    """
    values = {"model": run_model_id, "after": after, "limit": limit}
    through: int | None = session.scalar(_LAST_OF_BATCH, values)
    return through


def delete_batch(
    session: Session, run_model_id: int, after: int, limit: int
) -> DeletedBatch | None:
    """Delete the next verdicts of a model of a run, with the errors of their attempts.

    Args:
        limit: About how many at most; all of a sample go together.

    Returns:
        None when there are no more.
    """
    through = last_of_batch(session, run_model_id, after, limit)
    if through is None:
        return None
    gone = session.connection().execute(
        delete(VerdictRow).where(
            VerdictRow.run_model_id == run_model_id,
            VerdictRow.sample_key > after,
            VerdictRow.sample_key <= through,
        )
    )
    return DeletedBatch(gone.rowcount, through)


def delete_run(session: Session, run_id: str) -> None:
    """Delete a run with all that belongs to it, and what only it referred to.

    Its models, retries, snapshots and remaining verdicts go with it. A prompt, and a selection of
    samples that a run or an import made for itself, go unless another run has them as well.
    Datasets that a user imported stay.

    Waits for an aggregation of the run that is being made. The locks are taken in the order of the
    others that touch a run, models and aggregations before the run itself: neither ends in a
    deadlock.
    """
    one_at_a_time(session)
    models = select(RunModelRow.id).where(RunModelRow.run_id == run_id).order_by(RunModelRow.id)
    session.scalars(models.with_for_update()).all()
    session.execute(delete(AggregationRow).where(AggregationRow.run_id == run_id))
    prompt_id = session.scalar(select(RunRow.prompt_id).where(RunRow.id == run_id))
    asked = select(RunDatasetRow.dataset_id).where(RunDatasetRow.run_id == run_id)
    dataset_ids = session.scalars(asked).all()
    session.execute(delete(RunRow).where(RunRow.id == run_id))
    session.execute(
        delete(DatasetRow).where(
            DatasetRow.id.in_(dataset_ids),
            ~DatasetRow.selectable,
            DatasetRow.id.not_in(select(RunDatasetRow.dataset_id)),
        )
    )
    used = select(RunRow.prompt_id).where(RunRow.prompt_id.is_not(None))
    session.execute(delete(PromptRow).where(PromptRow.id == prompt_id, PromptRow.id.not_in(used)))


def runs_before(session: Session, moment: datetime) -> Sequence[str]:
    """Return the ids of the runs that were made before a moment, oldest first."""
    older = select(RunRow.id).where(RunRow.created_at < moment)
    return session.scalars(older.order_by(RunRow.created_at)).all()


def newest_runs(session: Session, number: int) -> Sequence[str]:
    """Return the ids of so many newest runs."""
    newest = select(RunRow.id).order_by(RunRow.created_at.desc(), RunRow.id.desc())
    return session.scalars(newest.limit(number)).all()


_SIZE = statement("size_of_completions")
_LOCK = statement("lock_run")
_PRUNE = statement("prune_completions")
_COUNT = statement("count_pruned")


@dataclass(frozen=True, slots=True)
class CompletionsSize:
    """Completions of a run that can be deleted."""

    completions: int
    bytes: int
    """Their size on disk, compressed where PostgreSQL does so."""
    counted_at: datetime
    """When they were counted, by the server's clock; later ones are not among them."""


def size_of_completions(session: Session, run_id: str) -> CompletionsSize:
    """Return how many completions of a run there are to delete, and their size; reads them all."""
    row = session.execute(_SIZE, {"run": run_id}).one()
    return CompletionsSize(row.completions, row.bytes, row.counted_at)


@dataclass(frozen=True, slots=True)
class PrunedBatch:
    """A part of a model's verdicts that has no completion any more."""

    completions: int
    through: int
    """Key of the last sample that it covered."""


def prune_batch(
    session: Session, run_id: str, run_model_id: int, after: int, limit: int, *, before: datetime
) -> PrunedBatch | None:
    """Delete the completions of the next verdicts of a model of a run.

    Args:
        limit: About how many verdicts to look at; all of a sample go together.

    Returns:
        None when there are no more verdicts.
    """
    session.execute(_LOCK, {"run": run_id})
    through = last_of_batch(session, run_model_id, after, limit)
    if through is None:
        return None
    values = {"model": run_model_id, "after": after, "through": through, "before": before}
    pruned = session.connection().execute(_PRUNE, values).rowcount
    if pruned:
        session.execute(_COUNT, {"run": run_id, "completions": pruned})
    return PrunedBatch(pruned, through)
