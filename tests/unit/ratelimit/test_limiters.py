"""The gates of a worker process."""

import asyncio
from dataclasses import replace

from fakeredis import FakeAsyncRedis

from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.ratelimit.fair_queue import Expected
from aegish_dist.ratelimit.limiters import Gates
from aegish_dist.ratelimit.redis_store import Limiter

SPEC = ModelSpec("lab/guard", WireFormat.OPENAI, "guard", max_in_flight=3)


async def spent(_: str) -> dict[str, int]:
    """Know of no cost."""
    return {}


async def budget(_: str) -> None:
    """Know of no cap."""


def test_the_newest_run_decides_the_limits() -> None:
    """Whoever corrects a limit and submits again need not restart the workers."""

    async def let_through() -> int:
        gates = Gates(Limiter(FakeAsyncRedis(), "a"), spent, budget, 100)
        for run_id, limit in (("0b", 3), ("0c", 5), ("0a", 90)):
            gate = gates.of(replace(SPEC, max_in_flight=limit), run_id)
        entries = [asyncio.create_task(gate.enter("0a", Expected())) for _ in range(20)]
        await asyncio.wait(entries, return_when=asyncio.FIRST_COMPLETED)
        gates.close()
        done = [entry.result() for entry in entries if entry.done() and not entry.exception()]
        for permit in done:
            gate.abandon(permit)
        await asyncio.gather(*entries, return_exceptions=True)
        await gates.finish()
        return len(done)

    assert asyncio.run(let_through()) == 5
