"""The items of batches in the store: put into one, read for its requests, settled at its end."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from aegish_dist.core.batch import BatchItem, BatchRequest, BatchState
from aegish_dist.core.batch_rules import MAX_TRIES
from aegish_dist.db.base import AdvisoryLock
from aegish_dist.db.batch_tables import BatchRow
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import RunModelRow, RunRow
from aegish_dist.db.text import encode_text

STREAM_ROWS = 5000
"""Rows fetched at once while items are streamed."""

_BATCHABLE = statement("batchable_items")
_PUT = statement("put_items_in_batch")
_REQUESTS = statement("requests_of_batch")
_FORGET_ANSWERED = statement("forget_answered_items")
_NAME_PROBLEMS = statement("name_problems_of_items")
_ASK_LIVE = statement("ask_items_live")
_LIVE = statement("live_items_of_batch")
_FREE = statement("free_items_of_batch")
_FAILED = statement("failed_batches_in_a_row")


def plans_alone(session: Session, run_model_id: int) -> bool:
    """Return whether no other transaction plans batches of a model of a run, until this one ends.

    False as well when its run was held or completed meanwhile.
    """
    key = func.pg_try_advisory_xact_lock(AdvisoryLock.BATCHING + run_model_id)
    if not session.scalar(select(key)):
        return False
    open_now = (
        select(RunModelRow.open)
        .join(RunRow, RunRow.id == RunModelRow.run_id)
        .where(RunModelRow.id == run_model_id, RunRow.held.is_(None))
    )
    return bool(session.scalar(open_now))


def has_batches(session: Session, run_model_id: int) -> bool:
    """Return whether a model of a run has had a batch."""
    batch = select(BatchRow.id).where(BatchRow.run_model_id == run_model_id)
    return session.scalar(batch.limit(1)) is not None


def has_open_batches(session: Session, run_model_id: int) -> bool:
    """Return whether a model of a run has a batch that is not ended."""
    open_ = BatchRow.state != BatchState.ENDED.value
    batch = select(BatchRow.id).where(BatchRow.run_model_id == run_model_id, open_)
    return session.scalar(batch.limit(1)) is not None


@dataclass(frozen=True, slots=True)
class FailedBatches:
    """The newest batches of a model of a run that failed as a whole."""

    failed: int
    ended_s: float
    """Seconds since the last of them ended; 0 when there is none."""


def failed_in_a_row(session: Session, run_model_id: int) -> FailedBatches:
    """Return how many of the newest batches of a model of a run failed as a whole."""
    row = session.execute(_FAILED, {"model": run_model_id}).one()
    return FailedBatches(row.failed, float(row.ended_s or 0))


def batchable_items(
    session: Session, run_id: str, run_model_id: int
) -> Generator[BatchRequest, None, None]:
    """Stream the items of a model that lack a verdict, are in no open batch and not asked live."""
    streamed = {"yield_per": STREAM_ROWS}
    values = {"run": run_id, "model": run_model_id}
    with session.execute(_BATCHABLE, values, execution_options=streamed) as rows:
        for row in rows:
            item = BatchItem(row.sample_key, row.epoch, row.generation)
            yield BatchRequest(item, row.command)


def save_batch(
    session: Session,
    run_model_id: int,
    token: str,
    items: Sequence[BatchItem],
    expected_usd: Decimal | None,
) -> int:
    """Store a planned batch with its items; return its key.

    Args:
        expected_usd: Expected cost; None when a price is unknown.
    """
    values = {
        "run_model_id": run_model_id,
        "token": token,
        "state": BatchState.PLANNED.value,
        "requests": len(items),
        "expected_usd": expected_usd,
    }
    batch_id = session.execute(insert(BatchRow).values(values).returning(BatchRow.id)).scalar_one()
    session.execute(_PUT, {"batch": batch_id, **_columns(items)})
    return batch_id


def _columns(items: Iterable[BatchItem]) -> dict[str, list[int]]:
    taken = list(items)
    return {
        "keys": [item.sample_key for item in taken],
        "epochs": [item.epoch for item in taken],
        "generations": [item.generation for item in taken],
    }


def requests_of(session: Session, batch_id: int) -> list[BatchRequest]:
    """Return the requests of a batch."""
    return [
        BatchRequest(BatchItem(row.sample_key, row.epoch, row.generation), row.command)
        for row in session.execute(_REQUESTS, {"batch": batch_id})
    ]


def settle_items(session: Session, batch_id: int, problems: Mapping[BatchItem, str]) -> None:
    """Forget the items of a batch that have verdicts, and have those asked live whose time it is.

    The others stay in it until `free_items`. Doing it again changes nothing.
    """
    session.execute(_FORGET_ANSWERED, {"batch": batch_id})
    if problems:
        words = [encode_text(problem) for problem in problems.values()]
        values = {"batch": batch_id, "problems": words, **_columns(problems)}
        session.execute(_NAME_PROBLEMS, values)
    session.execute(_ASK_LIVE, {"batch": batch_id, "tries": MAX_TRIES})


def live_items_of(session: Session, batch_id: int) -> list[BatchItem]:
    """Return the items of a batch that are asked live."""
    rows = session.execute(_LIVE, {"batch": batch_id})
    return [BatchItem(row.sample_key, row.epoch, row.generation) for row in rows]


def free_items(session: Session, batch_id: int, *, refunded: int = 0) -> None:
    """Have the items of a batch be in none.

    Args:
        refunded: Tries that do not count, as the provider has looked at none of them.
    """
    session.execute(_FREE, {"batch": batch_id, "refunded": refunded})
