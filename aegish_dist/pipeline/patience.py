"""Outlasting a restart of the database or the broker, in commands that watch a run."""

import time
from collections.abc import Callable
from typing import TypeVar

from aegish_dist.errors import QueueError, StoreAwayError

T = TypeVar("T")

PATIENCE_S = 60.0
RETRY_S = 0.5


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
