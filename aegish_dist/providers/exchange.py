"""One attempt over HTTP: one request, one deadline, one capped read.

No redirect, no second try, and no key in an error.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from functools import partial

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from msgspec import Struct
from yarl import URL

from aegish_dist.core.isolation import Shares
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.secrets import KeyMask
from aegish_dist.core.text import clean_text
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.contract import Decode, Observer, RequestTemplate
from aegish_dist.providers.failures import rate_hint
from aegish_dist.providers.lenient import Headers

# Larger answers are not read to the end: a judgement takes a few hundred bytes.
MAX_BODY_BYTES = 2**20
# Bytes of the answers of one provider that a process holds at most, while they come and until they
# are stored; as text they may take four times as much.
ANSWERS_BYTES = 32 * 2**20
SMALL_BYTES = 2**14  # answers up to this size are not counted
# A host that is down lets no call wait for so long: one whose connection breaks later was probably
# worked on.
LONG_WAIT_S = 10.0


class Reply(Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes | None  # None when it exceeds the cap

    @property
    def succeeded(self) -> bool:
        return 200 <= self.status < 300


class Route(Struct, frozen=True):
    """Where and how a client's requests travel."""

    url: URL
    headers: Headers
    time_limit_s: float  # deadline of one attempt, from looking up the host to the last byte
    proxy: URL | None = None
    proxy_headers: Headers | None = None

    def __repr__(self) -> str:
        """Name no header: some hold a key."""
        return f"Route({self.url}, time_limit_s={self.time_limit_s}, proxy={self.proxy})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Name none to rich either, which asks a Struct for its fields."""
        return [("url", self.url), ("time_limit_s", self.time_limit_s), ("proxy", self.proxy)]


class MaskedReader:
    """Reads responses without the key, which the endpoint may echo."""

    def __init__(self, key: str | None) -> None:
        self._mask = KeyMask(key)

    def headers(self, reply: Reply) -> Headers:
        return _MaskedHeaders(reply.headers, self._mask)

    def payload(self, body: bytes) -> object:
        return lenient.parse(body, self._mask.value)

    def error_payload(self, reply: Reply) -> object:
        """Return the JSON of an error response, None for a proxy's HTML and the like."""
        try:
            return self.payload(reply.body or b"")
        except ProviderError:
            return None


