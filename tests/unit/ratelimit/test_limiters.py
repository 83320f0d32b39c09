"""The limiters of a worker process."""

import asyncio

from fakeredis import FakeAsyncRedis
from msgspec.structs import replace

from aegish_dist.core.failures import LONGEST_RETRY_AFTER_S
from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.ratelimit.fair_queue import ExpectedUsage
from aegish_dist.ratelimit.model_limiter import Limiters
from aegish_dist.ratelimit.policy import POLICY
from aegish_dist.ratelimit.shared_limiter import SharedLimiter

SPEC = ModelSpec("lab/guard", WireFormat.OPENAI, "guard", max_in_flight=3)


async def spent(_: str) -> dict[str, int]:
    return {}


async def budget(_: str) -> None:
    """Know of no cap."""


def test_the_fleet_and_the_items_call_the_same_wait_long() -> None:
    assert POLICY["pacing"]["longest_pause_s"] == LONGEST_RETRY_AFTER_S


def test_the_newest_run_decides_the_limits() -> None:
    """An operator who corrects a limit and submits again need not restart the workers."""

    async def let_through() -> int:
        limiters = Limiters(SharedLimiter(FakeAsyncRedis(), "a"), spent, budget, 100)
        for run_id, limit in (("0b", 3), ("0c", 5), ("0a", 90)):
            limiter = limiters.of(replace(SPEC, max_in_flight=limit), run_id)
        entries = [asyncio.create_task(limiter.acquire("0a", ExpectedUsage())) for _ in range(20)]
        await asyncio.wait(entries, return_when=asyncio.FIRST_COMPLETED)
        limiters.close()
        done = [entry.result() for entry in entries if entry.done() and not entry.exception()]
        for permit in done:
            limiter.release(permit)
        await asyncio.gather(*entries, return_exceptions=True)
        await limiters.finish()
        return len(done)

    assert asyncio.run(let_through()) == 5
