"""How many answers a fleet gets from a provider that refuses calls, by the cause of the refusals.

Run `python benchmarks/refusals.py [random] [limits] [both] [--minutes N]`. Everything runs in this
process and in virtual time: ten minutes of a fleet take some seconds.

random:  each call is refused with the same chance, whatever the rate, with a Retry-After or without
         one. 20 calls in flight, a second to each answer. The column `of possible` is answers from
         the second minute on, as a part of what 20 calls in flight get where none is refused, times
         the share that is not refused; `last / 2nd` compares the last minute with the second.
limits:  a limit that is stated nowhere: steady, falling to a twentieth and rising again after
         three minutes each, and so many calls per fixed minute. `used` is a part of the limit.
both:    a limit of 1,200 a minute, and random refusals of the calls within it.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import click
from fakeredis import FakeAsyncRedis, FakeServer
from measuring import laid_out, print_table
from msgspec import Struct, field

sys.path.insert(0, str(Path(__file__).parents[1]))

from aegish_dist.core.failures import Evidence, Failure, RetryAfter, decide
from aegish_dist.core.model import Limits
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import ItemShedError
from aegish_dist.ratelimit.fair_queue import Accounts, Budget, ExpectedUsage
from aegish_dist.ratelimit.local_lease import ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from aegish_dist.ratelimit.usage_report import Lease, LeaseRequest
from aegish_dist.simulator.config import RateLimit, TokenBucket
from tests.virtual_time import START_S, run_virtually

SECTIONS = ("random", "limits", "both")
IN_FLIGHT = 20
LATENCY_S = 1.0
REFUSAL_S = 0.05
PREFETCH = 100
PER_MINUTE, BURST = 1200, 20
LOW = PER_MINUTE / 20

Provider = Callable[[float], float | None]
"""Takes the seconds since the start; returns None for an answer, or the Retry-After of a refusal,
NaN for none."""
NONE = float("nan")


def refusing(share: float, retry_after_s: float, seed: int = 1) -> Provider:
    chance = random.Random(seed)
    return lambda _: retry_after_s if chance.random() < share else None


def limited(per_minute: Callable[[float], float], burst: int) -> Provider:
    """Accept so many calls a minute at a time, by a token bucket without Retry-After."""
    bucket, limit = None, 0.0

    def answer(now_s: float) -> float | None:
        nonlocal bucket, limit
        if bucket is None or limit != per_minute(now_s):
            limit = per_minute(now_s)
            bucket = TokenBucket(RateLimit(limit, burst), now_s)
        return NONE if bucket.take(now_s) else None

    return answer


def by_fixed_minute(per_minute: int, *, tells: bool) -> Provider:
    """Accept so many calls in each minute of the clock."""
    accepted: Counter[int] = Counter()

    def answer(now_s: float) -> float | None:
        minute = int((now_s + 20) // 60)
        accepted[minute] += 1
        if accepted[minute] <= per_minute:
            return None
        return (minute + 1) * 60 - 20 - now_s if tells else NONE

    return answer


def both(first: Provider, second: Provider) -> Provider:
    def answer(now_s: float) -> float | None:
        refused = first(now_s)
        return second(now_s) if refused is None else refused

    return answer


class Seen(Struct):
    """Ends of the calls of a fleet, in seconds since the start."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    given_up: int = 0

    def rate(self, first_s: float, last_s: float) -> float:
        return _between(self.answered, first_s, last_s) / (last_s - first_s)

    def share(self, first_s: float, last_s: float) -> float:
        """Return the share of refused calls."""
        refused = _between(self.refused, first_s, last_s)
        return refused / max(1, refused + _between(self.answered, first_s, last_s))


def _between(times: Iterable[float], first_s: float, last_s: float) -> int:
    return sum(first_s <= time < last_s for time in times)


class Worker(Struct):
    """A worker process, as far as it matters here: slots, a limiter and retries."""

    provider: Provider
    limiter: ModelLimiter
    generator: random.Random
    seen: Seen
    latency_s: Callable[[], float]
    refusal_s: float

    async def work(self) -> None:
        held: set[asyncio.Task[None]] = set()
        while True:
            while len(held) < min(self.limiter.prefetch_target, PREFETCH):
                task = asyncio.create_task(self._item())
                held.add(task)
                task.add_done_callback(held.discard)
            await asyncio.sleep(0.05)

    async def _item(self) -> None:
        attempt = 0
        try:
            while (wait_s := await self._call(attempt := attempt + 1)) is not None:
                await asyncio.sleep(wait_s)
        except ItemShedError:
            return

    async def _call(self, attempt: int) -> float | None:
        """Call the provider; return the seconds to the next attempt, None after the last one."""
        limiter, now_s = self.limiter, asyncio.get_running_loop().time
        permit = await limiter.acquire("run", ExpectedUsage(1, 0), called=attempt > 1)
        asked_s = self.provider(now_s() - START_S)
        if asked_s is None:
            await asyncio.sleep(self.latency_s())
            limiter.succeeded(permit, tokens=1, cost=0)
            self.seen.answered.append(now_s() - START_S)
            return None
        await asyncio.sleep(self.refusal_s)
        self.seen.refused.append(now_s() - START_S)
        retry_after_s = None if asked_s != asked_s else asked_s
        await limiter.failed(permit, ErrorClass.RATE_LIMIT, retry_after_s, "429")
        failure = Failure(ErrorClass.RATE_LIMIT, attempt, retry_after_s)
        evidence = limiter.answers.evidence(permit.number)
        step = decide(failure, evidence, self.generator.random())
        if isinstance(step, RetryAfter):
            return step.seconds
        self.seen.given_up += 1
        return None


class Fleet(Struct):
    """Workers that share a limiter, for so many seconds."""

    provider: Provider
    seconds: float
    workers: int = 1
    slots: int = 1000
    in_flight: int | None = None
    latency_s: Callable[[], float] = lambda: LATENCY_S
    refusal_s: float = REFUSAL_S
    trace: Callable[[float, bytes], None] | None = None

    def run(self) -> Seen:
        seen = Seen()
        run_virtually(self._run(seen))
        return seen

    async def _run(self, seen: Seen) -> None:
        server = FakeServer()
        tasks = [asyncio.create_task(self._worker(n, server, seen).work()) for n in range(self.workers)]
        redis = FakeAsyncRedis(server=server)
        for second in range(int(self.seconds)):
            await asyncio.sleep(1)
            if self.trace:
                self.trace(second + 1, await redis.get("aegish:limiter:model:lab/guard"))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _worker(self, number: int, server: FakeServer, seen: Seen) -> Worker:
        shared = SharedLimiter(FakeAsyncRedis(server=server), f"w{number}")

        async def ask(request: LeaseRequest) -> Lease:
            await asyncio.sleep(0.001)
            return await shared.lease(request, asyncio.get_running_loop().time())

        async def spent(_: str) -> dict[str, int]:
            return {}

        async def budget(_: str) -> Budget | None:
            return None

        limiter = ModelLimiter(
            "lab/guard",
            ask,
            accounts=Accounts(spent, budget),
            semaphore=ProcessSemaphore(self.slots),
            generator=random.Random(number),
        )
        limiter.set_limits(Limits(max_in_flight=self.in_flight), Limits())
        generator = random.Random(100 + number)
        return Worker(self.provider, limiter, generator, seen, self.latency_s, self.refusal_s)
