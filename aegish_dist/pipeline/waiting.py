"""The times in which an item is held without a call, and what ends them."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

from aegish_dist.core.verdict import Timing
from aegish_dist.errors import RunHeldError, ShuttingDownError


class Health:
    """Whether verdicts can be stored: until a part of the worker fails, and again once all work."""

    def __init__(self) -> None:
        """Begin in good health."""
        self._failing: set[object] = set()
        self._good = asyncio.Event()
        self._good.set()

    @property
    def good(self) -> bool:
        """Whether no part fails; may be read from any thread."""
        return not self._failing

    def fails(self, part: object) -> None:
        """Note that a part fails."""
        self._failing.add(part)
        self._good.clear()

    def works(self, part: object) -> None:
        """Note that a part works."""
        if part in self._failing:
            self._failing.discard(part)
            if not self._failing:
                self._good.set()

    async def recovered(self) -> None:
        """Wait until no part fails."""
        await self._good.wait()


@dataclass(slots=True)
class ItemClock:
    """The parts of one item's time, in seconds."""

    queue: float
    """From its publication until the worker took it."""
    limiter: float = 0.0
    """Waiting for permits."""
    backoff: float = 0.0
    """Pauses between attempts, and while verdicts cannot be stored."""
    service: float = 0.0
    """Newest call, from the request to its end."""
    started: float = field(default_factory=time.monotonic)
    """When the worker took it."""
    looked_up: float = field(default_factory=time.monotonic)
    """When the database was last asked whether the verdict exists."""

    def timing(self) -> Timing:
        """Return the parts up to now, in milliseconds."""
        total = self.queue + time.monotonic() - self.started
        parts = (self.queue, self.limiter, self.backoff, self.service, total)
        return Timing(*(round(part * 1000, 3) for part in parts))


class HeldRuns:
    """The runs that are held, as far as this worker knows; no call of theirs begins."""

    def __init__(self) -> None:
        """Begin without any."""
        self.run_ids: frozenset[str] = frozenset()
        """Their ids; may be read from any thread."""
        self._waiting: defaultdict[str, set[asyncio.Task[object]]] = defaultdict(set)
        self._ended: set[asyncio.Task[object]] = set()

    def set(self, run_ids: frozenset[str]) -> None:
        """Note which runs are held; ends the waits of their items."""
        self.run_ids = run_ids
        for run_id in run_ids & self._waiting.keys():
            for task in self._waiting.pop(run_id):
                self._ended.add(task)
                task.cancel()

    def add(self, run_id: str) -> None:
        """Note that a run is held, too."""
        if run_id not in self.run_ids:
            self.set(self.run_ids | {run_id})

    @contextmanager
    def ends_wait(self, run_id: str) -> Iterator[None]:
        """End the body, in which no call is under way, as soon as a run is held.

        Raises:
            RunHeldError: The run is held.
        """
        if run_id in self.run_ids:
            raise RunHeldError
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._waiting[run_id].add(task)
        try:
            yield
        except asyncio.CancelledError:
            # As in `asyncio.timeout`: the worker may cancel the task for another reason, too.
            if task in self._ended and task.uncancel() == 0:
                raise RunHeldError from None
            raise
        finally:
            self._ended.discard(task)
            self._forget(run_id, task)

    def _forget(self, run_id: str, task: "asyncio.Task[object]") -> None:
        tasks = self._waiting.get(run_id)
        if tasks is not None:
            tasks.discard(task)
            if not tasks:
                del self._waiting[run_id]


class Waits:
    """The waits of a worker's items; each ends at once when the worker stops."""

    def __init__(self, health: Health) -> None:
        """Begin before the worker stops.

        Args:
            health: Whether verdicts can be stored.
        """
        self.health = health
        self.held = HeldRuns()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all waits, now and later."""
        self._stopping.set()

    async def pause(self, seconds: float, clock: ItemClock) -> None:
        """Wait for so many seconds.

        Raises:
            ShuttingDownError: The worker stops.
        """
        started = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
            raise ShuttingDownError
        clock.backoff += time.monotonic() - started

    async def until_good(self, clock: ItemClock) -> None:
        """Wait until verdicts can be stored.

        Raises:
            ShuttingDownError: The worker stops.
        """
        if self.health.good:
            return
        started = time.monotonic()
        ends = [
            asyncio.ensure_future(each) for each in (self.health.recovered(), self._stopping.wait())
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        if self._stopping.is_set():
            raise ShuttingDownError
        clock.backoff += time.monotonic() - started
