"""Resuming a run: enqueue whatever of it has no verdict, and have parked models tried again.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.run import Run
from aegish_dist.core.status import RunStatus
from aegish_dist.db.batches import hurry
from aegish_dist.db.engine import transaction
from aegish_dist.db.held import database_time, items_under_way, release
from aegish_dist.db.runs import load_parameters, save_parameters
from aegish_dist.db.workers import ALIVE_S
from aegish_dist.errors import ConfigError
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.plan import with_higher_caps
from aegish_dist.pipeline.run_here import finish
from aegish_dist.pipeline.runs import load_submitted_run
from aegish_dist.pipeline.status import has_batches_to_do, run_status
from aegish_dist.pipeline.submit import enqueue_missing, probe_parked

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace


POLL_S = 0.1
"""Seconds between two looks at what workers hold."""
NOTE_AFTER_S = 3.0
"""Seconds after which a wait is worth a note."""


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
