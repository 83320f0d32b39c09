"""Control of stored runs: retry, resume, work on them to the end, pause and cancel.

What is to be asked is committed first and enqueued afterwards: after a crash in between, `resume`
enqueues what is missing. Earlier verdicts stay; of each item the newest one counts. Pausing and
cancelling write the store alone: workers look there several times a second, and each look-up of an
item reads it. Calls in flight finish and are stored; items that wait in a worker go back to their
queue.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Run, RunPause
from aegish_dist.core.status import RunStatus, State
from aegish_dist.core.text import counted, did_you_mean
from aegish_dist.db.batches import batch_work_left, batches_at_providers, hurry
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.fleet import ALIVE_S, items_under_way
from aegish_dist.db.missing import Extent, Retry, missing_items, open_models, save_retry
from aegish_dist.db.runs import database_time, hold, release, save_parameters
from aegish_dist.errors import ConfigError, QueueError, StoreError, interrupt_in
from aegish_dist.pipeline.plan import with_higher_caps
from aegish_dist.pipeline.runs import chosen_models, load_submitted_run, require_not_held
from aegish_dist.pipeline.status import Counts, items_held, paced, patiently, run_status
from aegish_dist.pipeline.workspace import SILENT, Observer, Workspace
from aegish_dist.telemetry.tracing import message_headers, note, span

if TYPE_CHECKING:
    from celery import Celery


POLL_S = 0.25  # seconds between two looks at the workers, the queues or the store


class RunOutcome(Struct, frozen=True):
    """The result of resuming, retrying, pausing or cancelling a run."""

    status: RunStatus
    """After the work that was waited for, else after enqueueing; calls in flight may still end."""
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
    items, generation = (planned.items, planned.generation) if planned else (0, None)
    return RunOutcome(followed(workspace, run, wait, observer), items, generation)


def outcomes_named(names: Sequence[str]) -> frozenset[Outcome]:
    """Return the outcomes of these names, in any letter case; another name is a ConfigError."""
    known = {outcome.value: outcome for outcome in Outcome}
    for name in names:
        if name.upper() not in known:
            hint = did_you_mean(name, known, f"there are {', '.join(known)}")
            raise ConfigError(f"'{name}' is no outcome: {hint}")
    if not names:
        raise ConfigError(f"--outcome names none: there are {', '.join(known)}")
    return frozenset(known[name.upper()] for name in names)


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
    if (before := run_status(engine, run_id)).missing:
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
    missing = {each.model: each.planned - each.done for each in status.models}
    asked = [
        f"{missing[spec.id]:,} of {spec.id} at {spec.base_url or 'no address'}"
        for spec in run.models
        if missing.get(spec.id)
    ]
    cap = run.caps[0]
    capped = "without a cap" if cap is None else f"up to {cap} USD"
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

    if (url := workspace.settings.shared_limiter_url) is not None:
        probe_now(url, [spec.id for spec in run.models])


def followed(workspace: Workspace, run: Run, wait: bool, observer: Observer) -> RunStatus:
    if workspace.settings.embedded_broker or wait:
        return finish(workspace, run, observer)
    return run_status(workspace.engine, run.run_id)


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


PATIENCE_S = 60.0  # seconds to wait for a worker that takes items


def finish(workspace: Workspace, run: Run, observer: Observer) -> RunStatus:
    """Work on a run here to its end, or with a broker wait until workers elsewhere have done so.

    A run that is complete is aggregated as well. Returns the last status; see the two below.
    """
    from aegish_dist.pipeline.aggregation_jobs import (  # noqa: PLC0415  with the statistics
        aggregate_here,
        wait_for_snapshot,
    )

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
        if embedded:
            aggregate_here(engine, run)
        else:
            wait_for_snapshot(engine, run.run_id)
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

    What is parked or over budget counts as left behind. `on_status` gets each count: several times
    a second for a small run, more seldom where counting takes long. Items that failed on a bug are
    still missing in the last one, which is returned; the log names them.
    """
    from aegish_dist.broker.embedded import EmbeddedWorker  # noqa: PLC0415

    waits = partial(observer.note, "interrupted: waiting for calls in flight")
    with EmbeddedWorker(app, queue_names(run)) as worker, _on_interrupt(waits):
        enqueue_missing(engine, app, run.run_id, observer)
        counts = Counts(paced(lambda: run_status(engine, run.run_id)))
        while True:
            batches = in_transaction(engine, batch_work_left, run.run_id)
            idle = worker.idle and not batches
            status = counts.look(quiet=idle)
            if status is not None:
                on_status(status)
                if idle or (status.ended and not (batches and status.state is State.CANCELLED)):
                    return status
            if not worker.alive:
                raise QueueError(
                    "the embedded worker ended early; the log says why, "
                    f"`aegish-dist resume --run-id {run.typed}` goes on"
                )
            time.sleep(POLL_S)


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


BATCHES_END_WITHIN_S = 30.0
"""Seconds to wait for providers; some take minutes to end a batch that was cancelled."""


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
        drop_messages(workspace, run, observer)
    _end_batches(workspace, run, observer, cancels=cancels)
    return RunOutcome(
        run_status(workspace.engine, run_id),
        held_before=before,
        held=load_submitted_run(workspace.engine, run_id).held,
    )


def drop_messages(workspace: Workspace, run: Run, observer: Observer) -> None:
    """Drop what waits in the queues of a run; note that a broker which is away keeps it."""
    from aegish_dist.broker.client import drop_waiting  # noqa: PLC0415

    try:
        drop_waiting(workspace.app, queue_names(run))
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
