"""The seam between the pipeline and the batch interfaces, and the HTTP that all of these share.

A batch of 50,000 requests is 200 MB of nearly the same prompt. Its body exists nowhere as a whole:
its length is the sum of its requests', and each request is put together when its turn comes.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import ClassVar

import aiohttp
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from yarl import URL

from aegish_dist.core.batches import (
    BatchLimits,
    BatchReport,
    BatchRequest,
    BatchResult,
    Unanswered,
    may_exist,
)
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import EndlessResultsError, ProviderError
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.contract import Decode, RequestTemplate
from aegish_dist.providers.exchange import (
    MAX_BODY_BYTES,
    Body,
    MaskedReader,
    Reply,
    Route,
    exchange,
    stream,
)
from aegish_dist.providers.lenient import Headers, JsonObject

CALL_LIMIT_S = 60.0  # deadline of a call without an upload, and of each piece of the results
UPLOAD_BYTES_PER_S = 128 * 1024
# Larger answers to a small call are not read: a page of a list takes some hundred kilobytes.
MAX_REPLY_BYTES = 2 * 2**20
# Longest line of results: the longest answer to a live call, and its envelope.
MAX_LINE_BYTES = MAX_BODY_BYTES + 2**14
MOST_LINE_BYTES = 2**16  # bytes of a line of results on average
LINE_LIMIT_S = 0.05
# Added to the requests of a batch for the bounds on its results: a minute, and 79 MB.
LEAST_REQUESTS = 1200
PAGE_SIZE = 100
# Pages, and seconds, after which a list is taken to be endless.
MAX_PAGES = 500
LIST_LIMIT_S = 300.0
NEVER_TOO_OLD = datetime.max.replace(tzinfo=UTC)  # stands for a time that is not stated
CLOCK_SLACK = timedelta(minutes=15)  # by how much the clocks of provider and store may differ
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Wording(Struct, frozen=True, kw_only=True):
    """How a provider's interface names what all of them have."""

    limits: BatchLimits
    frame: tuple[bytes, bytes, bytes]  # of a request: before its name, its body, and behind it
    separator: bytes = b"\n"  # between requests
    path: str  # of a batch, before its name; the list of batches has it without the slash
    cancel: str = "/cancel"  # what follows the name
    name: str = "id"  # the key of a batch's name
    name_prefix: str = ""
    state: tuple[str, ...]  # keys that lead to a batch's state
    ended: frozenset[str]  # states
    counts: tuple[str, ...]  # keys that lead to a batch's numbers by outcome
    succeeded: str  # an outcome
    failed: tuple[str, ...]  # outcomes
    created_at: tuple[str, ...] = ("created_at",)
    page: tuple[str, str, str]  # in a list: size of a page, its beginning, its entries
    file_path: str = ""  # of a file, before its name
    file_prefix: str = ""  # of a file's name


