"""Running items to the end: with a worker inside this process, or by waiting for others.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.run import Run
from aegish_dist.errors import QueueError, StoreAwayError
from aegish_dist.pipeline.status import RunStatus, State, items_held, run_status
from aegish_dist.pipeline.submit import enqueue_missing

if TYPE_CHECKING:
    from celery import Celery

T = TypeVar("T")

POLL_S = 0.25
"""Seconds between two looks at the worker or the queues."""
WATCH_INTERVAL_S = 1.0
"""Seconds between two counts of a run that is only watched, at least."""
RETRY_S = 0.5
"""Seconds between two attempts to reach a database or a broker that is away."""
PATIENCE_S = 60.0
"""Seconds to outlast a restart of either, or to wait for a worker that takes items."""
COUNTS_PER_S = 0.02
"""Seconds of counting per second of waiting at most: a large run takes seconds to count."""
LONGEST_PAUSE_S = 60.0
SETTLED_S = 5.0
"""For so long a run that lacks verdicts has to look ended: workers report a parked model for a
moment longer after `resume` or `retry` had it probed."""


class Counts:
    """The status of a run, counted again only where that is worth its time."""

    def __init__(
        self, count: Callable[[], RunStatus], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Watch a run.

        Args:
            count: Counts it.
            clock: Tells seconds.
        """
        self._count = count
        self._clock = clock
        self._due_at = -math.inf
        self._was_quiet = False
        self._ended_at: float | None = None

    def look(self, *, quiet: bool) -> RunStatus | None:
        """Return the status, None when it is too early to count again.

        Args:
            quiet: Whether no item waits and none is held, so that nothing can have been added
                since a count that began in quiet. When quiet begins, it is counted at once.
        """
        began, begins_now = self._clock(), quiet and not self._was_quiet
        self._was_quiet = quiet
        if began < self._due_at and not begins_now:
            return None
        status = self._count()
        ended = self._clock()
        self._due_at = ended + min((ended - began) / COUNTS_PER_S, LONGEST_PAUSE_S)
        if not status.ended:
            self._ended_at = None
        elif self._ended_at is None:
            self._ended_at = ended
        return status

    def has_ended(self, status: RunStatus) -> bool:
        """Return whether a run is complete, or has looked ended for long enough.

        Args:
            status: The latest count.
        """
        if not status.missing or self._ended_at is None:
            return status.ended
        return self._clock() - self._ended_at >= SETTLED_S


def run_embedded(
    engine: Engine, app: Celery, run: Run, on_status: Callable[[RunStatus], None]
) -> RunStatus:
    """Enqueue what is missing of a run and work on it in this process until nothing is left.

    What is parked or over budget counts as left behind.

    Args:
        engine: The store.
        app: An application with an in-memory broker.
        run: A stored run.
        on_status: Called with each count: several times a second for a small run, more seldom where
            counting takes long.

    Returns:
        The last status; items that failed on a bug are still missing in it, the log names them.

    Raises:
        QueueError: The worker ended before its work.
    """
    from aegish_dist.broker.embedded import EmbeddedWorker  # noqa: PLC0415

    queues = queue_names(run)
    with EmbeddedWorker(app, queues) as worker:
        enqueue_missing(engine, app, run.run_id)
        counts = Counts(lambda: run_status(engine, run.run_id))
        while True:
            idle = worker.idle
            status = counts.look(quiet=idle)
            if status is not None:
                on_status(status)
                if status.ended or idle:
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
        engine: The store.
        app: The queue.
        run: A stored and enqueued run.
        on_status: Called with each count; see `run_embedded`.
        patience_s: Seconds during which no worker holds an item while the queues are empty, before
            the wait ends: what is missing was lost, and only `resume` enqueues it again.

    Returns:
        The last status; something is missing in it when a model is parked, money or patience ran
        out.
    """
    from aegish_dist.broker.connection import queue_depths  # noqa: PLC0415

    queues = queue_names(run)
    counts = Counts(lambda: patiently(lambda: run_status(engine, run.run_id)))
    moving_at = time.monotonic()
    while True:
        busy = patiently(
            lambda: items_held(engine, run.run_id) > 0 or any(queue_depths(app, queues).values())
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


def watch(engine: Engine, first: RunStatus, on_status: Callable[[RunStatus], None]) -> RunStatus:
    """Count a run again and again until it is complete or nothing moves by itself.

    Args:
        engine: The store.
        first: A count of the run.
        on_status: Called about every second with the latest count.

    Returns:
        The last count.

    Raises:
        StoreAwayError: The database was away for a minute.
    """
    counts = Counts(lambda: patiently(lambda: run_status(engine, first.run_id)))
    status = counts.look(quiet=False) or first
    while not counts.has_ended(status):
        time.sleep(WATCH_INTERVAL_S)
        status = counts.look(quiet=False) or status
        on_status(status)
    return status


def patiently(call: Callable[[], T]) -> T:
    """Call, and again for up to a minute while the database or the broker is away.

    Raises:
        StoreAwayError: The database was away for all of it.
        QueueError: The broker was.
    """
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except (QueueError, StoreAwayError):
            if time.monotonic() > until:
                raise
        time.sleep(RETRY_S)
