"""Submitting a run, or more of one: store it in one transaction, enqueue, and work to the end.

What is stored is enqueued afterwards; after a crash in between, `resume` enqueues the rest. An
extension enqueues only what is new.

What comes after a dry run is imported where it is called: Celery alone takes 0.1 s.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from sqlalchemy import Engine

from aegish_dist import __version__
from aegish_dist.broker.messages import queue_name, queue_names
from aegish_dist.core.run import Run
from aegish_dist.core.status import RunStatus, State
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.missing import Extent, extent_of, save_extension
from aegish_dist.db.runs import (
    require_free_name,
    save_dataset,
    save_parameters,
    save_run,
    unused_run_id,
)
from aegish_dist.pipeline.control import enqueue_stored, followed
from aegish_dist.pipeline.datasets import describe
from aegish_dist.pipeline.enqueue import enqueue_missing, resumable
from aegish_dist.pipeline.finish import POLL_S, finish
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.plan import Request, RunPlan, plan_extension, plan_run
from aegish_dist.pipeline.preflight import calls_a_provider, check_before_calls
from aegish_dist.pipeline.runs import load_submitted_run
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.workspace import Workspace
from aegish_dist.telemetry.tracing import first_span

if TYPE_CHECKING:
    from celery import Celery


class Submission(Struct, frozen=True):
    """The result of a plan. A dry run stores and enqueues nothing."""

    plan: RunPlan
    run: Run | None
    # After the work; of a run that is extended, as it is now. None for a new run that was not
    # waited for.
    status: RunStatus | None


def start_run(workspace: Workspace, request: Request, observer: Observer = SILENT) -> Submission:
    """Start a run, and without a broker work on it here to its end.

    Raises:
        AegishError: Something that is named is unknown, a model cannot be called or refuses the
            run, or the database or the broker cannot be reached. A message that names a run says
            that it is stored; otherwise nothing is.
    """
    plan = plan_run(workspace, workspace.catalog, workspace.environ, request)
    check_before_calls(workspace, plan, request, observer)
    if request.dry_run:
        return Submission(plan, None, None)
    embedded = workspace.settings.embedded_broker
    if embedded:
        run = create_run(workspace.engine, plan)
    else:
        run = submit(workspace.engine, workspace.app, plan, observer)
    status = finish(workspace, run, observer) if embedded or request.wait else None
    return Submission(plan, run, status)


def create_run(engine: Engine, plan: RunPlan) -> Run:
    """Store a run in one transaction, and enqueue nothing; a name that is taken is refused."""
    now = datetime.now(UTC)
    run = Run(
        run_id=in_transaction(engine, unused_run_id, now),
        created_at=now,
        name=plan.name,
        origin="submit",
        package_version=__version__,
        prompt=plan.prompt,
        parameters=plan.parameters,
        epochs=plan.epochs,
        datasets=tuple(map(describe, plan.datasets)),
        models=plan.models,
        prompts=plan.prompts,
    )
    with (
        first_span(
            run.run_id,
            {
                "aegish_dist.models": [spec.id for spec in run.models],
                "aegish_dist.datasets": [dataset.name for dataset in run.datasets],
                "aegish_dist.epochs": run.epochs,
            },
        ),
        transaction(engine) as session,
    ):
        require_free_name(session, run.name)
        ids = [save_dataset(session, d, selectable=False) for d in plan.datasets]
        save_run(session, run, ids, queue_names(run), batch_after_s=plan.batch_after_s)
    return run


def submit(engine: Engine, app: Celery, plan: RunPlan, observer: Observer = SILENT) -> Run:
    """Store a run and enqueue its items.

    A broker that cannot be reached is a QueueError; before that nothing is stored.
    """
    from aegish_dist.broker.client import check_broker  # noqa: PLC0415

    check_broker(app)
    run = create_run(engine, plan)
    with resumable(f"run {run.run_id}", run.run_id):
        enqueue_missing(engine, app, run.run_id, observer, plan.tasks)
    return run


# Seconds in which living workers report the models of a new run that they may not call.
REPORTED_WITHIN_S = 3.0


def first_reports(engine: Engine, started: Submission) -> RunStatus | None:
    """Return the status of an enqueued run once living workers have said what they may not call.

    It takes `REPORTED_WITHIN_S` seconds at most; None where no model needs a key or a permission.
    """
    if started.run is None or not any(map(calls_a_provider, started.plan.models)):
        return None
    deadline = time.monotonic() + REPORTED_WITHIN_S
    while True:
        status = run_status(engine, started.run.run_id)
        waiting = [m for m in status.models if m.state is State.WAITING and m.reason is None]
        if not (waiting and status.workers) or time.monotonic() > deadline:
            return status
        time.sleep(POLL_S)


def extend_run(
    workspace: Workspace, run_id: str, request: Request, observer: Observer = SILENT
) -> Submission:
    """Ask more of a run; without a broker, work on it here to its end.

    Raises:
        AegishError: Nothing of it is new, something that is named is unknown, a model cannot be
            called or refuses the run, the run was imported or is held, or the database or the
            broker cannot be reached. Unless the message says that it was stored, nothing is.
    """
    engine = workspace.engine
    run = load_submitted_run(engine, run_id)
    plan = plan_extension(engine, workspace.catalog, workspace.environ, run, request)
    check_before_calls(workspace, plan, request, observer)
    if request.dry_run:
        return Submission(plan, None, run_status(engine, run_id))
    before = store_extension(engine, run, plan)
    calls = plan.estimate().calls
    enqueue_stored(workspace, run, "the extension", observer, calls, beyond=before)
    extended = load_submitted_run(engine, run_id)
    return Submission(plan, extended, followed(workspace, extended, request.wait, observer))


def store_extension(engine: Engine, run: Run, plan: RunPlan) -> Extent:
    """Store what is added to a run in one transaction, and return what it asked before."""
    with transaction(engine) as session:
        before = extent_of(session, run)
        save_parameters(session, run.run_id, plan.parameters)
        save_extension(
            session,
            run.run_id,
            plan.models,
            [queue_name(spec.id, run.run_id) for spec in plan.models],
            [save_dataset(session, each, selectable=False) for each in plan.datasets],
            epochs=plan.epochs,
            in_batches=bool(run.batched),
            prompts=plan.prompts,
        )
    return before
