"""A fast model keeps its share of a worker beside models that hold on to what they get."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Self
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from aegish_dist.core.status import CallWait
from aegish_dist.ratelimit.fair_queue import (
    CLAIM_S,
    Accounts,
    ExpectedUsage,
    FairShares,
    ProcessSemaphore,
)
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.usage_report import Lease

pytestmark = pytest.mark.virtual_time

FAST, OTHER = "lab/fast", "lab/other"
FAST_S, SLOW_S, BACKOFF_S, CAPACITY_PER_S = 0.5, 20.0, 5.0, 5.0
STORING_S, FETCH_S = 0.01, 0.005
Call = Callable[[int], Awaitable[None]]
"""A call to the provider, which sees how many calls are under way."""
FREE = Lease(0, slots=None, permits=0, metered=False, limited=False, wait_s=1.0)


class Worker:
    """What divides the places of a worker, with messages of each model without end."""

    def __init__(self, slots: int) -> None:
        now_s = asyncio.get_running_loop().time
        self.limiters: dict[str, ModelLimiter] = {}
        self._shares = FairShares(slots + slots // 5, now_s)
        self._semaphore = ProcessSemaphore(slots, now_s)
        self._held: Counter[str | None] = Counter()
        self._ended: Counter[str] = Counter()
        self._calls: dict[str | None, Call] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        self._tasks = [asyncio.create_task(self._fetch())]
        yield self
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def serve(self, model: str, call: Call, slots: int | None = None) -> None:
        self._calls[model] = call
        self.limiters[model] = ModelLimiter(
            model,
            AsyncMock(return_value=replace(FREE, slots=slots)),
            accounts=Accounts(AsyncMock(), AsyncMock()),
            semaphore=self._semaphore,
            generator=random.Random(1),
        )

    def leave(self, model: str) -> None:
        del self._calls[model]

    async def answers(self, model: str, seconds: float) -> int:
        before = self._ended[model]
        await asyncio.sleep(seconds)
        return self._ended[model] - before

    async def _fetch(self) -> None:
        while True:
            targets = {model: self.limiters[str(model)].prefetch_target for model in self._calls}
            room = self._shares.room(self._held, targets)
            free = self._shares.places - self._held.total()
            for model in [each for _, each in zip(range(free), turns(room), strict=False)]:
                self._held[model] += 1
                self._tasks.append(asyncio.create_task(self._item(str(model))))
            await asyncio.sleep(FETCH_S)

    async def _item(self, model: str) -> None:
        limiter, call = self.limiters[model], self._calls[model]
        permit = await limiter.acquire("run", ExpectedUsage())
        try:
            await call(limiter.local.held)
            limiter.succeeded(permit, tokens=None, cost=None)
        except ConnectionError:
            limiter.release(permit)
            await asyncio.sleep(BACKOFF_S)
        await asyncio.sleep(STORING_S)
        self._held[model] -= 1
        self._ended[model] += 1


def turns(room: Mapping[str | None, int]) -> Iterator[str | None]:
    """Yield each model as often as it may get a message, in turns, as the fetching script does."""
    for number in range(max(room.values(), default=0)):
        yield from (model for model, messages in room.items() if messages > number)


async def fast(_held: int) -> None:
    await asyncio.sleep(FAST_S)


async def slow(_held: int) -> None:
    await asyncio.sleep(SLOW_S)


async def congested(held: int) -> None:
    await asyncio.sleep(max(FAST_S, held / CAPACITY_PER_S))


async def refusing(_held: int) -> None:
    await asyncio.sleep(0.05)
    raise ConnectionError


@pytest.mark.parametrize("slots", [60, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("limit", [None, 10])
@pytest.mark.parametrize("neighbour", [slow, congested, refusing])
async def test_a_fast_model_keeps_its_share(neighbour: Call, limit: int | None, slots: int) -> None:
    """At least nine tenths of half the slots, or of its own limit, from the start."""
    async with Worker(slots).running() as worker:
        worker.serve(OTHER, neighbour)
        worker.serve(FAST, fast, limit)
        share = slots / 2 if limit is None else limit
        assert await worker.answers(FAST, 8.0) >= 0.9 * 8.0 * share / FAST_S


async def test_what_is_lent_returns_within_a_call() -> None:
    """A model alone has all slots. Another one gets its share as the calls of the first end."""
    async with Worker(60).running() as worker:
        worker.serve(OTHER, slow)
        await worker.answers(FAST, 1.0)
        assert worker.limiters[OTHER].local.held == 60
        assert worker.limiters[OTHER].local.blocked_by is CallWait.SLOTS
        worker.serve(FAST, fast)
        await worker.answers(FAST, 1.0)
        assert worker.limiters[FAST].local.blocked_by is CallWait.SHARE
        await worker.answers(FAST, SLOW_S)
        assert worker.limiters[FAST].local.held == worker.limiters[OTHER].local.held == 30
        worker.leave(FAST)
        await worker.answers(FAST, CLAIM_S)
        assert worker.limiters[OTHER].local.held == 30
        await worker.answers(FAST, CLAIM_S + 2.0)
        assert worker.limiters[OTHER].local.held == 60


@pytest.mark.parametrize(
    ("claims", "level"),
    [
        ({"a": 10}, sys.maxsize),
        ({"a": 6, "b": 4}, sys.maxsize),
        ({"a": 11}, 10),
        ({"a": 9, "b": 9}, 5),
        ({"a": 9, "b": 2}, 8),
        ({"a": 9, "b": 9, "c": 9}, 4),
        ({"a": 9, "b": 1, "c": 5}, 5),
    ],
)
def test_the_level_leaves_nothing_unused(claims: dict[str | None, int], level: int) -> None:
    """Water is filled into vessels: what one leaves is divided among the others, rounded up."""
    shares = FairShares(10)
    assert shares.level(claims) == level
    shares.claim(claims.items())
    assert shares.level() == level


def test_models_without_slots_take_turns() -> None:
    """With fewer slots than models, the model that had the slot last is the last to get it."""
    semaphore, begun = ProcessSemaphore(1), list[str]()
    for model in "abc":
        semaphore.subscribe(model, lambda model=model: take(model))  # type: ignore[misc]

    def take(model: str) -> None:
        if semaphore.acquire(model):
            begun.append(model)

    take("a")
    for _ in range(5):
        semaphore.release(begun[-1])
    assert begun == ["a", "b", "c", "a", "b", "c"]
