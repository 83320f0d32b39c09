"""Runs that are held: workers ask nothing of them, although some of their items have no verdict.

The column `runs.held` is all there is to it. Every look-up of an item reads it, so no call begins
of an item that is looked up after a run was held.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from aegish_dist.core.run import Held
from aegish_dist.db.tables import RunModelRow, RunRow, WorkerRow
from aegish_dist.db.workers import ALIVE_S

REPORT_AGE = timedelta(seconds=0.5)
"""How long a worker's report may have been under way to the database."""


def hold(session: Session, run_id: str, reason: Held) -> Held | None:
    """Have workers ask nothing more of a run; calls in flight finish and are stored.

    A paused run can be cancelled; one that is cancelled stays so.

    Returns:
        Why it was held before; None: it was not.
    """
    before = session.scalar(select(RunRow.held).where(RunRow.id == run_id).with_for_update())
    if before is None or (before == Held.PAUSED.value and reason is not Held.PAUSED):
        session.execute(update(RunRow).where(RunRow.id == run_id).values(held=reason.value))
    return None if before is None else Held(before)


def release(session: Session, run_id: str) -> None:
    """Have workers ask what a held run lacks."""
    session.execute(update(RunRow).where(RunRow.id == run_id).values(held=None))


def held_among(session: Session, run_ids: Collection[str]) -> frozenset[str]:
    """Return those of some runs that are held."""
    held = select(RunRow.id).where(RunRow.id.in_(run_ids), RunRow.held.is_not(None))
    return frozenset(session.scalars(held))


def batched_among(session: Session, run_ids: Collection[str]) -> frozenset[tuple[str, str]]:
    """Return the models of some runs that are asked in batches now, by run id and model."""
    model = RunModelRow
    rows = session.execute(
        select(model.run_id, model.model).where(
            model.run_id.in_(run_ids), model.batch_from <= func.now()
        )
    )
    return frozenset((row.run_id, row.model) for row in rows)


def database_time(session: Session) -> datetime:
    """Return when the transaction began, by the server's clock."""
    return session.scalars(select(func.now())).one()


def items_under_way(
    session: Session, run_id: str, since: datetime, model: str | None = None
) -> int | None:
    """Return how many items of a run living workers hold, by reports that are new enough.

    Args:
        since: Time of the server; what a worker reported before it says nothing.
        model: Only items of this model; None: all.

    Returns:
        None while a living worker has not reported since.
    """
    recent = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, ALIVE_S)
    earliest = since + REPORT_AGE
    items = 0
    for row in session.scalars(select(WorkerRow).where(WorkerRow.seen_at > recent)):
        if row.seen_at < earliest:
            return None
        items += sum(
            each["items"]
            for each in row.in_flight
            if each["run"] == run_id and model in (None, each["model"])
        )
    return items
