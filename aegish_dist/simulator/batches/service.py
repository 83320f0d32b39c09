"""The requests of the batch interfaces: route, key, response."""

import time
from collections.abc import Callable
from importlib import import_module
from typing import cast

from aiohttp import web

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.wire import HTTP_FORMATS, WireFormat
from aegish_dist.simulator.batches.lifecycle import BatchRunner
from aegish_dist.simulator.batches.routes import BatchCall, BatchReply, BatchRoute
from aegish_dist.simulator.batches.store import BatchStore
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.config import SimulatorConfig
from aegish_dist.simulator.dialect import UNLIMITED, Call, ErrorAnswer, dialect_of
from aegish_dist.simulator.exchange import Exchange, json_response

_ROUTES: dict[WireFormat, tuple[BatchRoute, ...]] = {
    wire: cast(
        tuple[BatchRoute, ...], import_module(f"aegish_dist.simulator.batches.{wire}").ROUTES
    )
    for wire in HTTP_FORMATS
}


class BatchService:
    """Handles every request about batches of one simulated provider."""

    def __init__(self, config: SimulatorConfig, model: Callable[[str], SimulatedModel]) -> None:
        self._config = config
        self._runner = BatchRunner(config.seed, model)
        self._stores = {
            wire: BatchStore(wire, config.batches, self._runner, config.seed) for wire in _ROUTES
        }

    async def handle(self, request: web.BaseRequest, id: str) -> web.StreamResponse | None:
        """Answer one HTTP request; None when it is not about batches.

        Args:
            request: The request.
            id: Hexadecimal digits that no other request has.
        """
        for wire, routes in _ROUTES.items():
            for route in routes:
                found = route.path.fullmatch(request.path)
                if found is not None and route.method == request.method:
                    exchange = Exchange(request, dialect_of(wire), id)
                    return await self._serve(route, BatchCall(exchange, self._stores[wire], found))
        return None

    async def close(self) -> None:
        """End what is still being answered."""
        await self._runner.close()

    async def _serve(self, route: BatchRoute, call: BatchCall) -> web.StreamResponse:
        # The address of an upload that was begun is a key in itself: clients send no other there.
        begun = call.query.get("upload_id") in call.store.uploads
        if not begun and not call.exchange.is_authorised(self._config.require_key):
            return call.exchange.refuse(ErrorAnswer(ErrorClass.AUTH), "", UNLIMITED)
        reply = await route.handle(call)
        if isinstance(reply, ErrorAnswer):
            return call.exchange.refuse(reply, "", UNLIMITED)
        return _response(reply, call.exchange)


def _response(reply: BatchReply, exchange: Exchange) -> web.Response:
    common = exchange.dialect.headers(UNLIMITED, Call(exchange.id, time.time()))
    headers = common | dict(reply.headers)
    if isinstance(reply.body, bytes):
        return web.Response(status=reply.status, body=reply.body, headers=headers)
    return json_response(reply.status, reply.body, headers)
