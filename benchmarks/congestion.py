"""The limiter with a congested provider, and with providers that are only slow, in virtual time.

Run with `python benchmarks/congestion.py [WORLD...] [--seconds 340] [--workers 1,4]
[--slots 60,500] [--limit 500]`.

Each cell is a fleet whose workers hold as many calls as they have slots; the catalog lists no limit
of the calls in flight, or `--limit`. Printed per cell: answers as a share of what the provider can
give, or, where its throughput grows with the calls in flight, of what the same fleet gets without
the bound; calls given up at their deadline of 60 s; the median latency over that of an unloaded
provider, also of the second half of the time; when the answer came that ends a run of 1,172
commands; the most calls in flight.
"""

import asyncio
import heapq
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from fakeredis import FakeAsyncRedis, FakeServer
from measuring import laid_out
from msgspec import Struct, field

from aegish_dist.core.model import Limits
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import AegishError
from aegish_dist.ratelimit.fair_queue import Accounts, ExpectedUsage, ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from aegish_dist.ratelimit.usage_report import POLICY, Lease, LeaseRequest
from tests.virtual_time import START_S, run_virtually

TIME_LIMIT_S = 60.0
RUN = 1172
"""Commands of a run of all bundled data sets."""


class Provider:
    """Answers each call after its work; `in_flight` counts the calls that it has."""

    def __init__(
        self, service: Callable[[float], float], capacity_per_s: float | None = None
    ) -> None:
        """Take a draw of seconds of work at a time; no capacity: it grows with the calls."""
        self.service = service
        self.capacity_per_s = capacity_per_s
        self.unloaded_s = statistics.median(service(0.0) for _ in range(2001))
        self.in_flight = 0

    def latency(self, now_s: float) -> float:
        return self.service(now_s)


class Queue(Provider):
    """Serves a few calls at once, the others in order of arrival."""

    def __init__(self, service: Callable[[float], float], capacity_per_s: float) -> None:
        super().__init__(service, capacity_per_s)
        mean_s = statistics.fmean(service(0.0) for _ in range(20_001))
        self._free_at = [0.0] * max(1, round(capacity_per_s * mean_s))
        self.capacity_per_s = len(self._free_at) / mean_s

    def latency(self, now_s: float) -> float:
        ends_s = max(now_s, heapq.heappop(self._free_at)) + self.service(now_s)
        heapq.heappush(self._free_at, ends_s)
        return ends_s - now_s


class Sharing(Provider):
    """Serves all calls at once, each the slower the more there are (batches on one device)."""

    def __init__(self, service: Callable[[float], float], capacity_per_s: float) -> None:
        super().__init__(service, capacity_per_s)
        self._alone = capacity_per_s * statistics.fmean(service(0.0) for _ in range(20_001))

    def latency(self, now_s: float) -> float:
        return self.service(now_s) * max(1.0, self.in_flight / self._alone)


chance = random.Random(7)


def constant(seconds: float) -> Callable[[float], float]:
    return lambda _: seconds


def lognormal(median_s: float, sigma: float) -> Callable[[float], float]:
    return lambda _: median_s * math.exp(chance.gauss(0, sigma))


