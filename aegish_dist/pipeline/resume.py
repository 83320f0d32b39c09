"""Resuming a run: enqueue whatever of it has no verdict, and have parked models tried again.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.run import Run
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.submit import enqueue_missing

if TYPE_CHECKING:
    from celery import Celery


def load_submitted_run(engine: Engine, run_id: str) -> Run:
    """Return a run whose models can be asked.

    Args:
        engine: The store.
        run_id: A full run id.

    Raises:
        StoreError: The run was imported: there is no prompt to ask with.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
    if run.prompt is None:
        raise StoreError(f"run {run_id} was imported: its models cannot be asked from here")
    return run


def resume(
    engine: Engine,
    app: Celery,
    run: Run,
    limiter_url: str | None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Enqueue whatever of a run has no verdict, for workers elsewhere.

    What still waits in its queues is dropped before: it is missing too, and would otherwise wait
    there twice. Two workers that take the same item at once call the model twice.

    Args:
        engine: The store.
        app: The queue.
        run: A run whose models can be asked.
        limiter_url: The Redis with the rate limits, where parked models are remembered; None when
            each worker has its own.
        on_progress: Called with the number of items enqueued so far.

    Returns:
        How many items were enqueued.

    Raises:
        QueueError: The broker cannot be reached, or takes no messages.
    """
    from aegish_dist.broker.connection import drop_waiting  # noqa: PLC0415

    drop_waiting(app, queue_names(run))
    enqueued = enqueue_missing(engine, app, run.run_id, on_progress)
    probe_parked(run, limiter_url)
    return enqueued


def probe_parked(run: Run, limiter_url: str | None) -> None:
    """Have parked models of a run called at once instead of at their next probe."""
    from aegish_dist.ratelimit.redis_store import probe_now  # noqa: PLC0415

    if limiter_url is not None:
        probe_now(limiter_url, [spec.id for spec in run.models])
