"""The requests of the batch interfaces: routes, keys, faults and replies.

The dialect of a wire format with batches has a tuple `ROUTES`: method, path, kind of request, and
the function that replies. Any root may precede a path. What a path names as `batch` or `file` is
the function's first argument; without it, the answer has the words that `MISSING` has for it.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from aiohttp import StreamReader, web
from msgspec import Struct, field

from aegish_dist.core.model import HTTP_FORMATS, WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.simulator.batch_lifecycle import (
    BatchRunner,
    BatchStore,
    SimulatedBatch,
    StoredFile,
    T,
    page,
)
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.bill import Bill
from aegish_dist.simulator.config import REFUSALS, CallFault, Endpoint, SimulatorConfig
from aegish_dist.simulator.dialect import (
    UNLIMITED,
    Call,
    ErrorAnswer,
    Exchange,
    dialect_of,
    encode,
    json_response,
)
from aegish_dist.simulator.personas import draw


class BatchService:
    """Handles every request about batches of one simulated provider."""

    def __init__(
        self, config: SimulatorConfig, model: Callable[[str], SimulatedModel], bill: Bill
    ) -> None:
        self.faults: Counter[str] = Counter()
        """Faults of requests about batches so far, by `ENDPOINT.FAULT`."""
        self._seed = config.seed
        self._plan = config.batches
        self._require_key = config.require_key
        self._runner = BatchRunner(config.seed, config.batches, model, bill)
        self._served: Counter[Endpoint] = Counter()
        self._routes = [
            (method, re.compile(rf"(?:/.*)?{path}"), endpoint, reply, store)
            for wire, api in HTTP_FORMATS.items()
            if api.batches
            for store in [BatchStore(wire, self._plan, self._runner, self._seed)]
            for method, path, endpoint, reply in _module(wire).ROUTES
        ]

    async def handle(self, request: web.BaseRequest, id: str) -> web.StreamResponse | None:
        """Answer one HTTP request; None when it is not about batches."""
        for method, path, endpoint, reply, store in self._routes:
            found = path.fullmatch(request.path)
            if found is not None and method == request.method:
                exchange = Exchange(request, dialect_of(store.wire), id)
                return await self._serve(endpoint, reply, BatchCall(exchange, store, found))
        return None

    async def close(self) -> None:
        await self._runner.close()

    async def _serve(
        self, endpoint: Endpoint, replies: "Replies", call: "BatchCall"
    ) -> web.StreamResponse:
        exchange = call.exchange
        # The address of an upload that was begun is a key in itself: clients send no other there.
        begun = call.request.query.get("upload_id") in call.store.uploads
        if not begun and not exchange.is_authorised(self._require_key):
            return exchange.refuse(ErrorAnswer(ErrorClass.AUTH), "", UNLIMITED)
        fault = self._next_fault(endpoint)
        if fault is not None:
            self.faults[f"{endpoint}.{fault}"] += 1
        if fault in REFUSALS:
            wait_s = self._plan.retry_after_s if fault is CallFault.RATE_LIMIT else None
            error = ErrorAnswer(REFUSALS[fault], retry_after_s=wait_s)
            return exchange.refuse(error, "this model", UNLIMITED)
        if fault is CallFault.RESET:
            return await exchange.break_off(b"", reset=True)
        try:
            reply = replies(*call.named(), call)
            reply = await reply if isinstance(reply, Awaitable) else reply
        except FileNotFoundError as error:  # no such batch or file
            reply = ErrorAnswer(ErrorClass.NOT_FOUND, str(error))
        if isinstance(reply, ErrorAnswer):
            return exchange.refuse(reply, "", UNLIMITED)
        whole = BatchReply(reply) if isinstance(reply, dict) else reply
        return await self._respond(exchange, whole, fault)

    def _next_fault(self, endpoint: Endpoint) -> CallFault | None:
        place = self._served[endpoint]
        self._served[endpoint] += 1
        luck = draw(self._seed, "batch call", endpoint, str(place)).luck
        return self._plan.call_fault(endpoint, place, luck)

    async def _respond(
        self, exchange: Exchange, reply: "BatchReply", fault: CallFault | None
    ) -> web.StreamResponse:
        match fault:
            case CallFault.LATE_ERROR:
                return exchange.refuse(ErrorAnswer(ErrorClass.SERVER), "", UNLIMITED)
            case CallFault.HANG | CallFault.LOST:
                await asyncio.sleep(self._plan.hang_s if fault is CallFault.HANG else 0)
                return await exchange.break_off(b"", reset=True)
            case CallFault.TRUNCATED:
                return await exchange.break_off(reply.content, reset=False)
            case CallFault.MALFORMED:
                half = reply.content[: len(reply.content) // 2]
                return web.Response(body=half, headers=reply.headers)
        headers = exchange.dialect.headers(UNLIMITED, Call(exchange.id, time.time()))
        headers |= reply.headers
        if isinstance(reply.body, bytes):
            return web.Response(status=reply.status, body=reply.body, headers=headers)
        return json_response(reply.status, reply.body, headers)


class BatchReply(Struct, frozen=True):
    """A response without a fault: JSON, or the bytes of a file."""

    body: dict[str, Any] | bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else encode(self.body).encode()


Reply = BatchReply | dict[str, Any] | ErrorAnswer


class BatchCall(Struct, frozen=True):
    exchange: Exchange
    store: BatchStore
    found: re.Match[str]

    @property
    def request(self) -> web.BaseRequest:
        return self.exchange.request

    def named(self) -> tuple[SimulatedBatch | StoredFile, ...]:
        """Return the batch or the file that the path names, if it names one."""
        known: dict[str, Mapping[str, SimulatedBatch | StoredFile]]
        known = {"batch": self.store.batches, "file": self.store.files}
        ids = {kind: id for kind, id in self.found.groupdict().items() if kind in known}
        for kind, id in ids.items():
            if id not in known[kind]:
                raise FileNotFoundError(_module(self.store.wire).MISSING[kind].format(id=id))
        return tuple(known[kind][id] for kind, id in ids.items())


def _module(wire: WireFormat) -> Any:
    return import_module(f"aegish_dist.simulator.{wire}")


Replies = Callable[..., Reply | Awaitable[Reply]]
Route = tuple[str, str, Endpoint, Replies]


def listing(
    call: BatchCall,
    items: Iterable[T],
    body: Callable[[T, BatchCall], dict[str, Any]],
    limits: tuple[int, int],
    prefix: str,
    *,
    after: str = "after",
) -> dict[str, Any]:
    """Return a page of a list in the form that OpenAI and Anthropic share.

    `limits` are the usual and the greatest number of entries, `prefix` precedes names in queries.
    """
    query = call.request.query
    cursors = (query.get(name, "").removeprefix(prefix) for name in (after, "before_id"))
    found, more = page(items, number_in(query.get("limit"), *limits), *cursors)
    entries = [body(each, call) for each in found]
    ids = [entry["id"] for entry in entries] or [None]
    return {"data": entries, "has_more": more, "first_id": ids[0], "last_id": ids[-1]}


async def read_body(stream: StreamReader, limit: int) -> bytes | None:
    """Return the whole of a body, or None when it has more bytes than the limit."""
    content = bytearray()
    async for chunk in stream.iter_any():
        content += chunk
        if len(content) > limit:
            return None
    return bytes(content)


def json_object(content: bytes | None) -> dict[str, Any] | None:
    try:
        body = json.loads(content or b"")
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def number_in(given: str | None, usual: int, most: int) -> int:
    """Read a number of a query or a header; the usual one where it is missing or no number."""
    # Python refuses to read thousands of digits.
    is_number = given is not None and given.isdecimal() and len(given) < 19
    return max(1, min(int(given), most)) if given and is_number else usual


def timestamp(unix_s: float) -> str:
    """Write a Unix time in seconds in the form of RFC 3339."""
    moment = datetime.fromtimestamp(unix_s, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
