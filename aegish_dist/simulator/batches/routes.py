"""The parts that the batch interfaces of all dialects share: endpoints, routes, replies."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from re import Match, Pattern
from typing import Any

from aiohttp import StreamReader

from aegish_dist.simulator.batch_plan import Endpoint
from aegish_dist.simulator.batches.store import BatchStore
from aegish_dist.simulator.dialect import ErrorAnswer
from aegish_dist.simulator.exchange import Exchange


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
