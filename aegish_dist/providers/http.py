"""One attempt over HTTP: one POST, one deadline, one capped read; never a second try."""

from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from aegish_dist.core.completion import Completion
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.contract import Codec, Observer, RequestTemplate
from aegish_dist.providers.exchange import MAX_BODY_BYTES, MaskedReader, Route, exchange
from aegish_dist.providers.rate_headers import rate_hint


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
        self._read = MaskedReader(key)

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        """Make one attempt to have a command judged."""
        body = _Body(self._template_of(epoch).parts(command))
        reply = await exchange(self._session, self.route, body)
        hint = rate_hint(reply.headers) if self._observe else None
        if self._observe and hint:
            self._observe(hint)
        headers = self._read.headers(reply)
        if not reply.succeeded:
            return failures.settle(reply.status, self._read.error_payload(reply), headers)
        if reply.body is None:
            raise lenient.malformed(f"the provider's answer exceeds {MAX_BODY_BYTES} bytes")
        return self._codec.decode(self._read.payload(reply.body), headers)
