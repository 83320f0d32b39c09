"""Pausing and cancelling a run: workers begin no further call of it.

The store alone is written: workers look there several times a second, and each look-up of an item
reads it. Calls in flight finish and are stored; items that wait in a worker go back to their queue.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.printable import counted
from aegish_dist.core.run import Held, Run
from aegish_dist.core.status import RunStatus
from aegish_dist.db.batches import hurry
from aegish_dist.db.engine import transaction
from aegish_dist.db.held import hold
from aegish_dist.errors import QueueError
from aegish_dist.pipeline.batches.settle_here import at_providers, end_batches_here
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.runs import load_submitted_run
from aegish_dist.pipeline.status import run_status

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Holding:
    """A run that was to be held."""

    before: Held | None
    """Why it was held already; None: it was not."""
    now: Held | None
    """Why it is held; None of a run that lacks nothing."""
    status: RunStatus
    """Afterwards; calls that were in flight may still end."""


def hold_run(
    workspace: Workspace, run_id: str, reason: Held, observer: Observer = SILENT
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
    if reason is Held.CANCELLED and not embedded:
        drop_messages(workspace, run, observer)
    settle_batches(workspace, run, reason, observer)
    held = load_submitted_run(workspace.engine, run_id).held
    return Holding(before, held, run_status(workspace.engine, run_id))


def settle_batches(workspace: Workspace, run: Run, reason: Held, observer: Observer) -> None:
    """Say that batches of a held run are paid for; without a broker, cancel a cancelled run's."""
    engine, embedded = workspace.engine, workspace.settings.embedded_broker
    cancels = reason is Held.CANCELLED
    number = at_providers(engine, run.run_id)
    if number and embedded and cancels:
        number = end_batches_here(engine, workspace.app, run)
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
