"""How a fleet of limiters finds the limit of a provider that does not tell it, in virtual time."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from fakeredis import FakeAsyncRedis, FakeServer

from aegish_dist.core.failures import Evidence, Failure, RetryAfter, decide
from aegish_dist.core.limits import RateHint
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.ratelimit.local_lease import ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.protocol import Lease, LeaseRequest
from aegish_dist.ratelimit.run_queue import Accounts, ExpectedUsage
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from aegish_dist.simulator.bucket import RateLimit, TokenBucket
from tests.virtual_time import START_S, run_virtually

WORKERS = 4
CLIENTS = 60
"""Items that each worker holds."""
PER_MINUTE, BURST = 1200, 20


@dataclass
class Provider:
    """A provider with a token bucket."""

    tells: bool
    bucket: TokenBucket = field(
        default_factory=lambda: TokenBucket(RateLimit(PER_MINUTE, BURST), START_S)
    )
    accepted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def share(self, first_s: float, last_s: float) -> tuple[float, float]:
        """Return the part of the limit used, and the part of the calls refused, in a time."""
        answers, refusals = (
            sum(first_s <= at < last_s for at in times) for times in (self.accepted, self.refused)
        )
        limit = PER_MINUTE / 60 * (last_s - first_s)
        return answers / limit, refusals / (answers + refusals)


async def client(model_limiter: ModelLimiter, provider: Provider, chance: random.Random) -> None:
    """Call for ever, with the retry policy of the product."""
    loop = asyncio.get_running_loop()
    attempt = 1
    while True:
        permit = await model_limiter.acquire("run", ExpectedUsage(1000))
        await asyncio.sleep(0.01)
        wait_s = provider.bucket.take(loop.time())
        (provider.refused if wait_s else provider.accepted).append(loop.time() - START_S)
        if provider.tells:
            model_limiter.observe(RateHint(PER_MINUTE, provider.bucket.remaining))
        if wait_s:
            await model_limiter.failed(permit, ErrorClass.RATE_LIMIT, wait_s, "too fast")
            failure = Failure(ErrorClass.RATE_LIMIT, min(attempt, 9), wait_s)
            decision = decide(failure, Evidence(), chance.random())
            assert isinstance(decision, RetryAfter)
            attempt += 1
            await asyncio.sleep(decision.seconds)
        else:
            await asyncio.sleep(chance.lognormvariate(-0.2, 0.4))
            model_limiter.succeeded(permit, tokens=1000, cost=0)
            attempt = 1


async def watch(provider: Provider, seconds: float) -> None:
    """Let a fleet call a provider for so long."""
    chance, server = random.Random(1), FakeServer()
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(WORKERS):
        limiter = SharedLimiter(FakeAsyncRedis(server=server), f"w{number}")

        async def ask(ask: LeaseRequest, limiter: SharedLimiter = limiter) -> Lease:
            await asyncio.sleep(0.001)
            return await limiter.lease(ask, loop.time())

        async def spent(_: str) -> dict[str, int]:
            return {}

        async def budget(_: str) -> None:
            return None

        model_limiter = ModelLimiter(
            "lab/guard",
            ask,
            accounts=Accounts(spent, budget),
            semaphore=ProcessSemaphore(CLIENTS),
            generator=chance,
        )
        clients += [
            asyncio.create_task(client(model_limiter, provider, chance)) for _ in range(CLIENTS)
        ]
    await asyncio.sleep(seconds)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


@pytest.mark.parametrize("tells", [True, False])
def test_an_unknown_limit_is_found_and_used(tells: bool) -> None:
    """After a minute a fleet uses 95 % of the limit at least, with 1 % of refusals at most."""
    provider = Provider(tells)

    run_virtually(watch(provider, 120))

    used, refused = provider.share(60, 120)
    assert used >= 0.95
    assert refused <= 0.01
    assert provider.share(0, 120)[1] <= 0.02
