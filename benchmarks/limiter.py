"""How well a fleet uses a provider's limit that it does not know beforehand.

Run with `python benchmarks/limiter.py [headers] [hidden] [acquire]`. Needs redis-server.

headers:  four worker processes, a provider that accepts 1,200 requests a minute with a burst of 20
          and says so in its headers. Share of the limit used and share of 429s, for the first
          minute, for the time after it, and for all.
hidden:   the same over a wire format without such headers: nothing but 429s to learn from.
acquire:  CPU time of one call through the model limiter, without a limit in sight; with a Redis
          and with fakeredis.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
from measuring import laid_out

from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.db.embedded import embedded_server
from aegish_dist.ratelimit.fair_queue import ExpectedUsage
from aegish_dist.ratelimit.model_limiter import Limiters
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from tests.services import free_port, short_home

PER_MINUTE = 1200
BURST = 20
WORKERS = 4
EPOCHS = 12
WATCHED_S = 240.0
SECTIONS = ("headers", "hidden", "acquire")
LATENCY = "lognormal:0.8,0.4"
CALLS = 20_000
AT_ONCE = 500
REPEATS = 5


@contextmanager
def _running(*command: str, environ: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


class Provider:
    """A simulated provider with a limit, and where its catalog is."""

    def __init__(self, home: Path) -> None:
        self.catalog = home / "catalog.toml"
        self.port = free_port()
        self.command = (
            *_product("simulate-provider", "--port", str(self.port), "--latency", LATENCY),
            *("--write-catalog", str(self.catalog), "--burst", str(BURST)),
            *("--requests-per-minute", str(PER_MINUTE)),
        )

    def stats(self) -> dict[str, Any]:
        """Return its counters."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/stats") as response:
            document: dict[str, Any] = json.load(response)
        return document


def _product(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "aegish_dist", *arguments)


@contextmanager
def _fleet(provider: Provider, port: int) -> Iterator[dict[str, str]]:
    # A home of its own: where this runs as root, another user serves, who cannot enter the
    # folder of the catalog.
    with short_home() as home, closing(embedded_server(home)) as server:
        environ = {
            **os.environ,
            "AEGISH_DIST_DATABASE_URL": server.url,
            "AEGISH_DIST_BROKER_URL": f"redis://127.0.0.1:{port}/0",
            "AEGISH_DIST_CATALOG": str(provider.catalog),
            "AEGISH_DIST_SHUTDOWN_GRACE_S": "1",
        }
        subprocess.run(_product("db", "upgrade"), env=environ, check=True, capture_output=True)
        with _workers(environ, WORKERS):
            yield environ


@contextmanager
def _workers(environ: dict[str, str], number: int) -> Iterator[None]:
    if number == 0:
        yield
        return
    command = (sys.executable, "-m", "workers", "-n", f"w{number}")
    with _running(*command, environ=environ), _workers(environ, number - 1):
        yield


def _watch(provider: Provider) -> list[tuple[float, int, int]]:
    """Return calls and refusals over the time since the first call."""
    while not provider.stats()["requests"]:
        time.sleep(0.01)
    started = time.monotonic()
    counts = [(0.0, 0, 0)]
    while counts[-1][0] < WATCHED_S:
        time.sleep(0.5)
        stats = provider.stats()
        calls = sum(stats["requests"].values())
        counts.append((time.monotonic() - started, calls, stats["throttled"]))
    return counts


def use_of_limit(model: str, title: str) -> None:
    """Print how much of the limit a fleet uses, and how often it is refused."""
    with tempfile.TemporaryDirectory(prefix="al") as directory:
        port = free_port()
        provider = Provider(Path(directory))
        redis = ("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "")
        with _running(*redis), _running(*provider.command):
            while not provider.catalog.exists():
                time.sleep(0.05)
            with _fleet(provider, port) as environ:
                submit = _product("submit", "--models", model, "--epochs", str(EPOCHS))
                subprocess.run(submit, env=environ, check=True, capture_output=True)
                counts = _watch(provider)
    minute = min(counts, key=lambda count: abs(count[0] - 60))
    print(f"{title}: {WORKERS} workers, {PER_MINUTE} requests a minute, burst {BURST}, {LATENCY}")
    for name, first, last in (
        ("first minute", counts[0], minute),
        ("after it", minute, counts[-1]),
        ("all", counts[0], counts[-1]),
    ):
        seconds, calls, refused = (b - a for a, b in zip(first, last, strict=True))
        used = (calls - refused) / (PER_MINUTE / 60 * seconds)
        print(
            f"  {name:13} {used:7.1%} of the limit, {refused / calls:6.2%} refused"
            f" ({refused} of {calls} in {seconds:.0f} s)",
            flush=True,
        )


async def _calls(url: str | None) -> float:
    async def nothing(_: str) -> dict[str, int]:
        return {}

    async def no_cap(_: str) -> None:
        return None

    async with SharedLimiter.connect(url, "benchmark") as limiter:
        spec = ModelSpec("p/m", WireFormat.OPENAI, "m", max_in_flight=AT_ONCE)
        model_limiter = Limiters(limiter, nothing, no_cap, AT_ONCE).of(spec, "run")
        left = CALLS

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                permit = await model_limiter.acquire("run", ExpectedUsage(1000, 0))
                await asyncio.sleep(0)
                model_limiter.succeeded(permit, tokens=1000, cost=0)

        started = time.process_time()
        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
        spent = time.process_time() - started
        model_limiter.close()
        await model_limiter.finish()
    return spent / CALLS * 1e6


def cost_of_acquiring() -> None:
    """Print CPU microseconds per call through the model limiter."""
    port = free_port()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
        stdout=subprocess.DEVNULL,
    )
    try:
        time.sleep(0.5)
        for name, url in (("redis", f"redis://127.0.0.1:{port}/0"), ("fakeredis", None)):
            spent = [asyncio.run(_calls(url)) for _ in range(REPEATS)]
            low, high = min(spent), max(spent)
            print(
                f"acquire on {name}: {statistics.median(spent):.1f} us CPU a call"
                f" ({low:.1f}-{high:.1f}; {CALLS} calls, {AT_ONCE} at once, event loop included)"
            )
    finally:
        server.terminate()
        server.wait()


@click.command(help=laid_out(__doc__))
@click.argument("sections", nargs=-1, type=click.Choice(SECTIONS))
def main(*, sections: tuple[str, ...]) -> None:
    """Measure the sections that are asked for."""
    wanted = sections or SECTIONS
    if "headers" in wanted:
        use_of_limit("simulated/careful", "headers visible")
    if "hidden" in wanted:
        use_of_limit("simulated-google/hasty", "headers hidden")
    if "acquire" in wanted:
        cost_of_acquiring()


if __name__ == "__main__":
    main()
