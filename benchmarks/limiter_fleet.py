"""Up to 64 workers against one limiter: do they find, use and share a limit that they do not know?

Run with `python benchmarks/limiter_fleet.py [--workers N]... [--seconds S]`. Needs redis-server.

fleet:   as many workers with 20 items each, in virtual time, on a provider that accepts 5 calls a
         second for each worker, saves up one second's worth, and names no limit. Share of the limit
         used and share of 429s in the first minute and after it; requests to the script per worker
         and second; answers of the worker that got fewest and most, as parts of the mean; and the
         share used in the 20 s after half of the fleet was killed, and after it was started again.
script:  microseconds that one such request takes of the one thread of a real Redis with as many
         workers, and the part of that thread which the fleet takes with all its requests.
"""

import asyncio
import statistics
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from measuring import laid_out, print_table
from redis.asyncio import Redis

from aegish_dist.core.model import Limits
from aegish_dist.ratelimit.protocol import LeaseRequest, RunRequest
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from aegish_dist.ratelimit.usage_report import UsageReport
from tests.services import RedisServer
from tests.simulated_fleet import MODEL, Provider, SimulatedFleet
from tests.virtual_time import run_virtually

CLIENTS = 20
CALLS_PER_WORKER_S = 5.0
FAULT_S = 20.0
REQUESTS = 20_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """How a fleet of a size did."""

    first: tuple[float, float]
    """Share of the limit used, and share of calls refused, in the first minute."""
    later: tuple[float, float]
    requests_per_worker_s: float
    fewest: float
    """Answers of one worker as a part of the mean."""
    most: float
    halved: float
    """Share of the limit used right after half of the workers were killed."""
    doubled: float


async def _watched(provider: Provider, workers: int, seconds: float) -> Fleet:
    fleet = SimulatedFleet(provider, workers, CLIENTS)
    await asyncio.sleep(seconds)
    requests, answers = fleet.requests, [fleet.answers[number] for number in range(workers)]
    await fleet.kill(lambda number: number % 2 == 0)
    await asyncio.sleep(FAULT_S)
    fleet.start(workers // 2)
    await asyncio.sleep(FAULT_S)
    await fleet.kill()
    mean = statistics.mean(answers)
    end = seconds + FAULT_S
    return Fleet(
        provider.share(0, 60),
        provider.share(60, seconds),
        requests / workers / seconds,
        min(answers) / mean,
        max(answers) / mean,
        provider.share(seconds, end)[0],
        provider.share(end, end + FAULT_S)[0],
    )


async def _script_us(url: str, workers: int) -> float:
    """Return microseconds of Redis' thread per request."""
    limiters = [SharedLimiter.connect(url, f"w{number}") for number in range(workers)]

    def request() -> LeaseRequest:
        report = UsageReport(answers=1, epoch_answers=1)
        runs = [RunRequest("0abcdefgh", 10, 1_000, 100, 100, cap=10**15)]
        return LeaseRequest(MODEL, 10, 10, 10_000, Limits(60_000.0), Limits(), report, runs)

    for limiter in limiters:
        await limiter.lease(request())
    client = Redis.from_url(url)
    await client.config_resetstat()
    for number in range(REQUESTS):
        await limiters[number % workers].lease(request())
    stats = await client.info("commandstats")
    await client.aclose()
    for limiter in limiters:
        await limiter.__aexit__()
    return float(stats["cmdstat_evalsha"]["usec_per_call"])


def _row(workers: int, found: Fleet, script_us: float) -> dict[str, str]:
    return {
        "workers": str(workers),
        "used, 429s in the first minute": "{:.1%}, {:.2%}".format(*found.first),
        "used, 429s after it": "{:.1%}, {:.2%}".format(*found.later),
        "requests per worker and second": f"{found.requests_per_worker_s:.1f}",
        "fewest, most answers": f"{found.fewest:.2f}, {found.most:.2f}",
        "used, half killed": f"{found.halved:.1%}",
        "used, half started": f"{found.doubled:.1%}",
        "us of Redis a request": f"{script_us:.0f}",
        "of its thread": f"{found.requests_per_worker_s * workers * script_us / 1e6:.1%}",
    }


@click.command(help=laid_out(__doc__))
@click.option("--workers", multiple=True, type=int, default=(4, 16, 64), show_default=True)
@click.option("--seconds", default=180.0, show_default=True, help="Virtual time before the kill.")
def main(*, workers: tuple[int, ...], seconds: float) -> None:
    """Measure fleets of several sizes."""
    rows = []
    for number in workers:
        a_second = int(CALLS_PER_WORKER_S * number)
        provider = Provider(tells=False, per_minute=60 * a_second, burst=a_second)
        found = run_virtually(_watched(provider, number, seconds))
        with TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
            rows.append(_row(number, found, asyncio.run(_script_us(server.url, number))))
    print_table("Fleets on one limiter", rows)


if __name__ == "__main__":
    main()
