"""When a call may begin: what holds an item, what ends its wait, and which items keep failing.

The store learns of failed calls with the verdict of their item. Until then `status` shows what the
worker's report says of them.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar, cast

from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.status import LATELY, FailedCalls
from aegish_dist.core.verdict import CallError, ErrorClass, Item, Timing
from aegish_dist.errors import AegishError, BatchedItemError, RunHeldError, ShuttingDownError


class FailingItems:
    """The failed calls of items that are held, on one event loop."""

    def __init__(self) -> None:
        self.backing_off: Counter[tuple[str, str]] = Counter()
        """Items that pause before their next call, by run id and model."""
        self.on_failure: Callable[[str, CallError], None] | None = None
        """Called with the model and each failed call; None: nothing counts them."""
        self._errors: dict[Item, list[CallError]] = {}

    def note(self, item: Item, errors: list[CallError]) -> None:
        """Follow the failed calls of an item; the list grows, and its last one is new."""
        self._errors[item] = errors
        if self.on_failure is not None:
            self.on_failure(item.model, errors[-1])

    def forget(self, item: Item) -> None:
        """Leave an item out that is held no longer, or waits for its verdict to be stored."""
        self._errors.pop(item, None)

    @contextmanager
    def pausing(self, item: Item) -> Iterator[None]:
        """Count an item as pausing while the body runs."""
        key = (item.run_id, item.model)
        self.backing_off[key] += 1
        try:
            yield
        finally:
            self.backing_off[key] -= 1
            if not self.backing_off[key]:
                del self.backing_off[key]

    def by_run(self, now: datetime) -> dict[str, list[FailedCalls]]:
        """Return the failed calls by run id, those that are alike together."""
        kinds: dict[tuple[str, str, ErrorClass, int | None], list[CallError]] = {}
        for item, errors in self._errors.items():
            for error in errors:
                key = (item.run_id, item.model, error.error_class, error.status)
                kinds.setdefault(key, []).append(error)
        by_run: dict[str, list[FailedCalls]] = {}
        for (run_id, model, _, _), errors in kinds.items():
            by_run.setdefault(run_id, []).append(_together(model, errors, now))
        return by_run


def _together(model: str, errors: Sequence[CallError], now: datetime) -> FailedCalls:
    newest = max(errors, key=lambda error: error.at)
    return FailedCalls(
        at=newest.at,
        model=model,
        error_class=newest.error_class,
        status=newest.status,
        message=mask_key_shapes(newest.message),
        calls=len(errors),
        calls_lately=sum(now - error.at <= LATELY for error in errors),
    )


Key = TypeVar("Key")


class Health:
    """Whether verdicts can be stored: until a part of the worker fails, and again once all work."""

    def __init__(self) -> None:
        self._failing: set[object] = set()
        self._good = asyncio.Event()
        self._good.set()

    @property
    def good(self) -> bool:
        """Whether no part fails; may be read from any thread."""
        return not self._failing

    def fails(self, part: object) -> None:
        self._failing.add(part)
        self._good.clear()

    def works(self, part: object) -> None:
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
    backoff: float = 0.0
    """Pauses between attempts, and while verdicts cannot be stored."""
    service: float = 0.0
    """Newest call, from the request to its end."""
    started: float = field(default_factory=time.monotonic)
    looked_up: float = field(default_factory=time.monotonic)
    """When the database was last asked whether the verdict exists."""

    def timing(self) -> Timing:
        """Return the parts up to now, in milliseconds."""
        total = self.queue + time.monotonic() - self.started
        parts = (self.queue, self.limiter, self.backoff, self.service, total)
        return Timing(*(round(part * 1000, 3) for part in parts))


class BlockedKeys(Generic[Key]):
    """Runs or models of which this worker begins no call, as far as it knows."""

    def __init__(self, ends_with: type[AegishError]) -> None:
        self.keys: frozenset[Key] = frozenset()
        """May be read from any thread."""
        self._ends_with = ends_with
        self._waiting: defaultdict[Key, set[asyncio.Task[object]]] = defaultdict(set)
        self._ended: set[asyncio.Task[object]] = set()

    def set(self, keys: frozenset[Key]) -> None:
        """Block calls for these keys alone, and end the waits of their items."""
        self.keys = keys
        for key in keys & self._waiting.keys():
            for task in self._waiting.pop(key):
                self._ended.add(task)
                task.cancel()

    def add(self, key: Key) -> None:
        if key not in self.keys:
            self.set(self.keys | {key})

    @contextmanager
    def ends_wait(self, key: Key) -> Iterator[None]:
        """Run the body, without a call under way; raise as soon as calls for a key are blocked.

        Raises:
            AegishError: They are blocked; the class that was given.
        """
        if key in self.keys:
            raise self._ends_with
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._waiting[key].add(task)
        try:
            yield
        except asyncio.CancelledError:
            # As in `asyncio.timeout`: the worker may cancel the task for another reason, too.
            if task in self._ended and task.uncancel() == 0:
                raise self._ends_with from None
            raise
        finally:
            self._ended.discard(task)
            self._forget(key, task)

    def _forget(self, key: Key, task: "asyncio.Task[object]") -> None:
        tasks = self._waiting.get(key)
        if tasks is not None:
            tasks.discard(task)
            if not tasks:
                del self._waiting[key]


class CallGate:
    """The waits of a worker's items; each ends at once when the worker stops."""

    def __init__(self, health: Health) -> None:
        self.health = health
        self.held = BlockedKeys[str](RunHeldError)
        """Held runs, by run id."""
        self.batched = BlockedKeys[tuple[str, str]](BatchedItemError)
        """Models that are asked in batches, by run id and model."""
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End all waits, now and later."""
        self._stopping.set()

    async def pause(self, seconds: float, clock: ItemClock) -> None:
        started = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
            raise ShuttingDownError
        clock.backoff += time.monotonic() - started

    @contextmanager
    def for_call(self, item: Item, *, live: bool) -> Iterator[None]:
        """Run the body, a wait for a call of an item; raise as soon as no call of it may begin.

        Args:
            live: Whether it is asked live although its model is asked in batches.
        """
        batched = nullcontext() if live else self.batched.ends_wait((item.run_id, item.model))
        with self.held.ends_wait(item.run_id), batched:
            yield

    async def until_good(self, clock: ItemClock) -> None:
        """Wait until verdicts can be stored."""
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
