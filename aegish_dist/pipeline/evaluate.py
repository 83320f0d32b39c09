"""Evaluating one item: look it up, get its answer, record the verdict.

Runs inside a worker process, hundreds of items at once on one event loop. The look-up and the
insert are transactions of their own, made in groups by the caller's ports.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aegish_dist.core.verdict import Item, Verdict
from aegish_dist.db.verdict_rows import VerdictKey
from aegish_dist.db.verdicts import LookUp
from aegish_dist.errors import (
    BatchedItemError,
    CatalogError,
    ConfigError,
    LimiterFailedError,
    RunHeldError,
    UnservedModelError,
)
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.attempts import HELD_AFTER_FAILURE_S, Attempt, Attempts
from aegish_dist.pipeline.caller import Caller
from aegish_dist.pipeline.failing_items import FailingItems
from aegish_dist.pipeline.traced_calls import note_verdict
from aegish_dist.pipeline.waiting import Health, ItemClock, Uncalled, Waits
from aegish_dist.telemetry.tracing import part_span

log = get_logger(__name__)

HELD_UNSERVED_S = 15.0
"""Seconds that an item is held whose model this worker cannot call: it may be delivered here again
at once."""


class Evaluated(NamedTuple):
    """A verdict on its way to the store."""

    item: Item
    key: VerdictKey
    """The keys of the item in the database."""
    verdict: Verdict


class Evaluator:
    """Turns items into stored verdicts."""

    def __init__(
        self,
        *,
        look_up: Callable[[Item], Awaitable[LookUp | None]],
        answered: Callable[[int], Awaitable[bool]],
        record: Callable[[Evaluated], Awaitable[None]],
        caller: Callable[[str, str], Awaitable[Caller]],
        health: Health,
        worker: str,
        generator: random.Random,
    ) -> None:
        """Compose an evaluator.

        Args:
            look_up: Finds an item's command and whether its verdict exists; None: no such item.
            answered: Finds whether a model of a run, by its key in the store, has any answer there.
            caller: Returns the caller for a run id and a model id.
            health: Of the store; no call begins while it is not good.
        """
        self._look_up = look_up
        self._record = record
        self._caller = caller
        self._waits = Waits(health)
        self._attempts = Attempts(look_up, answered, self._waits, worker, generator)
        self._unserved: set[str] = set()
        self._held: dict[Item, asyncio.Future[None] | None] = {}
        self.in_flight: Counter[tuple[str, str]] = Counter()
        """Items held, by run id and model."""
        self.begun: set[tuple[str, str]] = set()
        """Run id and model of the items that were begun since a reader took them out."""

    @property
    def takes_items(self) -> bool:
        """Whether new items may be fetched: verdicts on them could be stored."""
        return self._waits.health.good

    @property
    def held(self) -> Uncalled[str]:
        """Runs of which no call may begin."""
        return self._waits.held

    @property
    def batched(self) -> Uncalled[tuple[str, str]]:
        """Models, by run id, of which a call may begin only for items given up by batches."""
        return self._waits.batched

    @property
    def failing(self) -> FailingItems:
        """Items held whose calls have failed so far."""
        return self._attempts.failing

    def stop(self) -> None:
        """Begin no further call; calls in flight go on."""
        self._waits.stop()

    async def evaluate(
        self, item: Item, enqueued_at: float | None, is_held: Callable[[], bool] = lambda: True
    ) -> None:
        """Bring one item to its verdict; when this returns, the verdict is committed.

        An item whose verdict exists, or that no run plans, costs no call. Neither does one that is
        under way in this process already: brokers deliver twice what they believe lost.

        Args:
            enqueued_at: Time of its publication in seconds since the epoch; None: unknown.
            is_held: Whether the broker still counts its message as delivered to this worker.

        Raises:
            RequeueError: The item has to go back to its queue; the subclass says why.
            OverBudgetError: The run has reached a cap; the item stays without a verdict.
        """
        if item in self._held:
            await self._end_of(item)
            return
        clock = ItemClock(max(0.0, time.time() - enqueued_at) if enqueued_at else 0.0)
        key = (item.run_id, item.model)
        self.in_flight[key] += 1
        self.begun.add(key)
        self._held[item] = None
        error: BaseException | None = None
        try:
            await self._settle(item, clock, is_held)
        except BaseException as caught:
            error = caught
            raise
        finally:
            copies = self._held.pop(item)
            if copies is not None and not copies.done():
                _finish(copies, error)
            self.in_flight[key] -= 1
            if not self.in_flight[key]:
                del self.in_flight[key]  # the run may have ended

    async def _end_of(self, item: Item) -> None:
        """Wait for the first copy of an item, and end as it does."""
        copies = self._held[item]
        if copies is None:
            copies = self._held[item] = asyncio.get_running_loop().create_future()
        await asyncio.shield(copies)

    async def _settle(self, item: Item, clock: ItemClock, is_held: Callable[[], bool]) -> None:
        with part_span("look up"):
            found = await self._look_up(item)
        clock.looked_up = time.monotonic()
        if found is None:
            log.warning("unknown_item", run=item.run_id, model=item.model, sample=item.sample_key)
            return
        if found.done or found.batched:
            return
        if found.held:
            self.held.add(item.run_id)
            raise RunHeldError
        caller = await self._serving(item, clock)

        def is_wanted() -> bool:
            return is_held() or self._held[item] is not None  # a copy may have come here again

        try:
            verdict = await self._attempts.verdict(Attempt(item, found, caller, clock, is_wanted))
        except BatchedItemError:
            return  # it is asked in batches from now on
        except LimiterFailedError:  # a bug, which the next item to wait may meet again
            await self._waits.pause(HELD_AFTER_FAILURE_S, clock)
            raise
        if verdict is not None:
            note_verdict(verdict)
            with part_span("store"):
                await self._record(Evaluated(item, found.key, verdict))

    async def _serving(self, item: Item, clock: ItemClock) -> Caller:
        try:
            return await self._caller(item.run_id, item.model)
        except (ConfigError, CatalogError) as error:
            if item.model not in self._unserved:
                self._unserved.add(item.model)
                log.error("model_not_served_here", model=item.model, problem=str(error))
            with self.held.ends_wait(item.run_id):
                await self._waits.pause(HELD_UNSERVED_S, clock)
            raise UnservedModelError from error


def _finish(copies: "asyncio.Future[None]", error: BaseException | None) -> None:
    """Have the copies of a message end as the first one did."""
    if error is None:
        copies.set_result(None)
    elif isinstance(error, Exception):
        copies.set_exception(error)
    else:
        copies.cancel()
