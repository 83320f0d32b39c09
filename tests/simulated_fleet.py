"""A fleet of limiters and a provider with a limit, in virtual time and inside one process."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from fakeredis import FakeAsyncRedis, FakeServer

from aegish_dist.core.failures import Evidence, Failure, RetryAfter, decide
from aegish_dist.core.model import RateHint
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import ItemShedError
from aegish_dist.ratelimit.fair_queue import Accounts, ExpectedUsage
from aegish_dist.ratelimit.local_lease import ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from aegish_dist.ratelimit.usage_report import Lease, LeaseRequest
from aegish_dist.simulator.config import RateLimit, TokenBucket
from tests.virtual_time import START_S

MODEL = "lab/guard"
LOOK_S = 0.25
"""Seconds between two looks of a worker whether it may hold another item."""


@dataclass
class Provider:
    """A provider with a token bucket."""

    tells: bool
    per_minute: int = 1200
    burst: int = 20
    refuses_at_random: float = 0.0
    """Share of all calls that it refuses whatever its limit is."""
    accepted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._bucket = TokenBucket(RateLimit(self.per_minute, self.burst), START_S)

    def call(self, now_s: float, draw: float) -> float | None:
        """Take a call; return the seconds to wait where it is refused."""
        wait_s = self._bucket.take(now_s)
        if not wait_s and draw < self.refuses_at_random:
            wait_s = 0.01
        (self.refused if wait_s else self.accepted).append(now_s - START_S)
        return wait_s

    @property
    def hint(self) -> RateHint | None:
        """The limit as its headers tell it."""
        return RateHint(self.per_minute, self._bucket.remaining) if self.tells else None

    def share(self, first_s: float, last_s: float) -> tuple[float, float]:
        """Return the part of the limit used, and the part of the calls refused, in a time."""
        answers, refusals = (
            sum(first_s <= at < last_s for at in times) for times in (self.accepted, self.refused)
        )
        limit = self.per_minute / 60 * (last_s - first_s)
        return answers / limit, refusals / max(1, answers + refusals)


class SimulatedFleet:
    """Workers that hold items of one model and call for ever, by the policies of the product."""

    def __init__(self, provider: Provider, workers: int, clients: int) -> None:
        """Start the workers."""
        self._provider, self._clients = provider, clients
        self._chance, self._server = random.Random(1), FakeServer()
        self.requests = 0
        """Requests to the script."""
        self.answers: Counter[int] = Counter()
        """By worker."""
        self._items: Counter[int] = Counter()
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        self.start(workers)

    def start(self, workers: int) -> None:
        """Start so many workers more."""
        first = max(self._tasks, default=-1) + 1
        for number in range(first, first + workers):
            self._tasks[number] = self._worker(number)

    async def kill(self, workers: Callable[[int], bool] = lambda _: True) -> None:
        """End those workers of whose number this is true, without a word to the script."""
        chosen = [number for number in self._tasks if workers(number)]
        tasks = [task for number in chosen for task in self._tasks.pop(number)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _worker(self, number: int) -> list["asyncio.Task[None]"]:
        shared = SharedLimiter(FakeAsyncRedis(server=self._server), f"w{number}")

        async def ask(request: LeaseRequest) -> Lease:
            if number not in self._tasks:
                await asyncio.Event().wait()  # killed: nothing arrives any more
            self.requests += 1
            await asyncio.sleep(0.001)
            return await shared.lease(request, asyncio.get_running_loop().time())

        limiter = ModelLimiter(
            MODEL,
            ask,
            accounts=Accounts(_none_spent, _no_budget),
            semaphore=ProcessSemaphore(self._clients),
            generator=self._chance,
        )
        return [asyncio.create_task(self._client(number, limiter)) for _ in range(self._clients)]

    async def _client(self, number: int, limiter: ModelLimiter) -> None:
        """Work on one item after the other, while the worker may hold another one."""
        while True:
            while self._items[number] >= limiter.prefetch_target:
                await asyncio.sleep(LOOK_S)
            self._items[number] += 1
            try:
                await self._answer(limiter)
                self.answers[number] += 1
            except ItemShedError:
                pass  # it goes back to its queue
            finally:
                self._items[number] -= 1

    async def _answer(self, limiter: ModelLimiter) -> None:
        """Call until the provider answers, with the retry policy of the product."""
        loop, chance, provider = asyncio.get_running_loop(), self._chance, self._provider
        for attempt in count(1):
            permit = await limiter.acquire("run", ExpectedUsage(1000), called=attempt > 1)
            await asyncio.sleep(0.01)
            wait_s = provider.call(loop.time(), chance.random())
            if provider.hint is not None:
                limiter.observe(provider.hint)
            if not wait_s:
                await asyncio.sleep(chance.lognormvariate(-0.2, 0.4))
                limiter.succeeded(permit, tokens=1000, cost=0)
                return
            await limiter.failed(permit, ErrorClass.RATE_LIMIT, wait_s, "too fast")
            failure = Failure(ErrorClass.RATE_LIMIT, min(attempt, 9), wait_s)
            decision = decide(failure, Evidence(), chance.random())
            assert isinstance(decision, RetryAfter)
            await asyncio.sleep(decision.seconds)


async def _none_spent(_: str) -> dict[str, int]:
    return {}


async def _no_budget(_: str) -> None:
    return None
