"""The requests of the batch interfaces: route, key, response."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import cast

from aiohttp import web

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.wire import HTTP_FORMATS, WireFormat
from aegish_dist.simulator.batches.interface import BatchCall, BatchRoute, CallFaults
from aegish_dist.simulator.batches.lifecycle import BatchRunner, BatchStore
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.bill import Bill
from aegish_dist.simulator.config import SimulatorConfig
from aegish_dist.simulator.dialect import UNLIMITED, ErrorAnswer, Exchange, dialect_of

_ROUTES: dict[WireFormat, tuple[BatchRoute, ...]] = {
    wire: cast(
        tuple[BatchRoute, ...], import_module(f"aegish_dist.simulator.batches.{wire}").ROUTES
    )
    for wire, api in HTTP_FORMATS.items()
    if api.batches
}


class BatchService:
    """Handles every request about batches of one simulated provider."""

    def __init__(
        self, config: SimulatorConfig, model: Callable[[str], SimulatedModel], bill: Bill
    ) -> None:
        self._require_key = config.require_key
        self._runner = BatchRunner(config.seed, config.batches, model, bill)
        self._faults = CallFaults(config.seed, config.batches)
        self._stores = {
            wire: BatchStore(wire, config.batches, self._runner, config.seed) for wire in _ROUTES
        }

    @property
    def faults(self) -> Counter[str]:
        """Faults of requests about batches so far, by `ENDPOINT.FAULT`."""
        return self._faults.counts

    async def handle(self, request: web.BaseRequest, id: str) -> web.StreamResponse | None:
        """Answer one HTTP request; None when it is not about batches."""
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
        if not begun and not call.exchange.is_authorised(self._require_key):
            return call.exchange.refuse(ErrorAnswer(ErrorClass.AUTH), "", UNLIMITED)
        carry_out = partial(route.handle, call)
        return await self._faults.serve(call.exchange, route.endpoint, carry_out)
