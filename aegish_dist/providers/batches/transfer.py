"""The seam between the pipeline and the batch interfaces, and the HTTP that all of these share.

A batch of 50,000 requests is 200 MB of nearly the same prompt. Its body exists nowhere as a whole:
its length is the sum of its requests', and each request is put together when its turn comes.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import ClassVar, Protocol, cast

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from aegish_dist.core.batches import BatchLimits, BatchReport, BatchRequest, BatchResult
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import CatalogError, ProviderError
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.contract import Codec, RequestTemplate
from aegish_dist.providers.http import MAX_BODY_BYTES, MaskedReader, Reply, Route, exchange, stream

PIECE_BYTES = 2**18
"""Bytes that are handed to the connection at once."""
CALL_LIMIT_S = 60.0
"""Deadline of a call without an upload, and of each piece of the results."""
UPLOAD_BYTES_PER_S = 128 * 1024
MAX_REPLY_BYTES = 8 * 2**20
"""Larger answers to a small call are not read: a page of a list takes some hundred kilobytes."""
MAX_LINE_BYTES = MAX_BODY_BYTES + 2**14
"""Longest line of results: the longest answer to a live call, and its envelope."""
PAGE_SIZE = 100
"""Batches per page: the most that each provider gives."""
MAX_PAGES = 500
"""Pages after which a list is taken to be endless."""
CLOCK_SLACK = timedelta(minutes=15)
"""By how much the clocks of provider and store may differ."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Envelope:
    """The frame that a provider puts around a batch and around each request in it."""

    head: bytes
    middle: bytes
    tail: bytes
    separator: bytes = b"\n"


class BatchBody(aiohttp.Payload):
    """A body of known length that is made while it is sent."""

    _autoclose = True

    def __init__(self, pieces: Callable[[], Iterator[bytes]], size: int) -> None:
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


Batch = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the list."""

    batches: list[Batch]
    """In the provider's order."""
    next: str | None
    """The word that asks for the next part; None at the end."""


def moment(value: object) -> datetime | None:
    """Read a time: seconds since 1970, or RFC 3339; None for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
            return read if read.tzinfo else read.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


class VendorBatches(ABC):
    """Batches of one model, as far as all vendors agree: requests, lists, results."""

    envelope: ClassVar[Envelope]

    def __init__(
        self,
        spec: ModelSpec,
        codec: Codec,
        template_of: Callable[[int], RequestTemplate],
        transfer: Transfer,
    ) -> None:
        """Prepare for a model.

        Args:
            template_of: Returns the request of an epoch that lacks only the command.
        """
        self._model = spec.name
        self._codec = codec
        self._template_of = template_of
        self._transfer = transfer

    @abstractmethod
    async def _page(self, cursor: str | None) -> Page:
        """Return a page of the list of batches; None asks for the first."""

    @abstractmethod
    def _result(self, line: Mapping[str, object]) -> BatchResult:
        """Read a line of the results."""

    def size(self, request: BatchRequest, token: str) -> int:
        """Return the bytes of a request, its envelope and one separator included."""
        return sum(map(len, self._parts(request, token))) + len(self.envelope.separator)

    def _body(
        self, token: str, requests: Iterable[BatchRequest], start: bytes = b"", end: bytes = b""
    ) -> "BatchBody":
        """Return the body that holds these requests, between a start and an end."""
        kept = tuple(requests)
        between = max(0, len(kept) - 1) * len(self.envelope.separator)
        inner = sum(sum(map(len, self._parts(request, token))) for request in kept)
        size = len(start) + inner + between + len(end)
        return BatchBody(lambda: self._pieces(token, kept, start, end), size)

    def _pieces(
        self, token: str, requests: Sequence[BatchRequest], start: bytes, end: bytes
    ) -> Iterator[bytes]:
        yield start
        for index, request in enumerate(requests):
            if index:
                yield self.envelope.separator
            yield from self._parts(request, token)
        yield end

    def _parts(self, request: BatchRequest, token: str) -> tuple[bytes, ...]:
        frame = self.envelope
        body = self._template_of(request.item.epoch).parts(request.command)
        name = json.dumps(request.item.name(token)).encode("ascii")
        return frame.head, name, frame.middle, *body, frame.tail

    async def _listed_page(self, path: str, cursor_name: str, cursor: str | None) -> Page:
        """Return a page of a list in the form that OpenAI and Anthropic share."""
        query = {"limit": str(PAGE_SIZE)} | ({cursor_name: cursor} if cursor else {})
        answer = await self._transfer.call("GET", path, query=query)
        batches = lenient.objects(answer.get("data"))
        more = answer.get("has_more") is True and batches
        return Page(batches, checked_name(batches[-1].get("id")) if more else None)

    async def _created_since(self, since: datetime) -> list[Batch]:
        """Return the batches that were created since a moment.

        All vendors list the newest first, but not all of them promise it: the search ends early
        only where a page itself is in that order.

        Raises:
            ProviderError: A page did not come: then an empty answer would be wrong.
        """
        earliest, found, cursor = since - CLOCK_SLACK, [], None
        for _ in range(MAX_PAGES):
            page = await self._page(cursor)
            times = [
                self._created_at(batch) or datetime.max.replace(tzinfo=UTC)
                for batch in page.batches
            ]
            pairs = zip(page.batches, times, strict=True)
            found += [batch for batch, time in pairs if time >= earliest]
            newest_first = times == sorted(times, reverse=True)
            if page.next is None or (newest_first and times and times[-1] < earliest):
                return found
            cursor = page.next
        raise lenient.malformed("the provider's list of batches does not end")

    def _created_at(self, batch: Batch) -> datetime | None:
        """Return when a batch was created; None when it cannot be read."""
        return moment(batch.get("created_at"))

    async def _results_at(self, url: URL) -> AsyncGenerator[BatchResult, None]:
        """Stream the results of a file: one line that cannot be read spoils no other.

        Yields:
            One result per line; that of a line which is no JSON has no name.

        Raises:
            ProviderError: The stream broke off or could not be begun.
        """
        async with aclosing(self._transfer.lines(url)) as lines:
            async for line in lines:
                yield self._read(line)

    def _read(self, line: bytes | None) -> BatchResult:
        if line is None:
            return BatchResult("", lenient.malformed(f"a line exceeds {MAX_LINE_BYTES} bytes"))
        try:
            payload = self._transfer.payload(line)
        except ProviderError as error:
            return BatchResult("", error)
        return self._result(payload)


def settled(answer: Callable[[], Completion]) -> Completion | ProviderError:
    """Return the answer that a function reads, or the error that it raises."""
    try:
        return answer()
    except ProviderError as error:
        return error


def refused(error: ProviderError) -> bool:
    """Whether the provider's answer says that it did not do as it was asked."""
    return error.status is not None and 400 <= error.status < 500


