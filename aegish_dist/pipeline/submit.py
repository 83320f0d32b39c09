"""Submitting and extending runs: check, store in one transaction, enqueue, and work to the end.

What is stored is enqueued afterwards; after a crash in between, `resume` enqueues the rest. An
extension enqueues only what is new. The work is done by a worker in this process, or by waiting for
workers elsewhere.

Celery takes 0.1 s to import, so what publishes imports it: a dry run does without.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist import __version__
from aegish_dist.broker.messages import queue_name, queue_names
from aegish_dist.core.run import Run, new_run_id
from aegish_dist.core.status import RunStatus, State
from aegish_dist.db.datasets import save_dataset
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import Extent, extent_of, missing_items, open_models, save_extension
from aegish_dist.db.runs import require_free_name, save_parameters, save_run
from aegish_dist.errors import QueueError, StoreError
from aegish_dist.models import RunEstimate
from aegish_dist.pipeline.datasets import describe
from aegish_dist.pipeline.plan import (
    Request,
    RunPlan,
    plan_extension,
    plan_run,
)
from aegish_dist.pipeline.preflight import calls_a_provider, check_before_calls
from aegish_dist.pipeline.runs import load_submitted_run
from aegish_dist.pipeline.status import (
    Counts,
    has_batches_to_do,
    items_held,
    paced,
    patiently,
    run_status,
)
from aegish_dist.pipeline.workspace import SILENT, Observer
from aegish_dist.telemetry import Attributes
from aegish_dist.telemetry.tracing import first_span, message_headers, note, span

if TYPE_CHECKING:
    from celery import Celery

    from aegish_dist.pipeline.workspace import Workspace


def create_run(engine: Engine, plan: RunPlan) -> Run:
    """Store a run in one transaction; nothing is enqueued yet.

    Raises:
        ConfigError: Its name was given to another run meanwhile.
    """
    now = datetime.now(UTC)
    run = Run(
        run_id=new_run_id(now),
        created_at=now,
        name=plan.name,
        origin="submit",
        package_version=__version__,
        prompt=plan.prompt,
        parameters=plan.parameters,
        epochs=plan.epochs,
        datasets=tuple(map(describe, plan.datasets)),
        models=plan.models,
    )
    with first_span(run.run_id, _facts(run)), transaction(engine) as session:
        require_free_name(session, run.name)
        ids = [save_dataset(session, d, selectable=False) for d in plan.datasets]
        save_run(
            session,
            run,
            ids,
            queue_names(run),
            batch_after_s=plan.batch_after_s,
        )
    return run


def _facts(run: Run) -> Attributes:
    return {
        "aegish_dist.models": [spec.id for spec in run.models],
        "aegish_dist.datasets": [dataset.name for dataset in run.datasets],
        "aegish_dist.epochs": run.epochs,
    }


def submit(
    engine: Engine,
    app: Celery,
    plan: RunPlan,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Run:
    """Store a run and enqueue its items.

    Raises:
        QueueError: The broker cannot be reached; before that nothing is stored.
    """
    from aegish_dist.broker.connection import check_broker  # noqa: PLC0415

    check_broker(app)
    run = create_run(engine, plan)
    with resumable(f"run {run.run_id}", run.run_id):
        enqueue_missing(engine, app, run.run_id, on_progress)
    return run


@contextmanager
def resumable(stored: str, run_id: str) -> Iterator[None]:
    """Have an error say that something is stored all the same, and what enqueues the rest."""
    try:
        yield
    except (QueueError, StoreError) as error:
        raise type(error)(
            f"{error}; {stored} is stored, `aegish-dist resume --run-id {run_id}` enqueues the rest"
        ) from error


def enqueue_missing(
    engine: Engine,
    app: Celery,
    run_id: str,
    on_progress: Callable[[int], None] = lambda _: None,
    *,
    generation: int | None = None,
    beyond: Extent | None = None,
) -> int:
    """Enqueue whatever of a run has no verdict; return how many items that is.

    Enqueueing an item that is still queued is harmless: it is called once, or, if two workers hold
    it in the same moment, stored once.

    Args:
        generation: Only the items that this retry planned; None for all.
        beyond: What the run asked before an extension: only items outside this extent are
            enqueued, and no retries; None for all.
    """
    from aegish_dist.broker.producer import publish  # noqa: PLC0415

    with transaction(engine) as session:
        open_models(session, run_id)
    with (
        transaction(engine) as session,
        closing(missing_items(session, run_id, generation, beyond)) as items,
        span("publish", run_id),
    ):
        published = publish(app, items, on_progress, message_headers())
        note({"messaging.batch.message_count": published})
        return published


def probe_parked(run: Run, limiter_url: str | None) -> None:
    """Have parked models of a run called at once instead of at their next probe."""
    from aegish_dist.ratelimit.shared_limiter import probe_now  # noqa: PLC0415

    if limiter_url is not None:
        probe_now(limiter_url, [spec.id for spec in run.models])


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
        The last status. Verdicts are missing in it when a model is parked, a cap is reached, or
        `patience_s` has passed.
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
    from aegish_dist.pipeline.aggregation_jobs import (  # noqa: PLC0415  with the statistics
        aggregate_here,
        wait_for_snapshot,
    )

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


REPORTED_WITHIN_S = 3.0
"""Seconds in which living workers report the models of a new run that they may not call."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a plan. A dry run stores and enqueues nothing."""

    plan: RunPlan
    estimate: RunEstimate
    run: Run | None
    """The run as stored; None for a dry run."""
    status: RunStatus | None
    """After the work; of a run that is extended, as it is now. None for a new run that was not
    waited for."""
    waited: bool


