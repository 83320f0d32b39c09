"""A simulated provider in a thread whose troubles begin and end at a word, and which counts calls.

It answers like the product's simulator and sells batches. Counted is each command, so that a call made twice shows.
"""

import asyncio
import json
import threading
from collections import Counter
from concurrent.futures import Future
from decimal import Decimal
from enum import StrEnum
from typing import Any, Self

from aiohttp import web

from aegish_dist.simulator.bill import Tariff
from aegish_dist.simulator.dialect import command_in, text_of
from tests.batch_server.server import BatchScenario, BatchSimulator
from tests.services import HOST

POLL_S = 0.02
TARIFF = Tariff(input=2, output=10)


class Trouble(StrEnum):
    """How the provider treats every call while the trouble lasts."""

    NONE = "none"
    SILENT = "silent"
    """Nothing is answered, calls in flight included; who still waits at the end is answered."""
    THROTTLED = "throttled"  # 429, come again in a second
    LONG_WAIT = "long wait"  # 429, come again in 301 seconds
    BROKEN = "broken"  # 503
    REDIRECTED = "redirected"  # 307 to another address
    KEY_REFUSED = "key refused"  # 401


REFUSALS: dict[Trouble, tuple[int, dict[str, str]]] = {
    Trouble.THROTTLED: (429, {"Retry-After": "1"}),
    Trouble.LONG_WAIT: (429, {"Retry-After": "301"}),
    Trouble.BROKEN: (503, {}),
    Trouble.REDIRECTED: (307, {"Location": "http://127.0.0.1:9/elsewhere"}),
    Trouble.KEY_REFUSED: (401, {}),
}
"""Status and headers of what is refused at once, which no provider charges for."""

Asked = tuple[str, str]


class Provider:
    def __init__(self) -> None:
        self.trouble = Trouble.NONE
        self.begun: Counter[Asked] = Counter()
        """Calls that the provider worked on, refused ones and those lost in silence excluded."""
        self.in_flight = 0  # calls that it works on now
        self.port = 0
        self._simulator: BatchSimulator
        self._thread = threading.Thread(target=self._run, name="provider", daemon=True)
        self._ready: Future[int] = Future()

    def reset(self, latency: str) -> None:
        """Forget all calls and be well from now on.

        Args:
            latency: Of each call, such as `uniform:0.2,0.5` in seconds.
        """
        self._simulator = BatchSimulator(BatchScenario(latency=latency, price=TARIFF))
        self.trouble = Trouble.NONE
        self.begun = Counter()

    @property
    def calls(self) -> int:
        """Calls and requests of batches that it worked on."""
        billed = self._simulator.stats.bill.as_dict()["models"].values()
        batched: int = sum(each["batch"]["requests"] for each in billed)
        return self.begun.total() + batched

    @property
    def billed_usd(self) -> Decimal:
        return Decimal(self._simulator.stats.bill.as_dict()["usd"])

    @property
    def paid_twice(self) -> int:
        return sum(count - 1 for count in self.begun.values() if count > 1)

    def __enter__(self) -> Self:
        self.reset("constant:0")
        self._thread.start()
        self.port = self._ready.result(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.05)
        await runner.setup()
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        self._ready.set_result(site.port)
        await self._ended.wait()
        await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if not request.path.endswith(("/completions", "/messages")):
            return await self._simulator.handle(request)  # of batches
        asked = request.path, _command(await request.read())
        if self.trouble in REFUSALS:
            status, headers = REFUSALS[self.trouble]
            return web.json_response(
                {"error": {"message": self.trouble}}, status=status, headers=headers
            )
        self.begun[asked] += 1
        self.in_flight += 1
        try:
            response = await self._simulator.handle(request)
            while self.trouble is Trouble.SILENT:
                await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            if self.trouble is Trouble.SILENT:
                self.begun[asked] -= 1
            raise
        finally:
            self.in_flight -= 1
        return response


def _command(content: bytes) -> str:
    messages: list[dict[str, Any]] = json.loads(content)["messages"]
    return command_in(text_of(messages[-1]["content"]) or "")
