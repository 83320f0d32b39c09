"""Control of stored runs: retry, resume, pause and cancel.

What is to be asked is committed first and enqueued afterwards: after a crash in between, `resume`
enqueues what is missing. Earlier verdicts stay; of each item the newest one counts. Pausing and
cancelling write the store alone: workers look there several times a second, and each look-up of an
item reads it. Calls in flight finish and are stored; items that wait in a worker go back to their
queue.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Run, RunPause
from aegish_dist.core.status import RunStatus
from aegish_dist.core.text import counted, did_you_mean
from aegish_dist.db.batches import batch_work_left, batches_at_providers, hurry
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.fleet import ALIVE_S, items_under_way
from aegish_dist.db.missing import Extent, Retry, open_models, save_retry
from aegish_dist.db.runs import database_time, hold, release, save_parameters
from aegish_dist.errors import ConfigError, QueueError
from aegish_dist.pipeline.enqueue import enqueue_missing, resumable
from aegish_dist.pipeline.finish import POLL_S, finish
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.plan import with_higher_caps
from aegish_dist.pipeline.runs import chosen_models, load_submitted_run, require_not_held
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.workspace import Workspace

if TYPE_CHECKING:
    from celery import Celery


class RunOutcome(Struct, frozen=True):
    """The result of resuming, retrying, pausing or cancelling a run."""

    # After the work that was waited for, else after enqueueing; calls in flight may still end.
    status: RunStatus
    items: int = 0  # items enqueued for workers elsewhere; of a retry, those that are asked again
    generation: int | None = None  # number of the retry; None when nothing is asked again
    held_before: RunPause | None = None  # why it was held already; None: it was not
    held: RunPause | None = None  # why it is held now; None: it is not, as nothing is missing


def retry_run(
    workspace: Workspace,
    run_id: str,
    outcomes: Collection[Outcome],
    models: Sequence[str] = (),
    *,
    wait: bool = False,
    observer: Observer = SILENT,
) -> RunOutcome:
    """Ask again what ended in some outcomes; without a broker, work on it here to its end.

    Of each item the newest verdict decides. Without models it asks all of the run.

    Raises:
        StoreError: The run was imported or is held, does not ask one of the models, or the database
            cannot be reached.
        QueueError: The broker cannot be reached; before that nothing is planned.
    """
    run = load_submitted_run(workspace.engine, run_id)
    require_not_held(run)
    if not workspace.settings.embedded_broker:
        from aegish_dist.broker.client import check_broker  # noqa: PLC0415

        check_broker(workspace.app)
    planned = plan_retry(workspace.engine, run, outcomes, models)
    if planned is not None:
        observer.note(_what_is_asked(run, run_status(workspace.engine, run_id)))
        enqueue_stored(workspace, run, "the retry", observer, generation=planned.generation)
    status = followed(workspace, run, wait, observer)
    if planned is None:
        return RunOutcome(status)
    return RunOutcome(status, planned.items, planned.generation)


def outcomes_named(names: Sequence[str]) -> frozenset[Outcome]:
    """Return the outcomes of these names, in any letter case; another name is a ConfigError."""
    there_are = f"there are {', '.join(Outcome)}"
    outcomes = set()
    for name in names:
        try:
            outcomes.add(Outcome(name.upper()))
        except ValueError:
            hint = did_you_mean(name, Outcome, there_are)
            raise ConfigError(f"'{name}' is no outcome: {hint}") from None
    if not outcomes:
        raise ConfigError(f"--outcome names none: {there_are}")
    return frozenset(outcomes)


def plan_retry(
    engine: Engine, run: Run, outcomes: Collection[Outcome], models: Sequence[str] = ()
) -> Retry | None:
    """Store a retry in one transaction; nothing is enqueued yet.

    Returns None when no verdict ended so, or all that did are planned again already. A model that
    the run does not ask is a StoreError.
    """
    chosen = chosen_models(run, models)
    with transaction(engine) as session:
        open_models(session, run.run_id)
        return save_retry(session, run.run_id, outcomes, chosen)


def resume_run(
    workspace: Workspace,
    run_id: str,
    run_cap: Decimal | None = None,
    model_cap: Decimal | None = None,
    observer: Observer = SILENT,
) -> RunOutcome:
    """Enqueue whatever of a run has no verdict; without a broker, work on it here to its end.

    An item that a worker holds is enqueued again all the same: it is called twice if another
    worker takes it before the first one has stored it, and stored once. Of a run that was held no
    worker holds an item: it goes on when all calls in flight have ended.

    Args:
        run_cap: What the run may cost from now on, in USD; None leaves its cap as it is. Workers
            read the caps before they leave an item over budget.

    Raises:
        ConfigError: The run has no such cap, or one that is as high.
        StoreError: The run was imported, or the database cannot be reached.
        QueueError: The broker cannot be reached, or takes no messages.
    """
    from aegish_dist.broker.client import drop_waiting  # noqa: PLC0415

    engine = workspace.engine
    run = load_submitted_run(engine, run_id)
    if not run_cap is model_cap is None and run.parameters is not None:
        higher = with_higher_caps(run.parameters, run_cap, model_cap)
        in_transaction(engine, save_parameters, run_id, higher)
        run = replace(run, parameters=higher)
    before = run_status(engine, run_id)
    if before.missing:
        if before.demo and any(workspace.credentials.refusal(m.destination) for m in run.models):
            raise ConfigError(f"{run_id} was a demo: `aegish-dist demo` starts again")
        observer.note(_what_is_asked(run, before))
    if run.held is not None:
        await_calls(engine, run, observer)
    if workspace.settings.embedded_broker:
        release_run(engine, run)
        return RunOutcome(finish(workspace, run, observer))
    # What still waits is missing too: left there, it would wait twice. Of a held run no worker
    # takes any of it in between.
    drop_waiting(workspace.app, queue_names(run))
    release_run(engine, run)
    enqueued = enqueue_missing(engine, workspace.app, run_id, observer)
    _probe_parked(workspace, run)
    if in_transaction(engine, batch_work_left, run_id):
        observer.note("the rest is asked in batches, which workers plan and follow by themselves")
    return RunOutcome(run_status(engine, run_id), items=enqueued)


def _what_is_asked(run: Run, status: RunStatus) -> str:
    """Say how much of whom a run asks: it may have been restored from a stranger's archive."""
    addresses = {spec.id: spec.base_url or "no address" for spec in run.models}
    asked = []
    for model in status.models:
        missing = model.planned - model.done
        if missing and model.model in addresses:  # another command may have added one since
            asked.append(f"{missing:,} of {model.model} at {addresses[model.model]}")
    run_cap, _ = run.caps
    capped = "without a cap" if run_cap is None else f"up to {run_cap} USD"
    return f"asks {counted(status.missing, 'item')} {capped}: {', '.join(asked)}"


