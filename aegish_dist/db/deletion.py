"""Delete the rows of a run, or the texts of its answers alone."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.db.engine import execute
from aegish_dist.db.runs import one_at_a_time


def size_of(session: Session, run_id: str) -> Row[Any]:
    """Return how many `models`, `verdicts` and `snapshots` a run has."""
    return execute(session, "size_of_run", run=run_id).one()


def model_keys(session: Session, run_id: str) -> Sequence[int]:
    return execute(session, "models_of_run", run=run_id).scalars().all()


def last_of_batch(session: Session, run_model_id: int, after: int, limit: int) -> int | None:
    """Return the key of the last sample among the next verdicts of a model; None: no more."""
    found = execute(session, "last_of_batch", model=run_model_id, after=after, limit=limit)
    return found.scalar()


def delete_verdicts(session: Session, run_model_id: int, after: int, through: int) -> int:
    """Delete verdicts with the errors of their attempts, and return how many they were.

    Args:
        after: Key of a sample; only verdicts about the samples behind it go.
        through: Key of the last sample whose verdicts go.
    """
    bounds = {"after": after, "through": through}
    return execute(session, "delete_verdicts", model=run_model_id, **bounds).rowcount


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
    execute(session, "lock_models_of_run", run=run_id)
    execute(session, "delete_aggregations", run=run_id)
    own = execute(session, "shared_rows_of_run", run=run_id).one()
    execute(session, "delete_run", run=run_id)
    execute(session, "delete_unused_datasets", datasets=own.datasets)
    execute(session, "delete_unused_prompts", prompts=own.prompts)


def old_runs(session: Session, before: datetime, keep: int) -> list[str]:
    """Return the runs made before a moment, oldest first, but never one of the `keep` newest."""
    return list(execute(session, "old_runs", before=before, keep=keep).scalars())


def size_of_completions(session: Session, run_id: str) -> Row[Any]:
    """Return how many completions of a run there are to delete, and their size; reads them all."""
    return execute(session, "size_of_completions", run=run_id).one()


def prune_verdicts(
    session: Session, run_model_id: int, after: int, through: int, *, run_id: str, before: datetime
) -> int:
    """As `delete_verdicts`, but delete completions alone, of verdicts stored before a moment."""
    execute(session, "lock_run", run=run_id)
    bounds = {"after": after, "through": through, "before": before}
    pruned = execute(session, "prune_completions", model=run_model_id, **bounds).rowcount
    if pruned:
        execute(session, "count_pruned", run=run_id, completions=pruned)
    return pruned
