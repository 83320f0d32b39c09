"""Deleting completions while their verdicts stay: what was read in them, tokens, cost and times."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from aegish_dist.db.deletion import last_of_batch
from aegish_dist.db.statements import statement

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
