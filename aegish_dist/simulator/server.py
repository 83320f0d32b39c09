"""The simulated provider: its handler of requests, and how it is started and stopped.

The low-level `aiohttp.web.Server` is used instead of an application: one handler needs no router,
and the hot path stays short enough for thousands of requests a second on one core. Every socket is
bound to 127.0.0.1.
"""

import asyncio
import json
import os
import re
import resource
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import count
from threading import Thread

from aiohttp import web
from msgspec import Struct, field
from msgspec.structs import asdict

from aegish_dist.core.model import HTTP_FORMATS
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import VerdictRecord
from aegish_dist.errors import ConfigError, InputError
from aegish_dist.simulator.behaviour import Replay, SimulatedModel
from aegish_dist.simulator.bill import Bill
from aegish_dist.simulator.config import HOST, LOOPBACK_NAMES, SimulatorConfig
from aegish_dist.simulator.dialect import (
    UNLIMITED,
    UNREADABLE,
    ErrorAnswer,
    Exchange,
    dialect_of,
    json_response,
)

_DIALECTS = tuple(map(dialect_of, HTTP_FORMATS))
_PORT = re.compile(r":[0-9]{1,5}$")


class Stats(Struct):
    """Counters since the start, served at `/stats`; the simulator alone writes them."""

    bill: Bill
    # Valid requests per model, faults included.
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    throttled: int = 0
    in_flight: int = 0
    in_flight_max: int = 0

    def as_dict(self) -> JsonObject:
        return asdict(self) | {"bill": self.bill.as_dict()}


class Simulator:
    def __init__(self, config: SimulatorConfig, recordings: Iterable[VerdictRecord] = ()) -> None:
        self.config = config
        self.stats = Stats(Bill(config.price, config.tariffs))
        self._replay = Replay(recordings) or None
        self._models: dict[str, SimulatedModel] = {}
        self._hosts = LOOPBACK_NAMES | {host.lower() for host in config.hosts}
        self._process = os.urandom(6).hex()
        self._serial = count(1)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # A web page could otherwise reach it by a name of its own that resolves to 127.0.0.1.
        if _PORT.sub("", request.headers.get("Host", "")).lower() not in self._hosts:
            return json_response(421, {"error": {"message": "this is not the host you named"}}, {})
        for dialect in _DIALECTS:
            model = dialect.route(request.path)
            if model is not None:
                break
        else:
            return await self.serve_other(request)

        if request.method != "POST":
            message = f"{request.method} is not allowed"
            return json_response(405, {"error": {"message": message}}, {})

        exchange = Exchange(request, dialect, self.new_id())
        stats = self.stats
        stats.in_flight += 1
        stats.in_flight_max = max(stats.in_flight_max, stats.in_flight)
        try:
            return await self._complete(exchange, model)
        finally:
            stats.in_flight -= 1

    async def serve_other(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request that is no call of a model."""
        if request.path == "/health":
            return json_response(200, {"status": "ok"}, {})
        if request.path == "/stats":
            return json_response(200, self.stats.as_dict(), {})
        message = f"nothing is served at {request.path}"
        return json_response(404, {"error": {"message": message}}, {})

    def new_id(self) -> str:
        return f"{self._process}{next(self._serial):010x}"

    async def _complete(self, exchange: Exchange, path_model: str) -> web.StreamResponse:
        content = await exchange.request.read()
        if not exchange.is_authorised:
            return exchange.refuse(ErrorAnswer(ErrorClass.AUTH), path_model, UNLIMITED)
        try:
            chat = exchange.dialect.read(_json_object(content), path_model)
        except InputError as error:
            refused = ErrorAnswer(ErrorClass.BAD_REQUEST, error.what, error.field)
            return exchange.refuse(refused, path_model, UNLIMITED)

        model = self.model(chat.model)
        self.stats.requests[chat.model] += 1
        throttled = model.admit(asyncio.get_running_loop().time())
        if throttled is not None:
            self.stats.throttled += 1
            return exchange.refuse(throttled, chat.model, model.allowance)

        response = model.respond(chat)
        if response.fault is not None:
            self.stats.faults[response.fault] += 1
        if response.outcome is None:
            await asyncio.sleep(model.faults.hang_s)
            return await exchange.break_off(b"", reset=True)

        if isinstance(response.outcome, ErrorAnswer):
            return exchange.refuse(response.outcome, chat.model, model.allowance)
        if latency_s := model.latency_s(response, asyncio.get_running_loop().time()):
            await asyncio.sleep(latency_s)
        # Charged before it is sent: what a fault hides from the client was computed all the same.
        readable = response.fault not in UNREADABLE
        self.stats.bill.charge(chat.model, response.outcome.usage, readable=readable)
        return await exchange.deliver(response.outcome, model.allowance, response.fault)

    def model(self, name: str) -> SimulatedModel:
        if name not in self._models:
            now_s = asyncio.get_running_loop().time()
            self._models[name] = SimulatedModel(
                name=name,
                config=self.config,
                replay=self._replay,
                now_s=now_s,
            )

        return self._models[name]


def _json_object(content: bytes) -> JsonObject:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError("The request body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise InputError("The request body is not a JSON object.")
    return body


# Room for a whole fleet that connects at the same moment; the kernel caps it further.
_BACKLOG = 4096
# Hanging calls must not hold up the end.
_SHUTDOWN_S = 0.05


class SimulatorServer(Struct, frozen=True):
    port: int  # TCP port on 127.0.0.1
    stats: Stats  # its live counters; only to be read

    @property
    def url(self) -> str:
        """Root of the provider's API, without a trailing slash."""
        return f"http://{HOST}:{self.port}"


@asynccontextmanager
async def serving(simulator: Simulator) -> AsyncIterator[SimulatorServer]:
    """Run a simulated provider in the running loop; the end closes calls in flight, too."""
    port = simulator.config.port
    # Cancellation on disconnect ends a hanging call as soon as its client gives up.
    server = web.Server(simulator.handle, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError as error:
            problem = f"cannot listen on {HOST}:{port}: {error.strerror}"
            advice = (
                "use the simulator that may run there, or choose another port, 0 for a free one"
            )
            raise ConfigError(f"{problem}; {advice}") from error
        yield SimulatorServer(site.port, simulator.stats)
    finally:
        await runner.cleanup()


def run_forever(simulator: Simulator, on_ready: Callable[[SimulatorServer], None]) -> None:
    """Run a simulated provider until SIGINT or SIGTERM, then return."""

    async def run() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        async with serving(simulator) as server:
            on_ready(server)
            await stopped.wait()

    # As many file descriptors as the process may have: the usual 1,024 are one per call.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run())


@contextmanager
def simulator_thread(simulator: Simulator) -> Iterator[SimulatorServer]:
    """Run a simulated provider in a thread with a loop of its own."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        stack = AsyncExitStack()
        thread = Thread(target=loop.run_forever, name="simulator")
        thread.start()
        try:
            entering = stack.enter_async_context(serving(simulator))
            yield asyncio.run_coroutine_threadsafe(entering, loop).result()
        finally:
            asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
