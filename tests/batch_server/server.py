"""The product's simulated provider, which also answers requests about batches."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from msgspec import Struct

from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.simulator.config import MAX_BYTES, SimulatorConfig
from aegish_dist.simulator.dialect import (
    UNLIMITED,
    ErrorAnswer,
    Exchange,
    dialect_of,
    json_response,
)
from aegish_dist.simulator.server import Simulator
from tests.batch_server import anthropic, openai
from tests.batch_server.batches import BatchCall, BatchStore, Reply, UnknownNameError
from tests.batch_server.bill import BatchBill

Replies = Callable[[BatchCall], Awaitable[Reply]]


class BatchPlan(Struct, frozen=True, forbid_unknown_fields=True):
    duration: str = "constant:2"  # seconds from start to end


class BatchScenario(SimulatorConfig, frozen=True, forbid_unknown_fields=True):
    batches: BatchPlan = BatchPlan()


def read_scenario(path: Path) -> BatchScenario:
    return checked(parse_toml(read_text(path, MAX_BYTES)), BatchScenario)


class BatchSimulator(Simulator):
    def __init__(self, scenario: BatchScenario) -> None:
        super().__init__(scenario)
        self.bill = BatchBill(scenario.price, scenario.tariffs)
        self.stats.bill = self.bill
        # Any root may precede a path.
        self._routes = [
            (method, re.compile(f"(?:/.*)?{path}"), reply, wire, store)
            for wire, module in ((WireFormat.OPENAI, openai), (WireFormat.ANTHROPIC, anthropic))
            for store in [BatchStore(scenario.batches.duration, self.model, self.bill)]
            for method, path, reply in module.ROUTES
        ]

    async def serve_other(self, request: web.BaseRequest) -> web.StreamResponse:
        for method, path, reply, wire, store in self._routes:
            found = path.fullmatch(request.path)
            if found is not None and method == request.method:
                exchange = Exchange(request, dialect_of(wire), self.new_id())
                call = BatchCall(request, store, found.groupdict().get("name", ""))
                return await _answer(exchange, reply, call)
        return await super().serve_other(request)


async def _answer(exchange: Exchange, reply: Replies, call: BatchCall) -> web.StreamResponse:
    if not exchange.is_authorised:
        return exchange.refuse(ErrorAnswer(ErrorClass.AUTH), "", UNLIMITED)
    try:
        body = await reply(call)
    except InputError as error:
        return exchange.refuse(ErrorAnswer(ErrorClass.BAD_REQUEST, error.what), "", UNLIMITED)
    except UnknownNameError as error:
        return exchange.refuse(ErrorAnswer(ErrorClass.NOT_FOUND, str(error)), "", UNLIMITED)
    return web.Response(body=body) if isinstance(body, bytes) else json_response(200, body, {})
