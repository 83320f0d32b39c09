"""One attempt over HTTP: one POST, one deadline, one capped read; never a second try."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from aegish_dist.core.completion import Completion
from aegish_dist.core.secrets import KeyMask
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.errors import ProviderError
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.contract import Codec, Observer, RequestTemplate
from aegish_dist.providers.rate_headers import rate_hint

MAX_BODY_BYTES = 2**20
"""Larger answers are not read to the end: a judgement takes a few hundred bytes."""
LONG_WAIT_S = 10.0
"""A host that is down lets no call wait for so long: one whose connection breaks later was probably
worked on."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as read."""

    status: int
    """HTTP status."""
    headers: Mapping[str, str]
    """Looked up by name in any case."""
    body: bytes | None
    """None when it exceeds `MAX_BODY_BYTES`."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where and how a client's requests travel."""

    url: URL
    """The endpoint."""
    headers: Mapping[str, str] = field(repr=False)
    """Request headers, the key among them."""
    time_limit_s: float
    """Deadline of one attempt, from looking up the host to the last byte."""
    proxy: URL | None = None
    """The proxy to go through."""
    proxy_headers: Mapping[str, str] | None = field(default=None, repr=False)
    """Credentials for the proxy."""


class _Body(aiohttp.Payload):
    """A request's body, put together only to be sent: calls in flight hold its small part each."""

    _autoclose = True

    def __init__(self, parts: tuple[bytes, ...]) -> None:
        super().__init__(parts)
        self._size = sum(len(part) for part in parts)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await writer.write(b"".join(self._value))


class _MaskedHeaders(Mapping[str, str]):
    """Response headers without the key, masked when they are read: few of them are."""

    def __init__(self, headers: Mapping[str, str], mask: KeyMask) -> None:
        self._headers = headers
        self._mask = mask

    def __getitem__(self, name: str) -> str:
        return self._mask.text(self._headers[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class HttpClient:
    """A model behind a wire format, prepared for one run."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        codec: Codec,
        template_of: Callable[[int], RequestTemplate],
        route: Route,
        key: str | None,
        *,
        observe: Observer | None = None,
    ) -> None:
        self._session = session
        self._codec = codec
        self._template_of = template_of
        self.route = route
        """Where and how requests travel."""
        self._observe = observe
        self._mask = KeyMask(key)

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        """Make one attempt to have a command judged."""
        reply = await self._post(_Body(self._template_of(epoch).parts(command)))
        hint = rate_hint(reply.headers) if self._observe else None
        if self._observe and hint:
            self._observe(hint)
        headers = _MaskedHeaders(reply.headers, self._mask)
        if not 200 <= reply.status < 300:
            return failures.settle(reply.status, self._error_payload(reply), headers)
        if reply.body is None:
            raise lenient.malformed(f"the provider's answer exceeds {MAX_BODY_BYTES} bytes")
        return self._codec.decode(self._payload(reply.body), headers)

    async def _post(self, body: aiohttp.Payload) -> Reply:
        route, began_s = self.route, time.monotonic()
        try:
            async with (
                asyncio.timeout(route.time_limit_s),
                self._session.post(
                    route.url,
                    data=body,
                    headers=route.headers,
                    proxy=route.proxy,
                    proxy_headers=route.proxy_headers,
                    # A redirect would carry the key to another host.
                    allow_redirects=False,
                ) as response,
            ):
                return Reply(response.status, response.headers, await _read_capped(response))
        except aiohttp.ClientError as error:
            failure = _connection_error(error, time.monotonic() - began_s)
        except TimeoutError:
            failure = ProviderError(
                f"no answer within {route.time_limit_s:g} s", error_class=ErrorClass.DEADLINE
            )
        except OSError as error:
            failure = _connection_error(error, time.monotonic() - began_s)
        # Raised out here because aiohttp's errors hold the request's headers, the key among them:
        # inside the handlers they would hang on as context.
        raise failure

    def _error_payload(self, reply: Reply) -> object:
        """Return the JSON of an error response, None for a proxy's HTML and the like."""
        try:
            return self._payload(reply.body or b"")
        except ProviderError:
            return None

    def _payload(self, body: bytes) -> object:
        """Return the JSON of a body without the key, which the endpoint may echo."""
        payload = lenient.parse(body)
        try:
            return self._mask.value(payload)
        except RecursionError:  # the parser goes deeper than Python's own calls
            raise lenient.malformed("the provider's answer is nested too deeply") from None


async def _read_capped(response: aiohttp.ClientResponse) -> bytes | None:
    chunks = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            response.close()
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _connection_error(error: Exception, waited_s: float) -> ProviderError:
    # Only a connector's own words are safe to repeat: others may quote a URL or a header.
    words = str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__
    unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    return ProviderError(
        f"connection failed: {words}",
        error_class=ErrorClass.CONNECTION,
        cut=waited_s >= LONG_WAIT_S and not unsent,
    )
