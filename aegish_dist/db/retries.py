"""Retries in the store: which items are planned once more, and which of them lack their verdict."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from aegish_dist.core.verdict import Outcome
from aegish_dist.db.codes import outcome_number
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import RetryRow, RunModelRow, RunRow
from aegish_dist.db.verdict_tables import VerdictRow

_PLAN = statement("plan_retry")
_COUNT_UNANSWERED = statement("count_unanswered_retries")


@dataclass(frozen=True, slots=True)
class Retry:
    """One planned retry."""

    generation: int
    """1-based, counted within the run."""
    items: int


def save_retry(
    session: Session, run_id: str, outcomes: Collection[Outcome], models: Sequence[str]
) -> Retry | None:
    """Plan once more what ended in some outcomes, as a generation of its own.

    Args:
        session: Transaction of the caller. Two at once for one run wait for each other.

    Returns:
        The retry; None when no verdict ended so, or all that did are planned again already.
    """
    session.execute(select(RunRow.id).where(RunRow.id == run_id).with_for_update(key_share=True))
    generation = _next_generation(session, run_id)
    planned = session.connection().execute(
        _PLAN,
        {
            "run": run_id,
            "models": list(models),
            "outcomes": sorted(map(outcome_number, outcomes)),
            "generation": generation,
        },
    )
    if not planned.rowcount:
        return None
    retry = Retry(generation, planned.rowcount)
    named = [outcome for outcome in Outcome if outcome in outcomes]
    session.execute(
        insert(RetryRow).values(
            run_id=run_id, generation=generation, outcomes=named, items=retry.items
        )
    )
    return retry


def _next_generation(session: Session, run_id: str) -> int:
    planned = select(func.max(RetryRow.generation)).where(RetryRow.run_id == run_id)
    stored = (
        select(func.max(VerdictRow.generation))
        .join(RunModelRow, RunModelRow.id == VerdictRow.run_model_id)
        .where(RunModelRow.run_id == run_id, VerdictRow.generation > 0)
    )
    return 1 + max(session.scalar(planned) or 0, session.scalar(stored) or 0)


def unanswered_retries(session: Session, run_id: str) -> Mapping[str, int]:
    """Return how many items of retries lack their verdict, by model; one without is absent."""
    rows = session.execute(_COUNT_UNANSWERED, {"run": run_id})
    return {row.model: row.items for row in rows}
