"""Starts and stops a simulated provider: inside a loop, in a thread, or as a whole process.

Every socket is bound to 127.0.0.1.
"""

import asyncio
import resource
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self

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


class SimulatorServer:
    """A running simulated provider."""

    def __init__(self, runner: web.ServerRunner, port: int, stats: Stats) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self.stats = stats
        self._runner = runner

    async def stop(self) -> None:
        """Close every connection, calls in flight included."""
        await self._runner.cleanup()


async def start_server(
    config: SimulatorConfig, recordings: Iterable[Recording] = ()
) -> SimulatorServer:
    """Start a simulated provider in the running loop.

    Args:
        config: How it behaves.
        recordings: Answers to replay; without any, personas answer.

    Raises:
        ConfigError: When the port cannot be used.
    """
    replay = Replay(recordings)
    simulator = Simulator(config, replay or None)
    # Cancellation on disconnect ends a hanging call as soon as its client gives up.
    server = web.Server(simulator.handle, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    site = web.TCPSite(runner, HOST, config.port, backlog=_BACKLOG)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        problem = f"cannot listen on {HOST}:{config.port}: {error.strerror}"
        raise ConfigError(f"{problem}; choose another port, or 0 for a free one") from error
    return SimulatorServer(runner, site.port, simulator.stats)


def run_forever(
    config: SimulatorConfig,
    recordings: Iterable[Recording],
    on_ready: Callable[[SimulatorServer], None],
) -> None:
    """Run a simulated provider until SIGINT or SIGTERM, then return.

    Args:
        config: How it behaves.
        recordings: Answers to replay; without any, personas answer.
        on_ready: Called once it accepts connections.

    Raises:
        ConfigError: When the port cannot be used.
    """

    async def run() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        await _run_until(stopped, config, recordings, on_ready)

    _allow_connections()
    asyncio.run(run())


def _allow_connections() -> None:
    """Take as many file descriptors as the process may: the usual 1,024 are one per call."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _run_until(
    stopped: asyncio.Event,
    config: SimulatorConfig,
    recordings: Iterable[Recording],
    on_ready: Callable[[SimulatorServer], None],
) -> None:
    server = await start_server(config, recordings)
    try:
        on_ready(server)
        await stopped.wait()
    finally:
        await server.stop()


class SimulatorThread:
    """A simulated provider in a thread with a loop of its own, for the length of a `with`."""

    def __init__(self, config: SimulatorConfig, recordings: Iterable[Recording] = ()) -> None:
        self._config = config
        self._recordings = recordings
        self._ready: Future[SimulatorServer] = Future()
        self._stopped = asyncio.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="simulator")

    @property
    def url(self) -> str:
        """Root of the provider's API, without a trailing slash."""
        return self._ready.result().url

    @property
    def stats(self) -> Stats:
        """Its live counters; only to be read."""
        return self._ready.result().stats

    def __enter__(self) -> Self:
        self._end = self._executor.submit(lambda: asyncio.run(self._main()))
        either: list[Future[Any]] = [self._ready, self._end]
        wait(either, return_when=FIRST_COMPLETED)
        if not self._ready.done():
            self._executor.shutdown()
            self._end.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._executor.shutdown()
        self._end.result()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        await _run_until(self._stopped, self._config, self._recordings, self._ready.set_result)
