"""Faults of the requests about batches: before they are carried out, or after.

The parts that the batch interfaces of all dialects share: endpoints, routes, replies.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from re import Match, Pattern
from typing import Any

from aiohttp import StreamReader, web

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.simulator.batches.lifecycle import BatchStore
from aegish_dist.simulator.chance import draw
from aegish_dist.simulator.config import BatchPlan, CallFault, Endpoint
from aegish_dist.simulator.dialect import (
    UNLIMITED,
    Call,
    ErrorAnswer,
    Exchange,
    encode,
    json_response,
)


@dataclass(frozen=True, slots=True)
class BatchReply:
    """A response without a fault."""

    body: dict[str, Any] | bytes
    """JSON, or the bytes of a file."""
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class BatchCall:
    """A request about batches, with the store that it is about."""

    exchange: Exchange
    """The request, with its dialect and its identity."""
    store: BatchStore
    found: Match[str]

    @property
    def now_s(self) -> float:
        """Unix time in seconds."""
        return time.time()

    @property
    def query(self) -> Mapping[str, str]:
        """Parameters of the query."""
        return self.exchange.request.query

    def header(self, name: str) -> str:
        """Return a header of the request; empty when it has none of the name."""
        return self.exchange.request.headers.get(name, "")

    @property
    def body(self) -> StreamReader:
        """Body, not read yet; any size."""
        return self.exchange.request.content


@dataclass(frozen=True, slots=True)
class BatchRoute:
    """One kind of request of a dialect."""

    method: str
    path: Pattern[str]
    endpoint: Endpoint
    handle: Callable[[BatchCall], Awaitable[BatchReply | ErrorAnswer]]


async def read_body(stream: StreamReader, limit: int) -> bytes | None:
    """Return the whole of a body, or None when it has more bytes than the limit."""
    content = bytearray()
    async for chunk in stream.iter_any():
        content += chunk
        if len(content) > limit:
            return None
    return bytes(content)


def json_object(content: bytes | None) -> dict[str, Any] | None:
    """Return a JSON object, or None for anything else."""
    try:
        body = json.loads(content or b"")
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def number_in(given: str | None, usual: int, most: int) -> int:
    """Read a number of a query or a header.

    Args:
        given: Its text; None, or a text that is no number, for the usual one.
    """
    # Python refuses to read thousands of digits.
    is_number = given is not None and given.isdecimal() and len(given) < 19
    return max(1, min(int(given), most)) if given and is_number else usual


def timestamp(unix_s: float) -> str:
    """Write a moment in the form of RFC 3339.

    Args:
        unix_s: Unix time in seconds.
    """
    moment = datetime.fromtimestamp(unix_s, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


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
