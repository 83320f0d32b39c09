"""Everything that all batch interfaces need of HTTP: small calls, one large upload, and lines."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

import aiohttp
from yarl import URL

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.errors import ProviderError
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.exchange import (
    MAX_BODY_BYTES,
    MaskedReader,
    Reply,
    Route,
    exchange,
    stream,
)

CALL_LIMIT_S = 60.0
"""Deadline of a call without an upload, and of each piece of the results."""
UPLOAD_BYTES_PER_S = 128 * 1024
MAX_REPLY_BYTES = 8 * 2**20
"""Larger answers to a small call are not read: a page of a list takes some hundred kilobytes."""
MAX_LINE_BYTES = MAX_BODY_BYTES + 2**14
"""Longest line of results: the longest answer to a live call, and its envelope."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Transfer:
    """The way to one provider, with one key."""

    def __init__(
        self, session: aiohttp.ClientSession, route: Route, base_url: str, key: str | None
    ) -> None:
        """Prepare the way.

        Args:
            route: The route of live calls, of which headers and proxy are taken.
        """
        self._session = session
        self._route = route
        self.base_url = URL(base_url)
        """Root of the API."""
        self._read = MaskedReader(key)

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Mapping[str, object]:
        """Make a small call; return the JSON object of its answer.

        Args:
            body: Sent as JSON; None sends none.

        Raises:
            ProviderError: There was no answer, or an error.
        """
        sent = None if body is None else aiohttp.BytesPayload(json.dumps(body).encode("ascii"))
        url = self.url(path).with_query(query or {})
        return self.object(await self._reply(self._to(url, CALL_LIMIT_S), sent, method))

    async def upload(self, url: URL, body: aiohttp.Payload, headers: Mapping[str, str]) -> Reply:
        """Post a body of any length; return a successful response.

        Args:
            body: The body, whose length bounds the time that it may take.

        Raises:
            ProviderError: There was no answer, or an error.
        """
        route = self._to(url, CALL_LIMIT_S + (body.size or 0) / UPLOAD_BYTES_PER_S)
        return await self._reply(replace(route, headers={**route.headers, **headers}), body, "POST")

    async def lines(self, url: URL) -> AsyncGenerator[bytes | None, None]:
        """Stream the lines of a file, however long it is.

        Yields:
            Each line that is not blank; None in place of one longer than `MAX_LINE_BYTES`.

        Raises:
            ProviderError: There was no answer, an error, or the connection broke.
        """
        rest, too_long = b"", False
        async with aclosing(stream(self._session, self._to(url, CALL_LIMIT_S))) as replies:
            async for reply in replies:
                self._check(reply)
                *whole, rest = (rest + (reply.body or b"")).split(b"\n")
                for line in whole:
                    if too_long or line.strip():
                        yield None if too_long or len(line) > MAX_LINE_BYTES else line
                    too_long = False
                if len(rest) > MAX_LINE_BYTES:
                    rest, too_long = b"", True
        if too_long or rest.strip():
            yield None if too_long else rest

    def url(self, path: str) -> URL:
        """Return the address of a path below the API's root."""
        return URL(f"{self.base_url}{path}")

    def payload(self, line: bytes) -> Mapping[str, object]:
        """Return the JSON object of a line without the key; an empty one for other JSON."""
        return lenient.mapping(self._read.payload(line))

    def object(self, reply: Reply) -> Mapping[str, object]:
        """Return the JSON object of a successful response.

        Raises:
            ProviderError: It is too long, or no JSON.
        """
        if reply.body is None:
            raise lenient.malformed(f"the provider's answer exceeds {MAX_REPLY_BYTES} bytes")
        return self.payload(reply.body or b"{}")

    async def _reply(self, route: Route, body: aiohttp.Payload | None, method: str) -> Reply:
        reply = await exchange(self._session, route, body, method=method, cap=MAX_REPLY_BYTES)
        self._check(reply)
        return reply

    def _check(self, reply: Reply) -> None:
        """Raise the error of a response that is one."""
        if reply.succeeded:
            return
        payload = self._read.error_payload(reply)
        withheld = failures.settle(reply.status, payload, self._read.headers(reply))
        # A filter withholds answers to requests, and this was none.
        raise ProviderError(
            f"HTTP {reply.status}: {withheld.refusal}",
            error_class=ErrorClass.BAD_REQUEST,
            status=reply.status,
        )

    def _to(self, url: URL, time_limit_s: float) -> Route:
        if _origin(url) != _origin(self.base_url):
            # The key would travel along.
            raise lenient.malformed("the provider names an address on another host")
        return replace(self._route, url=url, time_limit_s=time_limit_s)


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port


def checked_name(value: object, prefix: str = "") -> str:
    """Return a provider's name of a batch or a file, which becomes part of an address."""
    name = value if isinstance(value, str) and len(value) <= lenient.LABEL_LENGTH else ""
    if not (name.startswith(prefix) and _NAME.fullmatch(name.removeprefix(prefix))):
        raise lenient.malformed("the provider's answer holds no usable name")
    return name