class Transfer:
    """The way to one provider, with one key; each call raises `ProviderError`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        route: Route,
        base_url: str,
        key: str | None,
    ) -> None:
        self._session = session
        self._route = route  # that of live calls, of which headers and proxy are taken
        self.base_url = URL(base_url)
        self._read = MaskedReader(key)

    async def call(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        query: Headers | None = None,
    ) -> JsonObject:
        """Make a small call; return the JSON object of its answer."""
        sent = None if body is None else aiohttp.BytesPayload(json.dumps(body).encode("ascii"))
        url = self.url(path).with_query(query or {})
        return self.object(await self._reply(self._to(url, CALL_LIMIT_S), sent, method))

    async def upload(
        self,
        url: URL,
        body: aiohttp.Payload,
        headers: Headers,
    ) -> Reply:
        """Post a body, whose length bounds the time that it may take; return a good response."""
        route = self._to(url, CALL_LIMIT_S + (body.size or 0) / UPLOAD_BYTES_PER_S)
        return await self._reply(
            replace(
                route,
                headers={
                    **route.headers,
                    **headers,
                },
            ),
            body,
            "POST",
        )

    async def lines(self, url: URL, requests: int) -> AsyncGenerator[bytes | None, None]:
        """Stream the lines of a file but blank ones; None stands for one that is too long.

        Args:
            requests: Bounds the bytes and the time of the whole.

        Raises:
            EndlessResultsError: The file exceeds a bound.
        """
        rest = b""
        too_long = False
        room = MOST_LINE_BYTES * (requests + LEAST_REQUESTS)
        left_s = LINE_LIMIT_S * (requests + LEAST_REQUESTS)
        asked_at = monotonic()
        async with aclosing(stream(self._session, self._to(url, CALL_LIMIT_S))) as replies:
            async for reply in replies:
                self._check(reply)
                room -= len(reply.body or b"")
                left_s -= monotonic() - asked_at
                if room < 0 or left_s < 0:
                    raise EndlessResultsError
                *whole, rest = (rest + (reply.body or b"")).split(b"\n")
                for line in whole:
                    if too_long or line.strip():
                        yield None if too_long or len(line) > MAX_LINE_BYTES else line
                    too_long = False
                if len(rest) > MAX_LINE_BYTES:
                    rest = b""
                    too_long = True
                asked_at = monotonic()  # what is done with lines is not the provider's time

        if too_long or rest.strip():
            yield None if too_long else rest

    def url(self, path: str) -> URL:
        return URL(f"{self.base_url}{path}")

    def payload(self, line: bytes) -> JsonObject:
        """Return the JSON object of a line without the key; an empty one for other JSON."""
        return lenient.mapping(self._read.payload(line))

    def object(self, reply: Reply) -> JsonObject:
        if reply.body is None:
            raise lenient.malformed(f"the provider's answer exceeds {MAX_REPLY_BYTES} bytes")
        return self.payload(reply.body or b"{}")

    async def _reply(
        self,
        route: Route,
        body: aiohttp.Payload | None,
        method: str,
    ) -> Reply:
        reply = await exchange(self._session, route, body, method=method, cap=MAX_REPLY_BYTES)
        self._check(reply)
        return reply

    def _check(self, reply: Reply) -> None:
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


Batch = JsonObject


def moment(value: object) -> datetime | None:
    """Read a time: seconds since 1970, or RFC 3339; None for anything else."""
    try:
        read = msgspec.convert(value, datetime, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


class BatchClient(ABC):
    """The batches of one model with one prompt and one set of parameters.

    Every method makes one attempt and has its own deadline; the caller repeats it.
    """

    words: ClassVar[Wording]

    def __init__(
        self,
        spec: ModelSpec,
        decode: Decode,
        template_of: Callable[[int], RequestTemplate],
        transfer: Transfer,
    ) -> None:
        self._model = spec.name
        self._decode = decode
        self._template_of = template_of  # the request of an epoch that lacks only the command
        self._transfer = transfer
        self._list = (self.words.path + self.words.name_prefix).rstrip("/")

    @property
    def limits(self) -> BatchLimits:
        return self.words.limits

    def size(self, request: BatchRequest, token: str) -> int:
        """Return the bytes of a request as it is sent, its envelope and separator included."""
        return sum(map(len, self._parts(request, token))) + len(self.words.separator)

    @abstractmethod
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

    async def find(
        self,
        token: str,
        requests: int,
        since: datetime,
    ) -> list[str]:
        """Return the provider's names of batches that an attempt to create may have left.

        Where the provider keeps the token (OpenAI, Gemini) there is one at most, and it is this
        one. Anthropic keeps none: then it is every batch of so many requests that was created
        since, and `results` says whether it is the one.

        Args:
            since: When the attempt began, by the store's clock; clocks may differ by minutes.
        """
        return await self._created_since(since, lambda batch: self._is_ours(batch, token, requests))

    async def poll(self, name: str) -> BatchReport:
        """Read how far a batch is; its numbers may be 0 until it has ended."""
        batch = await self._batch(name)
        state = lenient.label(self._state(batch)) or ""
        has_failed = state.lower().endswith("failed")
        return BatchReport(
            ended=batch.get("done") is True or state in self.words.ended,
            succeeded=self._count(batch, self.words.succeeded),
            failed=lenient.total(self._count(batch, kind) for kind in self.words.failed),
            problem=self._problem(batch) or "failed" if has_failed else None,
        )

    async def results(self, name: str, requests: int) -> AsyncIterator[BatchResult]:
        """Stream the results of an ended batch, in any order; each line is size-capped.

        What the provider sends twice comes twice; a request that it leaves out does not come. A
        line that cannot be read is a result without a name, and with a MALFORMED error.

        Raises:
            EndlessResultsError: There are far more than the requests of the batch can have.
            ProviderError: The stream broke off or could not be begun; it can be begun again.
        """
        # A provider may send a line twice.
        lines_left = 2 * (requests + LEAST_REQUESTS)
        for url in await self._result_files(name):
            async with aclosing(self._transfer.lines(url, requests)) as lines:
                async for line in lines:
                    lines_left -= 1
                    if lines_left < 0:
                        raise EndlessResultsError
                    yield self._read(line)

    async def cancel(self, name: str) -> None:
        """Ask the provider to begin no further request of a batch; it ends some time later.

        What is answered by then is charged, and comes with the results.
        """
        await self._transfer.call("POST", self._address(name) + self.words.cancel)

    @abstractmethod
    async def discard(self, name: str) -> None:
        """Remove the files of an ended batch where the provider keeps some; never raises."""

    @abstractmethod
    def _is_ours(self, batch: Batch, token: str, requests: int) -> bool:
        """Whether an attempt to create with this token may have left a batch."""

    @abstractmethod
    async def _result_files(self, name: str) -> Iterable[URL]:
        """Return the addresses of a batch's results; none where it has no answer."""

    @abstractmethod
    def _result(self, line: JsonObject) -> tuple[object, Unanswered | None]:
        """Return the name in a line of the results, and why it has no answer."""

    @abstractmethod
    def _answer(self, line: JsonObject) -> Completion:
        """Return the answer in a line, or raise its error."""

    def _problem(self, batch: Batch) -> str:
        """Return why a batch failed as a whole, empty if the provider does not say."""
        return ""

    def _state(self, batch: Batch) -> object:
        return lenient.at(batch, *self.words.state)

    def _count(self, batch: Batch, kind: str) -> int | None:
        """Return the number of requests with an outcome, which may be spelled as a text."""
        value = lenient.at(batch, *self.words.counts, kind)
        if isinstance(value, str) and value.isdecimal() and len(value) < 16:
            value = int(value)
        return lenient.count(value)

    def _named(self, answer: JsonObject) -> str:
        return checked_name(answer.get(self.words.name), self.words.name_prefix)

    def _address(self, name: str) -> str:
        return self.words.path + checked_name(name, self.words.name_prefix)

    async def _batch(self, name: str) -> Batch:
        return await self._transfer.call("GET", self._address(name))

    def _body(
        self,
        token: str,
        requests: Iterable[BatchRequest],
        start: bytes = b"",
        end: bytes = b"",
    ) -> Body:
        kept = tuple(requests)

        def pieces() -> Iterator[bytes]:
            yield start
            for index, request in enumerate(kept):
                if index:
                    yield self.words.separator
                yield from self._parts(request, token)
            yield end

        return Body(pieces, sum(map(len, pieces())))

    def _parts(self, request: BatchRequest, token: str) -> tuple[bytes, ...]:
        before_name, before_body, end = self.words.frame
        name = json.dumps(request.item.name(token))
        template = self._template_of(request.item.epoch)
        body = template.parts(request.command)
        return before_name, name.encode("ascii"), before_body, *body, end

    async def _page(self, cursor: str | None) -> tuple[list[Batch], str | None]:
        """Return a page of the list of batches, and the word for the next one; None: the first."""
        size, after, entries = self.words.page
        query = {size: str(PAGE_SIZE)}
        if cursor is not None:
            query[after] = cursor
        answer = await self._transfer.call("GET", self._list, query=query)
        batches = lenient.objects(answer, entries)
        if batches and answer.get("has_more") is True:
            return batches, self._named(batches[-1])
        # Gemini has a word of its own for the next page.
        return batches, lenient.text(answer, "nextPageToken") or None

    async def _created_since(self, since: datetime, is_ours: Callable[[Batch], bool]) -> list[str]:
        """Return the names of our batches that were created since a moment; keep nothing else.

        All vendors list the newest first, but not all of them promise it: the search ends early
        only where a page itself is in that order. A page that does not come is an error: then an
        empty answer would be wrong.
        """
        earliest = since - CLOCK_SLACK
        names: list[str] = []
        cursor = None
        until = monotonic() + LIST_LIMIT_S
        for _ in range(MAX_PAGES):
            if monotonic() > until:
                break
            batches, cursor = await self._page(cursor)
            times = []
            for batch in batches:
                time = moment(lenient.at(batch, *self.words.created_at)) or NEVER_TOO_OLD
                times.append(time)
                if time >= earliest and is_ours(batch):
                    names.append(self._named(batch))
            newest_first = times == sorted(times, reverse=True)
            if cursor is None or (newest_first and times and times[-1] < earliest):
                return names

        raise lenient.malformed("the provider's list of batches does not end")

    def _read(self, line: bytes | None) -> BatchResult:
        """Read one line of the results; one that cannot be read spoils no other."""
        name = ""
        try:
            if line is None:
                raise lenient.malformed(f"a line exceeds {MAX_LINE_BYTES} bytes")
            payload = self._transfer.payload(line)
            label, unanswered = self._result(payload)
            name = lenient.label(label) or ""
            return BatchResult(name, unanswered or self._answer(payload))
        except ProviderError as error:
            return BatchResult(name, error)


