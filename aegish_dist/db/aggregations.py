"""The aggregations of complete runs, as rows of an outbox for workers.

A row is written in the transaction that finds a run complete, enqueued after its commit, and
finished in the transaction that appends its snapshots: whatever crashes in between, one completion
of a run leads to one aggregation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from aegish_dist.core.scoring import DEFAULT_RULE
from aegish_dist.core.text import clean_text
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import AggregationRow

LOST_AFTER_S = 60.0
"""Seconds after which an aggregation that was enqueued and is not being made is enqueued again: its
message is lost, or its turn has not come yet and a second message does no harm."""
PROBLEM_LENGTH = 500

_RELEASE = statement("release_completed")
_REQUEST = statement("request_of_completed")
_TAKE_DUE = statement("take_due_aggregations")
_CLAIM = statement("claim_aggregation")
_UNFINISHED = statement("is_unfinished")
_NEWEST = statement("newest_aggregation")


@dataclass(frozen=True, slots=True)
class AggregationRequest:
    """An aggregation that is to be made."""

    run_id: str
    scoring: str


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregation that was asked for, and what came of it."""

    key: int
    finished: bool
    """Whether it was made, or has failed and is not tried again."""
    snapshot_ids: tuple[int, ...] = ()
    problem: str | None = None

    @property
    def snapshot_id(self) -> int | None:
        """The last of its snapshots; None before it was made."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None


def request_of_completed(session: Session, run_ids: Collection[str]) -> None:
    """Ask for one aggregation of each run that is complete now and was not before.

    One that a user paused or cancelled while its last calls were in flight is held no more.

    Args:
        session: Transaction of the caller, which has just closed models of these runs.
    """
    values = {"runs": sorted(run_ids), "scoring": DEFAULT_RULE.name}
    session.execute(_RELEASE, {"runs": values["runs"]})
    session.execute(_REQUEST, values)


def take_due(session: Session, lost_after_s: float = LOST_AFTER_S) -> Sequence[int]:
    """Mark the aggregations as enqueued that are to be enqueued now; return their keys.

    Args:
        session: Transaction of the caller, who publishes them after its commit.
    """
    return sorted(session.scalars(_TAKE_DUE, {"lost_after_s": lost_after_s}))


def unfinished(session: Session, run_id: str) -> Sequence[int]:
    """Return the keys of a run's aggregations that are not finished, oldest first."""
    return session.scalars(
        select(AggregationRow.id)
        .where(AggregationRow.run_id == run_id, AggregationRow.finished_at.is_(None))
        .order_by(AggregationRow.id)
    ).all()


def claim(session: Session, key: int) -> AggregationRequest | None:
    """Lock an aggregation until the end of the transaction.

    Args:
        session: Transaction of the caller, who makes the aggregation in it.

    Returns:
        None when it is finished, unknown, or being made by another worker.
    """
    row = session.execute(_CLAIM, {"id": key}).one_or_none()
    return None if row is None else AggregationRequest(row.run_id, row.scoring)


def is_unfinished(session: Session, key: int) -> bool:
    """Return whether an aggregation is still to be made, or being made."""
    return bool(session.scalar(_UNFINISHED, {"id": key}))


def finish(
    session: Session, key: int, snapshot_ids: Sequence[int], problem: str | None = None
) -> None:
    """Write down what came of an aggregation; one that is finished stays as it is.

    Args:
        problem: Why it made none, one line without a key; None when it did.
    """
    row = AggregationRow
    session.execute(
        update(row)
        .where(row.id == key, row.finished_at.is_(None))
        .values(
            finished_at=func.now(),
            snapshot_ids=list(snapshot_ids) or None,
            problem=None if problem is None else clean_text(problem[:PROBLEM_LENGTH]),
        )
    )


def newest_aggregation(session: Session, run_id: str) -> Aggregation | None:
    """Return the newest aggregation of a run as it is planned now.

    Returns:
        None when the run has not been complete since it was last extended or retried.
    """
    row = session.execute(_NEWEST, {"run": run_id}).one_or_none()
    if row is None:
        return None
    return _aggregation(row.id, row.finished, row.snapshot_ids, row.problem)


def _aggregation(
    key: int, finished: bool, snapshot_ids: Sequence[int] | None, problem: str | None
) -> Aggregation:
    return Aggregation(key, finished, tuple(snapshot_ids or ()), problem)
