"""Control of stored runs: pause and cancel, resume, retry.

Pausing and cancelling write the store alone: workers look there several times a second, and each
look-up of an item reads it. Calls in flight finish and are stored; items that wait in a worker go
back to their queue. A retry is committed before its items are enqueued: after a crash in between,
`resume` enqueues what is missing. Earlier verdicts stay; of each item the newest one counts.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Run, RunPause
from aegish_dist.core.status import RunStatus
from aegish_dist.core.text import counted
from aegish_dist.db.batches import batches_at_providers, hurry
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import Retry, open_models, save_retry
from aegish_dist.db.runs import (
    database_time,
    hold,
    items_under_way,
    load_parameters,
    release,
    save_parameters,
)
from aegish_dist.db.workers import ALIVE_S
from aegish_dist.errors import ConfigError, QueueError, StoreError
from aegish_dist.pipeline.plan import with_higher_caps
from aegish_dist.pipeline.runs import load_submitted_run, require_not_held
from aegish_dist.pipeline.status import has_batches_to_do, run_status
from aegish_dist.pipeline.submit import enqueue_missing, finish, probe_parked, resumable
from aegish_dist.pipeline.workspace import SILENT, Observer

if TYPE_CHECKING:
    from celery import Celery

    from aegish_dist.pipeline.workspace import Workspace


POLL_S = 0.1
"""Seconds between two looks at what workers hold."""
NOTE_AFTER_S = 3.0
"""Seconds after which a wait is worth a note."""
BATCHES_END_WITHIN_S = 30.0
"""Seconds to wait for providers; some take minutes to end a batch that was cancelled."""
BATCHES_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that goes on."""

    status: RunStatus
    """After the work of an embedded worker, or after enqueueing."""
    enqueued: int | None
    """Items enqueued for workers elsewhere; None when the run was worked on in this process."""

    @property
    def missing(self) -> int:
        """Verdicts that the run still lacks."""
        return self.status.missing if self.enqueued is None else self.enqueued


def resume_run(
    workspace: Workspace,
    run_id: str,
    run_cap: Decimal | None = None,
    model_cap: Decimal | None = None,
    observer: Observer = SILENT,
) -> Resumed:
    """Enqueue whatever of a run has no verdict; without a broker, work on it here to its end.

    An item that a worker holds is enqueued again all the same: it is called twice if another
    worker takes it before the first one has stored it, and stored once. Of a run that was held no
    worker holds an item: it goes on when all calls in flight have ended.

    Raises:
        StoreError: The run was imported, or the database cannot be reached.
        QueueError: The broker cannot be reached, or takes no messages.
    """
    from aegish_dist.broker.connection import drop_waiting  # noqa: PLC0415

    run = load_submitted_run(workspace.engine, run_id)
    raise_caps(workspace.engine, run_id, run_cap, model_cap)
    if run.held is not None:
        await_calls(workspace.engine, run, observer)
    if workspace.settings.embedded_broker:
        release_run(workspace.engine, run)
        return Resumed(finish(workspace, run, observer), None)
    with observer.enqueueing() as published:
        # What still waits is missing too: left there, it would wait twice. Of a held run no worker
        # takes any of it in between.
        drop_waiting(workspace.app, queue_names(run))
        release_run(workspace.engine, run)
        enqueued = enqueue_missing(workspace.engine, workspace.app, run_id, published)
        probe_parked(run, workspace.settings.shared_limiter_url)
    if has_batches_to_do(workspace.engine, run_id):
        observer.note("the rest is asked in batches, which workers plan and follow by themselves")
    return Resumed(run_status(workspace.engine, run_id), enqueued)


def release_run(engine: Engine, run: Run) -> None:
    """Have workers ask again what a held run lacks."""
    with transaction(engine) as session:
        if run.held is not None:
            release(session, run.run_id)
        hurry(session, run.run_id)