class FileBatchClient(BatchClient):
    """Batches whose requests and results are files of the provider."""

    @abstractmethod
    async def _upload(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Upload the file of a batch; return its name."""

    @abstractmethod
    def _creation(self, token: str, file: str) -> tuple[str, JsonObject]:
        """Return path and body of the call that creates a batch of a file."""

    @abstractmethod
    def _files(self, batch: Batch) -> list[object]:
        """Return the untrusted names of the file of requests and of those of results, or None."""

    @abstractmethod
    def _content(self, file: str) -> URL:
        """Return the address of the content of a file with a path."""

    async def create(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Upload a file, and create a batch of it; the last call is the one that costs."""
        file = await self._upload(token, requests)
        try:
            return self._named(await self._transfer.call("POST", *self._creation(token, file)))
        except ProviderError as error:
            if not may_exist(error.status):
                await self._remove(file)
            raise

    async def _result_files(self, name: str) -> Iterable[URL]:
        """Return the file of answers, then that of errors; either may be missing."""
        batch = await self._batch(name)
        _, *files = self._files(batch)
        if not files[0] and self._has_answers(batch):
            raise lenient.malformed("the batch has answers, and does not name their file yet")
        # One after the other: a name that cannot be used keeps no paid answer of the first file.
        return (self._content(self._file(file)) for file in files if file)

    def _has_answers(self, batch: Batch) -> bool:
        return bool(self._count(batch, self.words.succeeded))

    def _file(self, name: object) -> str:
        return self.words.file_path + checked_name(name, self.words.file_prefix)

    async def discard(self, name: str) -> None:
        with suppress(ProviderError):
            for file in self._files(await self._batch(name)):
                if file:
                    await self._remove(file)

    async def _remove(self, file: object) -> None:
        path = self._file(file)
        with suppress(ProviderError):
            await self._transfer.call("DELETE", path)