class BatchClient(Protocol):
    """The batches of one model with one prompt and one set of parameters.

    Every method makes one attempt and has its own deadline; the caller repeats it.
    """

    limits: BatchLimits

    def size(self, request: BatchRequest, token: str) -> int:
        """Return the bytes of a request as it is sent, its envelope and separator included."""
        ...

    async def create(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Hand a batch over; costs money from the moment the provider has it.

        Args:
            token: Sent along where the provider keeps such a word, and in every request's name.

        Returns:
            The provider's name of the batch, untrusted: at most 200 characters, no slash but in
            Gemini's `batches/ID`.

        Raises:
            ProviderError: It is not known to be created: unless the error says that the provider
                refused it (4xx), it may exist, and `find` has to say so before a second attempt.
        """
        ...

    async def find(self, token: str, requests: int, since: datetime) -> list[str]:
        """Return the provider's names of batches that an attempt to create may have left.

        Where the provider keeps the token (OpenAI, Gemini) there is one at most, and it is this
        one. Anthropic keeps none: then it is every batch of so many requests that was created
        since, and `results` says whether it is the one.

        Args:
            since: When the attempt began, by the store's clock; clocks may differ by minutes.
        """
        ...

    async def poll(self, name: str) -> BatchReport: ...

    def results(self, name: str) -> AsyncIterator[BatchResult]:
        """Stream the results of an ended batch, in any order; each line is size-capped.

        What the provider sends twice comes twice; a request that it leaves out does not come. A
        line that cannot be read is a result without a name, and with a MALFORMED error.

        Raises:
            ProviderError: The stream broke off or could not be begun; it can be begun again.
        """
        ...

    async def cancel(self, name: str) -> None:
        """Ask the provider to begin no further request of a batch; it ends some time later."""
        ...

    async def discard(self, name: str) -> None:
        """Remove the files of an ended batch where the provider keeps some; never raises."""
        ...


def batch_client(
    spec: ModelSpec,
    codec: Codec,
    template_of: Callable[[int], RequestTemplate],
    transfer: Transfer,
) -> BatchClient:
    """Return the client of a model's batches.

    Args:
        template_of: Returns the request of an epoch that lacks only the command.
    """
    if spec.wire.http is None or not spec.wire.http.batches:
        raise CatalogError(f"model '{spec.id}': wire format '{spec.wire}' has no batches")
    module = import_module(f"aegish_dist.providers.batches.{spec.wire}")
    return cast(BatchClient, module.CLIENT(spec, codec, template_of, transfer))