def await_calls(engine: Engine, run: Run, observer: Observer) -> None:
    """Wait until no worker holds an item of a held run: what is enqueued is then called once.

    Args:
        observer: Gets a note when that takes a while.
    """
    with transaction(engine) as session:
        since = database_time(session)
    began, noted = time.monotonic(), False
    limit_s = ALIVE_S + (run.parameters.time_limit_s if run.parameters else 0)
    while time.monotonic() - began < limit_s:
        with transaction(engine) as session:
            items = items_under_way(session, run.run_id, since)
        if items == 0:
            return
        if not noted and time.monotonic() - began > NOTE_AFTER_S:
            noted = True
            observer.note("waiting for calls in flight to end, which are not made again")
        time.sleep(POLL_S)


def raise_caps(
    engine: Engine, run_id: str, run_cap: Decimal | None, model_cap: Decimal | None
) -> None:
    """Store higher caps of a run; workers read them before they leave an item over budget.

    Args:
        run_cap: What the run may cost, in USD; None leaves it as it is.

    Raises:
        ConfigError: The run has no such cap, or one that is as high.
    """
    if run_cap is model_cap is None:
        return
    with transaction(engine) as session:
        (parameters,) = load_parameters(session, [run_id])
        if parameters is None:
            raise ConfigError(f"run {run_id} was imported: it costs nothing")
        save_parameters(session, run_id, with_higher_caps(parameters, run_cap, model_cap))


@dataclass(frozen=True, slots=True)
class Retried:
    """A run some of whose items are asked again."""

    retry: Retry | None
    """None when there was nothing to ask again."""
    status: RunStatus
    """After the wait for the answers, else after enqueueing."""
    waited: bool

    @property
    def items(self) -> int:
        """Items that are asked again."""
        return 0 if self.retry is None else self.retry.items


def retry_run(
    workspace: Workspace,
    run_id: str,
    outcomes: Collection[Outcome],
    models: Sequence[str] = (),
    *,
    wait: bool = False,
    observer: Observer = SILENT,
) -> Retried:
    """Ask again what ended in some outcomes; without a broker, work on it here to its end.

    Args:
        outcomes: Items whose newest verdict has one of these outcomes are planned.
        models: Models of the run to retry; all when empty.

    Raises:
        StoreError: The run was imported or is held, does not ask one of the models, or the database
            cannot be reached.
    """
    run = load_submitted_run(workspace.engine, run_id)
    require_not_held(run)
    embedded = workspace.settings.embedded_broker
    if embedded:
        planned = plan_retry(workspace.engine, run, outcomes, models)
    else:
        with observer.enqueueing() as published:
            planned = _enqueue(workspace, run, outcomes, models, published)
    observer.asked_again(run_id, planned.items if planned else 0)
    if embedded or wait:
        return Retried(planned, finish(workspace, run, observer), waited=True)
    return Retried(planned, run_status(workspace.engine, run_id), waited=False)


def outcomes_named(names: Sequence[str]) -> frozenset[Outcome]:
    """Return the outcomes of these names, in any letter case.

    Raises:
        ConfigError: A name is none of an outcome, or there is none.
    """
    known = {outcome.value: outcome for outcome in Outcome}
    for name in names:
        if name.upper() not in known:
            raise ConfigError(f"'{name}' is no outcome: there are {', '.join(known)}")
    if not names:
        raise ConfigError(f"--outcome names none: there are {', '.join(known)}")
    return frozenset(known[name.upper()] for name in names)


def plan_retry(
    engine: Engine, run: Run, outcomes: Collection[Outcome], models: Sequence[str] = ()
) -> Retry | None:
    """Store a retry in one transaction; nothing is enqueued yet.

    Args:
        outcomes: Items whose newest verdict has one of these outcomes are planned.
        models: Models of the run to retry; all when empty.

    Returns:
        The retry; None when no verdict ended so, or all that did are planned again already.

    Raises:
        StoreError: The run does not ask one of the models.
    """
    asked = [spec.id for spec in run.models]
    for model in models:
        if model not in asked:
            raise StoreError(f"run {run.run_id} does not ask '{model}': it asks {', '.join(asked)}")
    with transaction(engine) as session:
        open_models(session, run.run_id)
        return save_retry(session, run.run_id, outcomes, models or asked)


