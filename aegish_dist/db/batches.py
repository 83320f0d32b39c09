"""Batches and their items in the store.

A worker has a batch from `take_due` until `give_back`, or until its lease ends. Each write names
the worker, so that a worker whose lease has ended changes nothing any more.
"""

import math
from collections.abc import Collection, Generator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from msgspec import Struct, convert
from sqlalchemy import Row, func, update
from sqlalchemy.orm import Session

from aegish_dist.core.batches import MAX_TRIES, BatchItem, BatchRequest
from aegish_dist.core.model import Destination
from aegish_dist.core.run import BatchState, RunPause
from aegish_dist.core.status import BatchTotals
from aegish_dist.core.text import clean_text
from aegish_dist.core.verdict import Usage
from aegish_dist.db.engine import execute, reading, statement
from aegish_dist.db.runs import destination_of
from aegish_dist.db.schema import BATCHES, AdvisoryLock
from aegish_dist.errors import BatchTakenError, UnreadableRunError
from aegish_dist.logs import get_logger

log = get_logger(__name__)

STREAM_ROWS = 5000


def plans_alone(session: Session, run_model_id: int) -> bool:
    """Return whether no other transaction plans batches of a model of a run, until this one ends.

    False as well when its run was held or completed meanwhile.
    """
    if not execute(session, "try_lock", key=AdvisoryLock.BATCHING + run_model_id).scalar():
        return False
    return bool(execute(session, "is_open_and_not_held", model=run_model_id).scalar())


def has_batches(session: Session, run_model_id: int, *, still_open: bool = False) -> bool:
    """Return whether a model of a run has batches, or such that are not ended."""
    found = execute(session, "count_batches_of_model", model=run_model_id).one()
    return bool(found.open if still_open else found.batches)


def failed_in_a_row(session: Session, run_model_id: int) -> tuple[int, float]:
    """Return how many of the newest batches failed as a whole, and the seconds since then, or 0."""
    row = execute(session, "failed_batches_in_a_row", model=run_model_id).one()
    return row.failed, float(row.ended_s or 0)


def batchable_items(
    session: Session, run_id: str, run_model_id: int
) -> Generator[BatchRequest, None, None]:
    """Stream the items of a model that lack a verdict, are in no open batch and not asked live."""
    streamed = {"yield_per": STREAM_ROWS}
    values = {"run": run_id, "model": run_model_id}
    with session.execute(statement("batchable_items"), values, execution_options=streamed) as rows:
        yield from map(_request, rows)


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
    batch = {"model": run_model_id, "token": token, "requests": len(items)}
    planned = execute(session, "add_batch", expected_usd=expected_usd, **batch)
    batch_id: int = planned.scalar_one()
    execute(session, "put_items_in_batch", batch=batch_id, **_columns(items))
    return batch_id


def _columns(items: Collection[BatchItem]) -> dict[str, list[int]]:
    return {
        "keys": [item.sample_key for item in items],
        "epochs": [item.epoch for item in items],
        "generations": [item.generation for item in items],
    }


def requests_of(session: Session, batch_id: int) -> list[BatchRequest]:
    return list(map(_request, execute(session, "requests_of_batch", batch=batch_id)))


def _request(row: Row[Any]) -> BatchRequest:
    return BatchRequest(BatchItem(row.sample_key, row.epoch, row.generation), row.command)


def settle_items(session: Session, batch_id: int, problems: Mapping[BatchItem, str]) -> None:
    """Forget the items of a batch that have verdicts, and have those asked live whose time it is.

    The others stay in it until `free_items`. Doing it again changes nothing.
    """
    execute(session, "forget_answered_items", batch=batch_id)
    if problems:
        words = [clean_text(problem) for problem in problems.values()]
        columns = _columns(problems.keys())
        execute(session, "name_problems_of_items", batch=batch_id, problems=words, **columns)
    execute(session, "ask_items_live", batch=batch_id, tries=MAX_TRIES)


def live_items_of(session: Session, batch_id: int) -> list[BatchItem]:
    rows = execute(session, "live_items_of_batch", batch=batch_id)
    return [BatchItem(row.sample_key, row.epoch, row.generation) for row in rows]


def free_items(session: Session, batch_id: int, *, refunded: int = 0) -> None:
    """Have the items of a batch be in none.

    Args:
        refunded: Tries that do not count, as the provider has looked at none of them.
    """
    execute(session, "free_items_of_batch", batch=batch_id, refunded=refunded)


MOST_ANSWERS = 1000  # answers whose tokens are averaged at most
FEWEST_ANSWERS = 4


def batch_totals(session: Session, run_id: str) -> dict[str, BatchTotals]:
    """Return the batches of each model of a run that is asked in batches, now or later."""
    totals = {}
    for row in execute(session, "add_up_batches", run=run_id).mappings():
        states = {state.value: row[state.value] for state in BatchState if row[state.value]}
        totals[row["model"]] = convert({**row, "states": states}, BatchTotals)
    return totals


def usage_of_answers(session: Session, run_id: str, model: str) -> Usage | None:
    """Return the mean tokens of a call, rounded up; None of fewer than `FEWEST_ANSWERS` answers."""
    values = {"run": run_id, "model": model, "limit": MOST_ANSWERS}
    row = execute(session, "usage_of_answers", **values).one()
    if row.answers < FEWEST_ANSWERS:
        return None
    return Usage(math.ceil(row.input_tokens), math.ceil(row.output_tokens))


def lock_run(session: Session, run_id: str) -> None:
    """Have other transactions that plan batches of a run wait until this one ends."""
    execute(session, "lock_run", run=run_id)


