"""Running items to the end: with a worker inside this process, or by waiting for others.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.run import Run
from aegish_dist.core.status import RunStatus, State
from aegish_dist.errors import QueueError
from aegish_dist.pipeline.asked_aggregations import aggregate_here, wait_for_snapshot
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.pace import paced
from aegish_dist.pipeline.status import has_batches_to_do, items_held, run_status
from aegish_dist.pipeline.submit import enqueue_missing
from aegish_dist.pipeline.watch import Counts, patiently

if TYPE_CHECKING:
    from celery import Celery

    from aegish_dist.pipeline.workspace import Workspace

POLL_S = 0.25
"""Seconds between two looks at the worker or the queues."""
PATIENCE_S = 60.0
"""Seconds to wait for a worker that takes items."""


def run_embedded(
    engine: Engine,
    app: Celery,
    run: Run,
    on_status: Callable[[RunStatus], None],
    enqueueing: Callable[[], AbstractContextManager[Callable[[int], None]]] = SILENT.enqueueing,
) -> RunStatus:
    """Enqueue what is missing of a run and work on it in this process until nothing is left.

    What is parked or over budget counts as left behind.

    Args:
        on_status: Called with each count: several times a second for a small run, more seldom where
            counting takes long.
        enqueueing: Gives a callback for the number of items enqueued so far.

    Returns:
        The last status; items that failed on a bug are still missing in it, the log names them.
    """
    from aegish_dist.broker.embedded import EmbeddedWorker  # noqa: PLC0415

    queues = queue_names(run)
    with EmbeddedWorker(app, queues) as worker:
        with enqueueing() as published:
            enqueue_missing(engine, app, run.run_id, published)
        counts = Counts(paced(lambda: run_status(engine, run.run_id)))
        while True:
            batches = has_batches_to_do(engine, run.run_id)
            idle = worker.idle and not batches
            status = counts.look(quiet=idle)
            if status is not None:
                on_status(status)
                if idle or (status.ended and not (batches and status.state is State.CANCELLED)):
                    return status
            if not worker.alive:
                raise QueueError(
                    "the embedded worker ended early; the log says why, "
                    f"`aegish-dist resume --run-id {run.run_id}` goes on"
                )
            time.sleep(POLL_S)


def wait_for_workers(
    engine: Engine,
    app: Celery,
    run: Run,
    on_status: Callable[[RunStatus], None],
    patience_s: float = PATIENCE_S,
) -> RunStatus:
    """Watch a run until workers elsewhere have completed it, or can do no more for it.

    Args:
        patience_s: Seconds during which no worker holds an item while the queues are empty, before
            the wait ends: what is missing was lost, and only `resume` enqueues it again.

    Returns:
        The last status; something is missing in it when a model is parked, money or patience ran
        out.
    """
    from aegish_dist.broker.connection import queue_depths  # noqa: PLC0415

    queues = queue_names(run)
    counts = Counts(paced(lambda: patiently(lambda: run_status(engine, run.run_id))))
    moving_at = time.monotonic()
    while True:
        busy = patiently(
            lambda: (
                items_held(engine, run.run_id) > 0
                or any(queue_depths(app, queues).values())
                or has_batches_to_do(engine, run.run_id)
            )
        )
        status = counts.look(quiet=not busy)
        if status is not None:
            on_status(status)
        if status is not None and counts.has_ended(status):
            return status
        if busy or (status is not None and status.state is State.RUNNING):
            moving_at = time.monotonic()
        elif status is not None and time.monotonic() - moving_at > patience_s:
            return status
        time.sleep(POLL_S)


def finish(workspace: Workspace, run: Run, observer: Observer) -> RunStatus:
    """Work on a run here to its end, or with a broker wait until workers elsewhere have done so.

    A run that is complete is aggregated as well.

    Returns:
        The last status, as of `run_embedded` or `wait_for_workers`.
    """
    engine, embedded = workspace.engine, workspace.settings.embedded_broker
    with observer.watching() as show:
        if embedded:
            status = run_embedded(engine, workspace.app, run, show, observer.enqueueing)
        else:
            status = wait_for_workers(engine, workspace.app, run, show)
        if status.missing:
            return status
        if embedded:
            aggregate_here(engine, run)
        else:
            wait_for_snapshot(engine, run.run_id)
        return patiently(lambda: run_status(engine, run.run_id))