def start_run(workspace: Workspace, request: Request, observer: Observer = SILENT) -> RunOutcome:
    """Start a run, and without a broker work on it here to its end.

    Raises:
        AegishError: Something that is named is unknown, a model cannot be called or refuses the
            run, or the database or the broker cannot be reached. A message that names a run says
            that it is stored; otherwise nothing is.
    """
    plan = plan_run(workspace, request)
    estimated = plan.estimate()
    check_before_calls(workspace, plan, estimated, request=request, observer=observer)
    if request.dry_run:
        return RunOutcome(plan, estimated, None, None, waited=False)
    engine, embedded = workspace.engine, workspace.settings.embedded_broker
    if embedded:
        run = create_run(engine, plan)
    else:
        with observer.enqueueing(plan.tasks) as published:
            run = submit(engine, workspace.app, plan, published)
    waited = embedded or request.wait
    status = finish(workspace, run, observer) if waited else None
    return RunOutcome(plan, estimated, run, status, waited)


def first_reports(workspace: Workspace, started: RunOutcome) -> RunStatus | None:
    """Return the status of an enqueued run once living workers have said what they may not call.

    Returns:
        The status, after `REPORTED_WITHIN_S` seconds at most; None where no model of the run needs
        a key or a permission.
    """
    if started.run is None or not any(map(calls_a_provider, started.plan.models)):
        return None
    deadline = time.monotonic() + REPORTED_WITHIN_S
    while True:
        status = run_status(workspace.engine, started.run.run_id)
        waiting = [m for m in status.models if m.state is State.WAITING and m.reason is None]
        if not (waiting and status.workers) or time.monotonic() > deadline:
            return status
        time.sleep(POLL_S)


def extend_run(
    workspace: Workspace, run_id: str, request: Request, observer: Observer = SILENT
) -> RunOutcome:
    """Ask more of a run; without a broker, work on it here to its end.

    Raises:
        AegishError: Nothing of it is new, something that is named is unknown, a model cannot be
            called or refuses the run, the run was imported or is held, or the database or the
            broker cannot be reached. A message that says so apart, nothing is stored.
    """
    plan = plan_extension(workspace, run_id, request)
    estimated = plan.estimate()
    check_before_calls(workspace, plan, estimated, request=request, observer=observer)
    if request.dry_run:
        status = run_status(workspace.engine, run_id)
        return RunOutcome(plan, estimated, None, status, waited=False)
    embedded = workspace.settings.embedded_broker
    if embedded:
        store_extension(workspace.engine, plan)
    else:
        with observer.enqueueing(estimated.calls) as published:
            _enqueue(workspace, plan, published)
    run = load_submitted_run(workspace.engine, run_id)
    waited = embedded or request.wait
    status = finish(workspace, run, observer) if waited else run_status(workspace.engine, run_id)
    return RunOutcome(plan, estimated, run, status, waited)


def store_extension(engine: Engine, plan: RunPlan) -> Extent:
    """Store what is added in one transaction, and return what the run asked before."""
    run = _base_of(plan)
    with transaction(engine) as session:
        before = extent_of(session, run)
        save_parameters(session, run.run_id, plan.parameters)
        ids = [save_dataset(session, each, selectable=False) for each in plan.datasets]
        queues = [queue_name(spec.id, run.run_id) for spec in plan.models]
        save_extension(
            session,
            run.run_id,
            plan.models,
            queues,
            ids,
            epochs=plan.epochs,
            in_batches=bool(run.batched),
        )
    return before


def _base_of(plan: RunPlan) -> Run:
    if plan.base_run is None:
        raise TypeError("a plan of a new run extends none")
    return plan.base_run


def _enqueue(workspace: Workspace, plan: RunPlan, on_progress: Callable[[int], None]) -> None:
    run = _base_of(plan)
    run_id = run.run_id
    before = store_extension(workspace.engine, plan)
    with resumable("the extension", run_id):
        enqueue_missing(workspace.engine, workspace.app, run_id, on_progress, beyond=before)
    probe_parked(run, workspace.settings.shared_limiter_url)