def mixed(now_s: float) -> float:
    """Runs of short and of long answers in turns of two minutes."""
    long = chance.random() < (0.9 if now_s // 120 % 2 else 0.1)
    return lognormal(5.0 if long else 0.7, 0.5)(now_s)


def drifting(now_s: float) -> float:
    """A day in an hour: twice as slow at noon."""
    return 2 ** (0.5 - 0.5 * math.cos(2 * math.pi * now_s / 3600)) * lognormal(1.0, 0.5)(now_s)


WORLDS: dict[str, Callable[[], Provider]] = {
    "queue-1s": lambda: Queue(constant(1.0), 10),
    "queue-tails": lambda: Queue(lognormal(1.0, 0.5), 10),
    "queue-0.5s": lambda: Queue(lognormal(0.5, 0.5), 10),
    "queue-3s": lambda: Queue(lognormal(3.0, 0.5), 10),
    "queue-wild": lambda: Queue(lognormal(1.0, 1.0), 10),
    "sharing-1s": lambda: Sharing(constant(1.0), 10),
    "sharing-tails": lambda: Sharing(lognormal(1.0, 0.5), 10),
    "sharing-2s": lambda: Sharing(lognormal(2.0, 0.7), 10),
    "queue-20s": lambda: Queue(lognormal(20.0, 0.3), 10),
    "free-1s": lambda: Provider(constant(1.0)),
    "free-tails": lambda: Provider(lognormal(1.0, 0.5)),
    "free-wild": lambda: Provider(lognormal(1.0, 1.0)),
    "free-20s": lambda: Provider(lognormal(20.0, 0.5)),
    "free-mixed": lambda: Provider(mixed),
    "free-drift": lambda: Provider(drifting),
}


class Tally(Struct):
    """Counts of one cell."""

    latencies: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    given_up: int = 0
    most: int = 0

    def later(self, since_s: float) -> list[float]:
        """Return the latencies of the answers since a moment."""
        answers = zip(self.ends, self.latencies, strict=True)
        return [latency for end, latency in answers if end >= since_s] or [math.nan]


async def _caller(limiter: ModelLimiter, provider: Provider, tally: Tally) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            permit = await limiter.acquire("run", ExpectedUsage(1, 0))
        except AegishError:
            await asyncio.sleep(0.5)
            continue
        provider.in_flight += 1
        tally.most = max(tally.most, provider.in_flight)
        seconds = provider.latency(loop.time() - START_S)
        await asyncio.sleep(min(seconds, TIME_LIMIT_S))
        provider.in_flight -= 1
        if seconds > TIME_LIMIT_S:
            tally.given_up += 1
            await limiter.failed(permit, ErrorClass.DEADLINE, None, "late", silent_s=30)
        else:
            tally.latencies.append(seconds)
            tally.ends.append(loop.time() - START_S)
            limiter.succeeded(permit, tokens=1, cost=0)


async def _nothing(_: str) -> dict[str, int]:
    return {}


async def _no_cap(_: str) -> None:
    return None


async def _play(
    provider: Provider, workers: int, slots: int, seconds: float, limit: int | None = None
) -> Tally:
    server, tally = FakeServer(), Tally()
    callers: list[asyncio.Future[None]] = []
    for number in range(workers):
        shared = SharedLimiter(FakeAsyncRedis(server=server), f"w{number}")

        async def ask(request: LeaseRequest, shared: SharedLimiter = shared) -> Lease:
            await asyncio.sleep(0.001)
            return await shared.lease(request, asyncio.get_running_loop().time())

        limiter = ModelLimiter(
            "lab/guard",
            ask,
            accounts=Accounts(_nothing, _no_cap),
            semaphore=ProcessSemaphore(slots),
            generator=random.Random(number),
        )
        limiter.set_limits(Limits(max_in_flight=limit), Limits())
        callers += [asyncio.ensure_future(_caller(limiter, provider, tally)) for _ in range(slots)]
    await asyncio.sleep(seconds)
    for each in callers:
        each.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    return tally


@contextmanager
def _unbounded() -> Iterator[None]:
    policy = POLICY["congestion"]
    before = policy["least_answers"]
    policy["least_answers"] = 1e18
    try:
        yield
    finally:
        policy["least_answers"] = before


def cell(world: str, workers: int, slots: int, seconds: float, limit: int | None) -> str:
    """Play a cell and return its line."""
    chance.seed(world)
    provider, began = WORLDS[world](), time.monotonic()
    tally = run_virtually(_play(provider, workers, slots, seconds, limit))
    answers = len(tally.latencies)
    if provider.capacity_per_s is None:
        with _unbounded():
            chance.seed(world)
            free = run_virtually(_play(WORLDS[world](), workers, slots, seconds, limit))
        used = answers / len(free.latencies)
    else:
        used = answers / provider.capacity_per_s / seconds
    calls = answers + tally.given_up
    slower = statistics.median(tally.latencies) / provider.unloaded_s
    later = statistics.median(tally.later(seconds / 2)) / provider.unloaded_s
    ended = f"{tally.ends[RUN - 1]:.1f} s" if answers >= RUN else "-"
    return (
        f"{world:14} {workers:2} x {slots:3}  {used:6.1%} used"
        f"  {tally.given_up / calls:6.2%} given up"
        f"  {slower:5.2f} x unloaded, later {later:5.2f} x  {RUN} after {ended:>7}"
        f"  {tally.most:5} in flight ({time.monotonic() - began:.0f} s)"
    )


def _numbers(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    return [int(each) for each in value.split(",")]


@click.command(help=laid_out(__doc__))
@click.argument("worlds", nargs=-1, type=click.Choice(list(WORLDS)))
@click.option("--seconds", default=340.0, show_default=True)
@click.option("--workers", default="1,4", show_default=True, callback=_numbers)
@click.option("--slots", default="60,500", show_default=True, callback=_numbers)
@click.option("--limit", type=click.IntRange(1), help="Of calls in flight, by the catalog.")
def main(
    worlds: tuple[str, ...],
    seconds: float,
    workers: list[int],
    slots: list[int],
    limit: int | None,
) -> None:
    """Play the cells."""
    for world in worlds or WORLDS:
        for number in workers:
            for each in slots:
                print(cell(world, number, each, seconds, limit), flush=True)


if __name__ == "__main__":
    main()
