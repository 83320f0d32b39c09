"""Watching a run: counting it only as often as its size allows, through restarts of the store."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine

from aegish_dist.core.status import RunStatus
from aegish_dist.errors import QueueError, StoreAwayError
from aegish_dist.pipeline.pace import paced
from aegish_dist.pipeline.status import run_status

T = TypeVar("T")

WATCH_INTERVAL_S = 1.0
"""Seconds between two counts of a run that is only watched, at least."""
RETRY_S = 0.5
"""Seconds between two attempts to reach a database or a broker that is away."""
OUTLAST_S = 60.0
"""Seconds for which a restart of either is waited out."""
COUNTS_PER_S = 0.02
"""Seconds of counting per second of waiting at most: a large run takes seconds to count."""
COUNTS_PER_S_OF_SMALL = 0.25
"""The same for small runs: those take long only while the machine is busy with something else."""
ITEMS_PER_PAUSE_S = 3000
"""A run is small if the first of these asks for a longer pause than a second for so many items."""
LONGEST_PAUSE_S = 60.0
"""Seconds between two counts at most, however long one takes."""
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
        self._due_at = ended + _pause_s(ended - began, status.planned)
        if not status.ended:
            self._ended_at = None
        elif self._ended_at is None:
            self._ended_at = ended
        return status

    def has_ended(self, status: RunStatus) -> bool:
        """Return whether a run is complete, or has looked ended for long enough."""
        if not status.missing or status.held or self._ended_at is None:
            return status.ended
        return self._clock() - self._ended_at >= SETTLED_S


def _pause_s(took_s: float, planned: int) -> float:
    """Return the seconds until the next count."""
    for_small = max(took_s / COUNTS_PER_S_OF_SMALL, planned / ITEMS_PER_PAUSE_S)
    return min(took_s / COUNTS_PER_S, for_small, LONGEST_PAUSE_S)


def watch(engine: Engine, first: RunStatus, on_status: Callable[[RunStatus], None]) -> RunStatus:
    """Count a run again and again until it is complete or nothing moves by itself.

    Args:
        on_status: Called about every second with the latest count.

    Returns:
        The last count.

    Raises:
        StoreAwayError: The database was away for a minute.
    """
    counts = Counts(paced(lambda: patiently(lambda: run_status(engine, first.run_id))))
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
    """
    until = time.monotonic() + OUTLAST_S
    while True:
        try:
            return call()
        except (QueueError, StoreAwayError):
            if time.monotonic() > until:
                raise
        time.sleep(RETRY_S)