class _MaskedHeaders(Mapping[str, str]):
    """Response headers without the key, masked when they are read: few of them are."""

    def __init__(self, headers: Headers, mask: KeyMask) -> None:
        self._headers = headers
        self._mask = mask

    def __getitem__(self, name: str) -> str:
        return clean_text(self._mask.text(self._headers[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


async def exchange(
    session: aiohttp.ClientSession,
    route: Route,
    body: aiohttp.Payload | None = None,
    *,
    method: str = "POST",
    cap: int = MAX_BODY_BYTES,
    room: Callable[[int], bool] = lambda _: True,
) -> Reply:
    """Send a request and read its response up to a cap; `ProviderError`: there was none.

    Args:
        room: Says of the bytes of the response so far, headers included, whether there is room.
    """
    began_s = time.monotonic()
    try:
        async with (
            asyncio.timeout(route.time_limit_s),
            _request(session, route, method, body) as response,
        ):
            content = await _read_capped(response, cap, room)
            return Reply(response.status, response.headers, content)
    except (aiohttp.ClientError, OSError) as error:
        failure = _failure(error, route, began_s)

    # Raised out here because aiohttp's errors hold the request's headers, the key among them:
    # inside the handler they would hang on as context.
    raise failure


async def stream(session: aiohttp.ClientSession, route: Route) -> AsyncGenerator[Reply, None]:
    """Get a long response piece by piece; the route's deadline is that of each piece.

    Yields:
        Status and headers with each piece of the body as it comes; all of it for an error.
    """
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(route.time_limit_s):
            response = await _request(session, route, "GET", None)
        async with response:
            if not 200 <= response.status < 300:
                async with asyncio.timeout(route.time_limit_s):
                    body = await _read_capped(response, MAX_BODY_BYTES)
                yield Reply(response.status, response.headers, body)
                return
            while True:
                async with asyncio.timeout(route.time_limit_s):
                    piece = await response.content.readany()
                if not piece:
                    return
                yield Reply(response.status, response.headers, piece)
    except (aiohttp.ClientError, OSError) as error:
        failure = _failure(error, route, began_s)

    raise failure  # out here, as in `exchange`


def _request(
    session: aiohttp.ClientSession,
    route: Route,
    method: str,
    body: aiohttp.Payload | None,
) -> "aiohttp.client._RequestContextManager":
    return session.request(
        method,
        route.url,
        data=body,
        headers=route.headers,
        proxy=route.proxy,
        proxy_headers=route.proxy_headers,
        # A redirect would carry the key to another host.
        allow_redirects=False,
    )


async def _read_capped(
    response: aiohttp.ClientResponse, cap: int, room: Callable[[int], bool] = lambda _: True
) -> bytes | None:
    headers = sum(len(name) + len(value) for name, value in response.raw_headers)
    chunks: list[bytes] = []
    size = 0
    while True:
        if not room(headers + size):
            response.close()
            raise lenient.malformed("the provider sends more at once than there is room for")
        if size > cap:
            response.close()
            return None
        chunk = await response.content.readany()
        if not chunk:
            return b"".join(chunks)
        size += len(chunk)
        chunks.append(chunk)


def _failure(error: Exception, route: Route, began_s: float) -> ProviderError:
    # aiohttp's own timeouts, of which only that of connecting is set, are both kinds of error.
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
        words = f"no answer within {route.time_limit_s:g} s"
        return ProviderError(words, error_class=ErrorClass.DEADLINE)

    # Only a connector's own words are safe to repeat: others may quote a URL or a header.
    words = str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__
    at = route.proxy or route.url
    unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    if unsent and not isinstance(error, aiohttp.ClientSSLError):
        words = f"nothing answers at {at.origin()}"
        if route.proxy is not None:
            words = f"nothing answers at the proxy {at.origin()}"

    return ProviderError(
        f"connection failed: {words}",
        error_class=ErrorClass.CONNECTION,
        cut=time.monotonic() - began_s >= LONG_WAIT_S and not unsent,
    )


PIECE_BYTES = 2**18  # bytes that are handed to the connection at once


class Body(aiohttp.Payload):
    """A body of known length that is made while it is sent: calls in flight hold a small part."""

    _autoclose = True

    def __init__(self, pieces: Callable[[], Iterable[bytes]], size: int) -> None:
        super().__init__(pieces)
        self._size = size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return it as a text; for debugging, because all of it is made."""
        return b"".join(self._value()).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send it, and wait whenever the connection is full."""
        gathered = bytearray()
        for piece in self._value():
            gathered += piece
            if len(gathered) >= PIECE_BYTES:
                await writer.write(bytes(gathered))
                gathered.clear()
        await writer.write(bytes(gathered))


class HttpClient:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        decode: Decode,
        template_of: Callable[[int], RequestTemplate],
        route: Route,
        key: str | None,
        *,
        observe: Observer | None,
        answers: Shares[asyncio.Task[object]],
    ) -> None:
        self._session = session
        self._provider = str(route.url.origin())
        self._answers = answers
        self._decode = decode
        self._template_of = template_of
        self.route = route
        self._observe = observe
        self._read = MaskedReader(key)

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        parts = self._template_of(epoch).parts(command)
        body = Body(lambda: parts, sum(map(len, parts)))
        try:
            completion = await self._answer(body)
        except BaseException:
            self._room(0)
            raise

        self._room(len(completion.text or ""))
        return completion

    def _room(self, size: int) -> bool:
        """Count an answer as its provider's until the task that asked for it ends: it is stored."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # nosec B101 # a coroutine runs in one
        if size <= SMALL_BYTES:
            self._answers.release(self._provider, task)
            return True
        task.add_done_callback(partial(self._answers.release, self._provider))
        return self._answers.hold(self._provider, task, size)

    async def _answer(self, body: Body) -> Completion:
        reply = await exchange(self._session, self.route, body, room=self._room)
        hint = rate_hint(reply.headers) if self._observe else None
        if self._observe and hint:
            self._observe(hint)
        headers = self._read.headers(reply)
        if not reply.succeeded:
            return failures.settle(reply.status, self._read.error_payload(reply), headers)
        if reply.body is None:
            raise lenient.malformed(f"the provider's answer exceeds {MAX_BODY_BYTES} bytes")
        return self._decode(self._read.payload(reply.body), headers)