def enqueue_stored(
    workspace: Workspace,
    run: Run,
    stored: str,
    observer: Observer,
    total: int | None = None,
    *,
    generation: int | None = None,
    beyond: Extent | None = None,
) -> None:
    """Enqueue what was stored for a run, where workers elsewhere are to work on it."""
    if workspace.settings.embedded_broker:
        return
    with resumable(stored, run.run_id):
        enqueue_missing(
            workspace.engine,
            workspace.app,
            run.run_id,
            observer,
            total,
            generation=generation,
            beyond=beyond,
        )
    _probe_parked(workspace, run)


def _probe_parked(workspace: Workspace, run: Run) -> None:
    from aegish_dist.ratelimit.shared_limiter import probe_now  # noqa: PLC0415

    url = workspace.settings.shared_limiter_url
    if url is not None:
        probe_now(url, [spec.id for spec in run.models])


def followed(workspace: Workspace, run: Run, wait: bool, observer: Observer) -> RunStatus:
    if workspace.settings.embedded_broker or wait:
        return finish(workspace, run, observer)
    return run_status(workspace.engine, run.run_id)


def release_run(engine: Engine, run: Run) -> None:
    with transaction(engine) as session:
        if run.held is not None:
            release(session, run.run_id)
        hurry(session, run.run_id)


