"""How many answers a fleet gets from a provider that refuses calls, by the cause of the refusals.

Run `python benchmarks/refusals.py [--only chance|limits] [--minutes N] [--limit N]`. Everything
runs in this process and in virtual time.

chance:  each call is refused with the same chance, whatever the rate, with a Retry-After or without
         one; 20 calls in flight, a second to each answer. `of possible` is answers from the second
         minute on, as a part of 20 a second times the share that is not refused.
limits:  the provider accepts 20 calls a second, by a bucket of 20 or by the minute on the clock,
         and refuses a share of them at random; latencies are lognormal. `used` is answers from the
         second minute on, of the limit, `refused` the share of calls. `changed` is a bucket of
         1,200 a minute that falls to 60 after three minutes and is 1,200 again after seven. The
         catalog lists no limit of the calls in flight, or `--limit`.
"""

import asyncio
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path

import click
from fakeredis import FakeAsyncRedis, FakeServer
from measuring import laid_out, print_table
from msgspec import Struct, field

sys.path.insert(0, str(Path(__file__).parents[1]))

from aegish_dist.core.failures import Failure, RetryAfter, decide
from aegish_dist.core.model import Limits, RateHint
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import ItemShedError
from aegish_dist.ratelimit.fair_queue import Accounts, Budget, ExpectedUsage, ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from aegish_dist.ratelimit.usage_report import Lease, LeaseRequest
from tests.virtual_time import START_S, run_virtually

IN_FLIGHT = 20
LATENCY_S = 1.0
REFUSAL_S = 0.05
PREFETCH = 100

Provider = Callable[[float], float | None]
"""Takes the seconds since the start; returns None for an answer, or the Retry-After of a refusal,
NaN for none."""
NONE = float("nan")
SHARES = (0.01, 0.05, 0.15, 0.4)


def refusing(share: float, retry_after_s: float, seed: int = 1) -> Provider:
    chance = random.Random(seed)
    return lambda _: retry_after_s if chance.random() < share else None


def limited(per_s: Callable[[float], float], share: float) -> Provider:
    """Return a provider with a bucket of 20 that refills with so many calls at a time."""
    chance, level, before_s = random.Random(1), 20.0, 0.0

    def ask(now_s: float) -> float | None:
        nonlocal level, before_s
        if chance.random() < share:
            return NONE
        level, before_s = min(20.0, level + (now_s - before_s) * per_s(now_s)), now_s
        if level < 1:
            return NONE
        level -= 1
        return None

    return ask


def uneven() -> Callable[[], float]:
    chance = random.Random(2)
    return lambda: chance.lognormvariate(-0.3, 0.4)


def by_the_minute(*, tells: bool) -> Provider:
    """Return a provider that accepts 1,200 calls in each minute of the clock."""
    calls = Counter[float]()

    def ask(now_s: float) -> float | None:
        calls[now_s // 60] += 1
        if calls[now_s // 60] <= 1200:
            return None
        return 60 - now_s % 60 if tells else NONE

    return ask


def changed(now_s: float) -> float:
    return 1.0 if 180 <= now_s < 420 else 20.0


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
    stated_per_minute: float | None = None  # by headers

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
                with self.limiter.answers.between_calls():
                    await asyncio.sleep(wait_s)
        except ItemShedError:
            return

    async def _call(self, attempt: int) -> float | None:
        """Call the provider; return the seconds to the next attempt, None after the last one."""
        limiter, now_s = self.limiter, asyncio.get_running_loop().time
        permit = await limiter.acquire("run", ExpectedUsage(1, 0), called=attempt > 1)
        asked_s = self.provider(now_s() - START_S)
        if self.stated_per_minute:
            limiter.observe(RateHint(self.stated_per_minute, self.stated_per_minute))
        if asked_s is None:
            await asyncio.sleep(self.latency_s())
            limiter.succeeded(permit, tokens=1, cost=0)
            self.seen.answered.append(now_s() - START_S)
            return None
        await asyncio.sleep(self.refusal_s)
        self.seen.refused.append(now_s() - START_S)
        retry_after_s = None if math.isnan(asked_s) else asked_s
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
    stated_per_minute: float | None = None

    def run(self) -> Seen:
        seen = Seen()
        run_virtually(self._run(seen))
        return seen

    async def _run(self, seen: Seen) -> None:
        server = FakeServer()
        tasks = [
            asyncio.create_task(self._worker(n, server, seen).work()) for n in range(self.workers)
        ]
        await asyncio.sleep(self.seconds)
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
        return Worker(
            self.provider,
            limiter,
            generator,
            seen,
            self.latency_s,
            self.refusal_s,
            self.stated_per_minute,
        )


@click.command(help=laid_out(__doc__))
@click.option("--only", type=click.Choice(["chance", "limits"]), help="One of the two tables.")
@click.option("--minutes", type=click.IntRange(2), default=10, show_default=True)
@click.option("--limit", type=click.IntRange(1), help="Of calls in flight in `limits`.")
def main(*, only: str | None, minutes: int, limit: int | None) -> None:
    """Print the tables."""
    if only != "limits":
        print_table("Random refusals", [*_chance(minutes)])
    if only != "chance":
        print_table("Limits that are stated nowhere", [*_limits(minutes, limit)])


def _chance(minutes: int) -> Iterator[dict[str, str]]:
    for share, asked_s, workers in product(SHARES, (NONE, 0.0, 1.0), (1, 4)):
        provider = refusing(share, asked_s)
        seen = Fleet(provider, 60.0 * minutes, workers, in_flight=IN_FLIGHT).run()
        rates = [seen.rate(60 * minute, 60 * minute + 60) for minute in range(minutes)]
        possible = IN_FLIGHT / LATENCY_S * (1 - share)
        row = {"refused": f"{share:.0%}", "Retry-After": f"{asked_s:g}", "workers": str(workers)}
        row |= {"of possible": f"{sum(rates[1:]) / (minutes - 1) / possible:.0%}"}
        yield row | {"worst minute": f"{min(rates[1:]) / possible:.0%}"}


def _limits(minutes: int, limit: int | None) -> Iterator[dict[str, str]]:
    for workers in (1, 4):
        cases = {"changed": limited(changed, 0)}
        cases |= {"minute, with Retry-After": by_the_minute(tells=True)}
        cases |= {"minute, without": by_the_minute(tells=False)}
        for share in (0, *SHARES):
            cases[f"bucket, {share:.0%} by chance"] = limited(lambda _: 20.0, share)
        for name, provider in cases.items():
            fleet = Fleet(provider, 60.0 * minutes, workers, in_flight=limit, latency_s=uneven())
            seen = fleet.run()
            per_s = changed if name == "changed" else lambda _: 20.0
            parts = [
                seen.rate(60 * minute, 60 * minute + 60) / per_s(60 * minute)
                for minute in range(1, minutes)
            ]
            yield {
                "limit": name,
                "workers": str(workers),
                "used": f"{sum(parts) / len(parts):.0%}",
                "by minute": " ".join(f"{part:.0%}" for part in parts),
                "refused": f"{seen.share(60, 60 * minutes):.1%}",
            }


if __name__ == "__main__":
    main()