PROBLEM_LENGTH = 300

# Key in the counts of a batch that its provider turned down after it was created.
FAILED_AS_A_WHOLE = "failed_as_a_whole"
SUCCEEDED = "succeeded"  # key in the counts of a batch of the number of its answered requests
# Key in the counts of a batch that its provider does not know any more: it has no results.
GONE = "gone"


class BatchingModel(Struct, frozen=True):
    """A model of a run that has work for those who may call it."""

    run_model_id: int
    run_id: str
    model: str
    queue: str
    destination: Destination  # where its requests go, and with which key
    batch_from: datetime | None  # since when its items are asked in batches; None: they are not


class TakenBatch(Struct, frozen=True):
    """A batch that a worker has, as it was when it was taken."""

    id: int
    run_model_id: int
    run_id: str
    model: str
    token: str
    state: BatchState
    requests: int
    held: RunPause | None
    provider_name: str | None
    adopted: bool
    refused_names: frozenset[str]
    cancel_asked: bool
    failures: int
    # When the latest attempt to hand it over began, by the store's clock; when it was planned, if
    # none did.
    begun_at: datetime
    creating_s: float  # seconds since that attempt began; 0 without
    submitted_s: float  # seconds since the provider's name was stored; 0 without
    failed_as_a_whole: bool = False
    # Answered requests by the provider's last count; None: it gave none.
    succeeded: int | None = None
    gone: bool = False  # whether the provider does not know it any more


def models_to_plan(session: Session) -> list[BatchingModel]:
    """Return the models of runs whose missing items are asked in batches now."""
    return list(map(_batching_model, execute(session, "models_to_plan")))


def models_of_due_batches(session: Session) -> list[BatchingModel]:
    return list(map(_batching_model, execute(session, "models_of_due_batches")))


def _batching_model(row: Row[Any]) -> BatchingModel:
    destination = destination_of(row.run_id, row.model, row.spec)
    return BatchingModel(
        row.run_model_id, row.run_id, row.model, row.queue, destination, row.batch_from
    )


def take_due(
    session: Session, run_models: Sequence[int], worker: str, lease_s: float, limit: int
) -> list[TakenBatch]:
    """Give due batches to a worker."""
    models = list(run_models)
    due = execute(
        session, "take_due_batches", models=models, worker=worker, lease_s=lease_s, limit=limit
    )
    taken = []
    for row in sorted(due, key=lambda row: row.id):
        try:
            with reading(row.run_id):
                taken.append(_taken(row))
        except UnreadableRunError as error:  # it is due again after its lease
            log.warning("batch_unreadable", batch=row.id, problem=str(error))
    return taken


def _taken(row: Row[Any]) -> TakenBatch:
    counts = convert(row.counts, dict[str, int | bool])
    refused = convert(row.refused_names, list[dict[str, str]])
    read = {
        "refused_names": [each["name"] for each in refused],
        "creating_s": float(row.creating_s or 0),
        "submitted_s": float(row.submitted_s or 0),
        "failed_as_a_whole": FAILED_AS_A_WHOLE in counts,
        "succeeded": counts.get(SUCCEEDED),
        "gone": GONE in counts,
    }
    return convert(row._asdict() | read, TakenBatch)


def cancelled_among(session: Session, batches: Sequence[int]) -> list[int]:
    return list(execute(session, "cancelled_among", batches=list(batches)).scalars())


def renew_lease(session: Session, batch_id: int, worker: str, lease_s: float) -> bool:
    """Prolong the lease of a worker on a batch; return False when it has it no more."""
    renewed = execute(session, "renew_batch_lease", id=batch_id, worker=worker, lease_s=lease_s)
    return bool(renewed.rowcount)


def write(session: Session, batch: TakenBatch, worker: str, /, **values: object) -> None:
    changed = session.connection().execute(
        update(BATCHES)
        .where(BATCHES.c.id == batch.id, BATCHES.c.worker == worker, BATCHES.c.state != "ended")
        .values(**values)
    )
    if not changed.rowcount:
        raise BatchTakenError(f"batch {batch.id} is another worker's now")


def give_back(
    session: Session, batch: TakenBatch, worker: str, due_in_s: float, /, **values: object
) -> None:
    """Write columns of a batch, and let any worker take it after some seconds."""
    due_at = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, due_in_s)
    write(session, batch, worker, **{"worker": None, "due_at": due_at, **values})


def problem_text(problem: str | None) -> str | None:
    return None if problem is None else clean_text(problem[:PROBLEM_LENGTH])


def hurry(session: Session, run_id: str) -> None:
    """Have the open batches of a run looked at now: it was held, or goes on."""
    execute(session, "hurry_batches", run=run_id)


def known_names(session: Session, names: Sequence[str]) -> dict[str, bool]:
    """Return those of some names of a provider that batches in the store have.

    Returns:
        By name whether it is certain: a name that was found is not until its batch has ended.
    """
    found = execute(session, "known_batch_names", names=list(names))
    return {row.name: row.certain for row in found}


def batches_at_providers(session: Session, run_id: str) -> int:
    """Return how many open batches of a run a provider knows, or may know: they are paid for."""
    return int(execute(session, "count_batches_at_providers", run=run_id).scalar_one())


def batch_work_left(session: Session, run_id: str) -> bool:
    """Return whether batches of a run are open, or can still be made of what it lacks."""
    return any(
        execute(session, name, run=run_id).scalar()
        for name in ("is_batch_open", "is_batch_to_be_planned")
    )