def _enqueue(
    workspace: Workspace,
    run: Run,
    outcomes: Collection[Outcome],
    models: Sequence[str],
    on_progress: Callable[[int], None],
) -> Retry | None:
    """Plan a retry and enqueue its items; while the broker is away nothing is planned."""
    from aegish_dist.broker.connection import check_broker  # noqa: PLC0415

    check_broker(workspace.app)
    planned = plan_retry(workspace.engine, run, outcomes, models)
    if planned is None:
        return None
    with resumable("the retry", run.run_id):
        enqueue_missing(
            workspace.engine,
            workspace.app,
            run.run_id,
            on_progress,
            generation=planned.generation,
        )
    probe_parked(run, workspace.settings.shared_limiter_url)
    return planned


@dataclass(frozen=True, slots=True)
class Holding:
    """A run that was to be held."""

    before: RunPause | None
    """Why it was held already; None: it was not."""
    now: RunPause | None
    """Why it is held; None of a run that lacks nothing."""
    status: RunStatus
    """Afterwards; calls that were in flight may still end."""


def hold_run(
    workspace: Workspace, run_id: str, reason: RunPause, observer: Observer = SILENT
) -> Holding:
    """Have workers begin no further call of a run; a run that lacks nothing stays as it is.

    Args:
        observer: Gets a note when the messages cannot be dropped.

    Raises:
        StoreError: The run was imported, or the database cannot be reached.
    """
    run = load_submitted_run(workspace.engine, run_id)
    status = run_status(workspace.engine, run_id)
    if not status.missing:
        return Holding(run.held, run.held, status)
    with transaction(workspace.engine) as session:
        before = hold(session, run_id, reason)
        hurry(session, run_id)
    embedded = workspace.settings.embedded_broker
    if reason is RunPause.CANCELLED and not embedded:
        drop_messages(workspace, run, observer)
    settle_batches(workspace, run, reason, observer)
    held = load_submitted_run(workspace.engine, run_id).held
    return Holding(before, held, run_status(workspace.engine, run_id))


def settle_batches(workspace: Workspace, run: Run, reason: RunPause, observer: Observer) -> None:
    """Say that batches of a held run are paid for; without a broker, cancel a cancelled run's."""
    engine, embedded = workspace.engine, workspace.settings.embedded_broker
    cancels = reason is RunPause.CANCELLED
    number = at_providers(engine, run.run_id)
    if number and embedded and cancels:
        number = _end_batches_here(engine, workspace.app, run)
    if not number:
        return
    what = f"{counted(number, 'batch', 'es')} at the provider"
    if not cancels:
        observer.note(f"{what} will go on to the end and be paid for; all answers are kept")
    elif embedded:
        again = f"`aegish-dist cancel --run-id {run.run_id}`"
        observer.note(f"{what} did not end in time: {again} once more stores the answers")
    else:
        observer.note(f"workers cancel {what}, and store the answers, which are paid for")


def at_providers(engine: Engine, run_id: str) -> int:
    """Return how many batches of a run are at providers."""
    with transaction(engine) as session:
        return batches_at_providers(session, run_id)


def _end_batches_here(engine: Engine, app: Celery, run: Run) -> int:
    """Have a worker inside this process cancel the batches of a run, and store their answers.

    Returns:
        How many have not ended yet.
    """
    from aegish_dist.broker.embedded import EmbeddedWorker  # noqa: PLC0415

    deadline = time.monotonic() + BATCHES_END_WITHIN_S
    with EmbeddedWorker(app, queue_names(run)) as worker:
        while (number := at_providers(engine, run.run_id)) and time.monotonic() < deadline:
            if not worker.alive:
                break
            time.sleep(BATCHES_POLL_S)
    return number


def drop_messages(workspace: Workspace, run: Run, observer: Observer) -> None:
    """Drop what waits in the queues of a run; a broker that is away keeps it.

    Args:
        observer: Gets a note when the broker is away.
    """
    from aegish_dist.broker.connection import drop_waiting  # noqa: PLC0415

    try:
        drop_waiting(workspace.app, queue_names(run))
    except QueueError as error:
        observer.note(f"its messages stay in the broker: {error}")
