"""Working on a run to its end: by a worker in this process, or by waiting for workers elsewhere.

A run that is complete is aggregated as well. Workers make aggregations, the one in this process
included; statistics are loaded there.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from sqlalchemy import Engine

from aegish_dist.broker.messages import AGGREGATION_QUEUE, queue_names
from aegish_dist.core.run import Run
from aegish_dist.core.status import RunStatus, State
from aegish_dist.db.batches import batch_work_left
from aegish_dist.db.engine import in_transaction
from aegish_dist.db.missing import FinishedModels, newest_aggregation, unfinished
from aegish_dist.errors import QueueError, interrupt_in
from aegish_dist.pipeline.enqueue import enqueue_missing
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.status import Counts, items_held, paced, patiently, run_status

if TYPE_CHECKING:
    from celery import Celery

    from aegish_dist.broker.embedded import EmbeddedWorker
    from aegish_dist.pipeline.workspace import Workspace

POLL_S = 0.25  # seconds between two looks at the workers, the queues or the store
PATIENCE_S = 60.0  # seconds to wait for a worker that takes items
CLOSING_S = 10.0  # seconds to wait while another process looks for finished models
# Seconds to wait for a snapshot; counting two million verdicts takes a tenth of that.
SNAPSHOT_PATIENCE_S = 60.0
SNAPSHOT_POLL_S = 0.02  # seconds between two looks at what the worker in this process makes


def finish(workspace: Workspace, run: Run, observer: Observer) -> RunStatus:
    """Work on a run here to its end, or with a broker wait until workers elsewhere have done so.

    Returns the last status; see the two below.
    """
    engine, embedded = workspace.engine, workspace.settings.embedded_broker
    goes_on = f"`aegish-dist resume --run-id {run.typed}` goes on" if embedded else "workers go on"

    def say_how_far() -> NoReturn:
        now = run_status(engine, run.run_id)
        raise KeyboardInterrupt(f"at {now.done:,} of {now.planned:,} verdicts: {goes_on}")

    with _on_interrupt(say_how_far), observer.watching() as show:
        if embedded:
            status = run_embedded(engine, workspace.app, run, show, observer)
        else:
            status = _wait_for_workers(engine, workspace.app, run, show)
        if status.missing:
            return status
        if not embedded:
            wait_for_snapshot(engine, lambda: workspace.own_app, run.run_id)
        return patiently(lambda: run_status(engine, run.run_id))


@contextmanager
def _on_interrupt(then: Callable[[], None]) -> Iterator[None]:
    """Call a function when an interrupt ends the body."""
    try:
        yield
    except BaseException as error:
        if interrupt_in(error) is not None:
            then()
        raise


def run_embedded(
    engine: Engine,
    app: Celery,
    run: Run,
    on_status: Callable[[RunStatus], None],
    observer: Observer = SILENT,
) -> RunStatus:
    """Enqueue what is missing of a run and work on it in this process until nothing is left.

    What is parked or over budget counts as left behind, and a complete run is aggregated.
    `on_status` gets each count: several times a second for a small run, more seldom where counting
    takes long. Items that failed on a bug are still missing in the last one, which is returned; the
    log names them.
    """
    from aegish_dist.broker.embedded import EmbeddedWorker  # noqa: PLC0415

    waits = partial(observer.note, "interrupted: waiting for calls in flight")
    queues = [*queue_names(run), AGGREGATION_QUEUE]
    with EmbeddedWorker(app, queues) as worker, _on_interrupt(waits):
        enqueue_missing(engine, app, run.run_id, observer)
        counts = Counts(paced(lambda: run_status(engine, run.run_id)))
        while True:
            batches = in_transaction(engine, batch_work_left, run.run_id)
            idle = worker.idle and not batches
            status = counts.look(quiet=idle)
            if status is not None:
                on_status(status)
                if idle or (status.ended and not (batches and status.state is State.CANCELLED)):
                    break
            if not worker.alive:
                raise QueueError(
                    "the embedded worker ended early; the log says why, "
                    f"`aegish-dist resume --run-id {run.typed}` goes on"
                )
            time.sleep(POLL_S)
        if not status.missing:
            _close_models(engine, run)
            _aggregate_here(engine, app, worker, run.run_id)
    return status


def _wait_for_workers(
    engine: Engine, app: Celery, run: Run, on_status: Callable[[RunStatus], None]
) -> RunStatus:
    """Watch a run until workers elsewhere have completed it, or can do no more for it.

    Verdicts are missing in the last status when a model is parked, a cap is reached, or no worker
    held an item for `PATIENCE_S` while the queues were empty: what is missing was lost, and only
    `resume` enqueues it again.
    """
    from aegish_dist.broker.client import queue_depths  # noqa: PLC0415

    queues = queue_names(run)
    counts = Counts(paced(lambda: patiently(lambda: run_status(engine, run.run_id))))
    moving_at = time.monotonic()
    while True:
        busy = patiently(
            lambda: (
                items_held(engine, run.run_id) > 0
                or any(queue_depths(app, queues).values())
                or in_transaction(engine, batch_work_left, run.run_id)
            )
        )
        status = counts.look(quiet=not busy)
        if busy or (status is not None and status.state is State.RUNNING):
            moving_at = time.monotonic()
        if status is not None:
            on_status(status)
            if counts.has_ended(status) or time.monotonic() - moving_at > PATIENCE_S:
                return status
        time.sleep(POLL_S)


def _close_models(engine: Engine, run: Run) -> None:
    """Find that the models of a run are finished, which asks for its aggregation."""
    models = {(run.run_id, spec.id) for spec in run.models}
    finished = FinishedModels(search_s=math.inf)
    until = time.monotonic() + CLOSING_S
    while not in_transaction(engine, finished.close, models) and time.monotonic() < until:
        time.sleep(POLL_S)


def wait_for_snapshot(engine: Engine, own_app: Callable[[], Celery], run_id: str) -> None:
    """Wait for up to a minute until a worker has aggregated a complete run; else do it here.

    The role of workers may not aggregate, and there may be no aggregator.

    Args:
        own_app: Makes the application of a broker and a worker inside this process.
    """

    def made() -> bool:
        aggregation = in_transaction(engine, newest_aggregation, run_id)
        return aggregation is not None and aggregation.finished

    until = time.monotonic() + SNAPSHOT_PATIENCE_S
    while not patiently(made):
        if time.monotonic() > until:
            _start_aggregator(engine, own_app(), run_id)
            return
        time.sleep(POLL_S)


def _start_aggregator(engine: Engine, app: Celery, run_id: str) -> None:
    """Start a worker in this process for the aggregations of one run."""
    from aegish_dist.broker.app import process_of  # noqa: PLC0415
    from aegish_dist.broker.embedded import EmbeddedWorker  # noqa: PLC0415

    process_of(app).calls_models = False
    with EmbeddedWorker(app, [AGGREGATION_QUEUE]) as worker:
        patiently(lambda: _aggregate_here(engine, app, worker, run_id))


def _aggregate_here(engine: Engine, app: Celery, worker: EmbeddedWorker, run_id: str) -> None:
    """Have the worker in this process make the aggregations that a run asks for."""
    from aegish_dist.broker.client import publish_aggregations  # noqa: PLC0415

    publish_aggregations(app, in_transaction(engine, unfinished, run_id))
    while worker.alive and in_transaction(engine, unfinished, run_id):
        time.sleep(SNAPSHOT_POLL_S)