LOOK_S = 0.1  # seconds between two looks at what workers hold
NOTE_AFTER_S = 3.0  # seconds after which a wait is worth a note


def await_calls(engine: Engine, run: Run, observer: Observer) -> None:
    """Wait until no worker holds an item of a held run: what is enqueued is then called once."""
    since = in_transaction(engine, database_time)
    began, noted = time.monotonic(), False
    limit_s = ALIVE_S + (run.parameters.time_limit_s if run.parameters else 0)
    while time.monotonic() - began < limit_s:
        if in_transaction(engine, items_under_way, run.run_id, since) == 0:
            return
        if not noted and time.monotonic() - began > NOTE_AFTER_S:
            noted = True
            observer.note("waiting for calls in flight to end, which are not made again")
        time.sleep(LOOK_S)


# Seconds to wait for providers; some take minutes to end a batch that was cancelled.
BATCHES_END_WITHIN_S = 30.0


def hold_run(
    workspace: Workspace, run_id: str, reason: RunPause, observer: Observer = SILENT
) -> RunOutcome:
    """Have workers begin no further call of a run; a run that lacks nothing stays as it is.

    Args:
        observer: Gets a note when the messages cannot be dropped.

    Raises:
        StoreError: The run was imported, or the database cannot be reached.
    """
    run = load_submitted_run(workspace.engine, run_id)
    status = run_status(workspace.engine, run_id)
    if not status.missing:
        return RunOutcome(status, held_before=run.held, held=run.held)
    with transaction(workspace.engine) as session:
        before = hold(session, run_id, reason)
        hurry(session, run_id)
    cancels = reason is RunPause.CANCELLED
    if cancels and not workspace.settings.embedded_broker:
        drop_messages(workspace.app, run, observer)
    _end_batches(workspace, run, observer, cancels=cancels)
    return RunOutcome(
        run_status(workspace.engine, run_id),
        held_before=before,
        held=load_submitted_run(workspace.engine, run_id).held,
    )


def drop_messages(app: Celery, run: Run, observer: Observer) -> None:
    """Drop what waits in the queues of a run; note that a broker which is away keeps it."""
    from aegish_dist.broker.client import drop_waiting  # noqa: PLC0415

    try:
        drop_waiting(app, queue_names(run))
    except QueueError as error:
        observer.note(f"its messages stay in the broker: {error}")


def _end_batches(workspace: Workspace, run: Run, observer: Observer, *, cancels: bool) -> None:
    """Say that batches of a held run are paid for; without a broker, cancel a cancelled run's."""
    embedded = workspace.settings.embedded_broker
    number = in_transaction(workspace.engine, batches_at_providers, run.run_id)
    if number and embedded and cancels:
        number = _end_batches_here(workspace, run)
    if not number:
        return
    what = f"{counted(number, 'batch', 'es')} at the provider"
    if not cancels:
        observer.note(f"{what} will go on to the end and be paid for; all answers are kept")
    elif embedded:
        observer.note(
            f"{what} did not end in time: `aegish-dist cancel --run-id {run.run_id}` once more"
            " stores the answers"
        )
    else:
        observer.note(f"workers cancel {what}, and store the answers, which are paid for")


def _end_batches_here(workspace: Workspace, run: Run) -> int:
    """Have a worker in this process cancel the batches of a run; return how many have not ended."""
    from aegish_dist.broker.embedded import EmbeddedWorker  # noqa: PLC0415

    deadline = time.monotonic() + BATCHES_END_WITHIN_S
    with EmbeddedWorker(workspace.app, queue_names(run)) as worker:
        while True:
            number = in_transaction(workspace.engine, batches_at_providers, run.run_id)
            if not number or not worker.alive or time.monotonic() > deadline:
                return number
            time.sleep(POLL_S)
