"""Faults of the requests about batches: before they are carried out, or after."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.simulator.batch_plan import BatchPlan, CallFault, Endpoint
from aegish_dist.simulator.batches.routes import BatchReply
from aegish_dist.simulator.chance import draw
from aegish_dist.simulator.dialect import UNLIMITED, Call, ErrorAnswer
from aegish_dist.simulator.exchange import Exchange, encode, json_response

_REFUSALS = {
    CallFault.RATE_LIMIT: ErrorClass.RATE_LIMIT,
    CallFault.SERVER_ERROR: ErrorClass.SERVER,
    CallFault.OVERLOADED: ErrorClass.OVERLOADED,
    CallFault.AUTH: ErrorClass.AUTH,
    CallFault.QUOTA: ErrorClass.QUOTA,
}


class CallFaults:
    """Chooses the fault of each request, and commits it."""

    def __init__(self, seed: int, plan: BatchPlan) -> None:
        self.counts: Counter[str] = Counter()
        self._seed = seed
        self._plan = plan
        self._served: Counter[Endpoint] = Counter()

    async def serve(
        self,
        exchange: Exchange,
        endpoint: Endpoint,
        carry_out: Callable[[], Awaitable[BatchReply | ErrorAnswer]],
    ) -> web.StreamResponse:
        """Carry out a request and respond, or do as its fault says."""
        fault = self._next(endpoint)
        if fault is not None:
            self.counts[f"{endpoint}.{fault}"] += 1
        if fault in _REFUSALS:
            wait_s = self._plan.retry_after_s if fault is CallFault.RATE_LIMIT else None
            error = ErrorAnswer(_REFUSALS[fault], retry_after_s=wait_s)
            return exchange.refuse(error, "this model", UNLIMITED)
        if fault is CallFault.RESET:
            return await exchange.break_off(b"", reset=True)
        reply = await carry_out()
        if isinstance(reply, ErrorAnswer):
            return exchange.refuse(reply, "", UNLIMITED)
        return await self._respond(exchange, reply, fault)

    def _next(self, endpoint: Endpoint) -> CallFault | None:
        place = self._served[endpoint]
        self._served[endpoint] += 1
        luck = draw(self._seed, "batch call", endpoint, str(place)).luck
        return self._plan.call_fault(endpoint, place, luck)

    async def _respond(
        self, exchange: Exchange, reply: BatchReply, fault: CallFault | None
    ) -> web.StreamResponse:
        match fault:
            case CallFault.LATE_ERROR:
                return exchange.refuse(ErrorAnswer(ErrorClass.SERVER), "", UNLIMITED)
            case CallFault.HANG | CallFault.LOST:
                await asyncio.sleep(self._plan.hang_s if fault is CallFault.HANG else 0)
                return await exchange.break_off(b"", reset=True)
            case CallFault.TRUNCATED:
                return await exchange.break_off(_content(reply), reset=False)
            case CallFault.MALFORMED:
                content = _content(reply)
                return web.Response(body=content[: len(content) // 2], headers=reply.headers)
            case _:
                return _response(exchange, reply)


def _response(exchange: Exchange, reply: BatchReply) -> web.Response:
    common = exchange.dialect.headers(UNLIMITED, Call(exchange.id, time.time()))
    headers = common | dict(reply.headers)
    if isinstance(reply.body, bytes):
        return web.Response(status=reply.status, body=reply.body, headers=headers)
    return json_response(reply.status, reply.body, headers)


def _content(reply: BatchReply) -> bytes:
    return reply.body if isinstance(reply.body, bytes) else encode(reply.body).encode()
