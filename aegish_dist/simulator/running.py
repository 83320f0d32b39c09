"""Starts and stops a simulated provider: in the running loop, in a thread, or as a whole process.

Every socket is bound to 127.0.0.1.
"""

import asyncio
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from aegish_dist.core.recording import Recording
from aegish_dist.errors import ConfigError
from aegish_dist.simulator.config import HOST, SimulatorConfig
from aegish_dist.simulator.replay import Replay
from aegish_dist.simulator.server import Simulator, Stats

# Room for a whole fleet that connects at the same moment; the kernel caps it further.
_BACKLOG = 4096
# Hanging calls must not hold up the end.
_SHUTDOWN_S = 0.05


@dataclass(frozen=True, slots=True)
class SimulatorServer:
    """A running simulated provider."""

    port: int
    """TCP port on 127.0.0.1."""
    stats: Stats
    """Its live counters; only to be read."""

    @property
    def url(self) -> str:
        """Root of the provider's API, without a trailing slash."""
        return f"http://{HOST}:{self.port}"


@asynccontextmanager
async def serving(
    config: SimulatorConfig, recordings: Iterable[Recording] = ()
) -> AsyncIterator[SimulatorServer]:
    """Run a simulated provider in the running loop; the end closes calls in flight, too."""
    simulator = Simulator(config, Replay(recordings) or None)
    # Cancellation on disconnect ends a hanging call as soon as its client gives up.
    server = web.Server(simulator.handle, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, config.port, backlog=_BACKLOG)
        await _listen(site, config.port)
        yield SimulatorServer(site.port, simulator.stats)
    finally:
        await simulator.close()
        await runner.cleanup()


async def _listen(site: web.TCPSite, port: int) -> None:
    try:
        await site.start()
    except OSError as error:
        problem = f"cannot listen on {HOST}:{port}: {error.strerror}"
        raise ConfigError(f"{problem}; choose another port, or 0 for a free one") from error


def run_forever(
    config: SimulatorConfig,
    recordings: Iterable[Recording],
    on_ready: Callable[[SimulatorServer], None],
) -> None:
    """Run a simulated provider until SIGINT or SIGTERM, then return."""

    async def run() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        async with serving(config, recordings) as server:
            on_ready(server)
            await stopped.wait()

    # As many file descriptors as the process may have: the usual 1,024 are one per call.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run())


@contextmanager
def simulator_thread(
    config: SimulatorConfig, recordings: Iterable[Recording] = ()
) -> Iterator[SimulatorServer]:
    """Run a simulated provider in a thread with a loop of its own."""
    ready: Future[tuple[SimulatorServer, asyncio.AbstractEventLoop]] = Future()
    stopped = asyncio.Event()

    async def run() -> None:
        async with serving(config, recordings) as server:
            ready.set_result((server, asyncio.get_running_loop()))
            await stopped.wait()

    with ThreadPoolExecutor(1, thread_name_prefix="simulator") as executor:
        end = executor.submit(lambda: asyncio.run(run()))
        either: tuple[Future[Any], ...] = (ready, end)
        wait(either, return_when=FIRST_COMPLETED)
        if end.done():
            end.result()
        server, loop = ready.result()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(stopped.set)
            end.result()
