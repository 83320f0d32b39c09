"""Enqueueing: from what the store says is to be done to messages in the broker.

What is to be done is committed first: a broker that loses its messages loses no work.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.core.text import counted
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.missing import LOST_AFTER_S, Extent, missing_items, open_models, take_due
from aegish_dist.errors import QueueError, StoreError
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.telemetry.tracing import message_headers, note, span

if TYPE_CHECKING:
    from celery import Celery


def enqueue_missing(
    engine: Engine,
    app: Celery,
    run_id: str,
    observer: Observer = SILENT,
    total: int | None = None,
    *,
    generation: int | None = None,
    beyond: Extent | None = None,
) -> int:
    """Enqueue whatever of a run has no verdict; return how many items that is.

    Enqueueing an item that is still queued is harmless: it is called once, or, if two workers hold
    it in the same moment, stored once.

    Args:
        total: Items there will be, and a note says how many there were; None when they are not
            counted beforehand, and their number is the result of the command.
        generation: Only the items that this retry planned; None for all.
        beyond: What the run asked before an extension: only items outside this extent are
            enqueued, and no retries; None for all.
    """
    from aegish_dist.broker.client import publish  # noqa: PLC0415

    in_transaction(engine, open_models, run_id)
    with (
        transaction(engine) as session,
        closing(missing_items(session, run_id, generation, beyond)) as items,
        span("publish", run_id),
        observer.counting("items enqueued", total) as show,
    ):
        published = publish(app, items, show, message_headers())
        note({"messaging.batch.message_count": published})
    if total is not None:
        observer.note(f"enqueued {counted(published, 'item')}")
    return published


@contextmanager
def resumable(stored: str, run_id: str) -> Iterator[None]:
    """Have an error say that something is stored all the same, and what enqueues the rest."""
    try:
        yield
    except (QueueError, StoreError) as error:
        raise type(error)(
            f"{error}; {stored} is stored, `aegish-dist resume --run-id {run_id}` enqueues the rest"
        ) from error


def enqueue_due(engine: Engine, app: Celery, *, lost_too: bool) -> None:
    """Enqueue the aggregations that were never enqueued.

    After a QueueError, as the broker cannot be reached, a call with `lost_too` repeats it a minute
    later.

    Args:
        lost_too: Whether to enqueue those again whose messages were lost. A worker that takes none
            leaves that to those that do: without any, each minute would add a message.
    """
    from aegish_dist.broker.client import publish_aggregations  # noqa: PLC0415

    lost_after_s = LOST_AFTER_S if lost_too else None
    if due := in_transaction(engine, take_due, lost_after_s):
        publish_aggregations(app, due)
