"""Gemini's batches: an uploaded file, a long-running operation that reads it, a file of results."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial

import aiohttp
from yarl import URL

from aegish_dist.core.batches import BatchLimits, BatchReport, BatchRequest, BatchResult, Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.batches.transfer import (
    PAGE_SIZE,
    Batch,
    BatchBody,
    BatchClient,
    Envelope,
    Page,
    Transfer,
    VendorBatches,
    checked_name,
    moment,
    refused,
    settled,
)

CONTENT_TYPE = "application/jsonl"


class GoogleFiles:
    """The files of one key."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer
        base = transfer.base_url
        self._upload = base.with_path(f"/upload{base.path}/files")
        self._download = f"/download{base.path}"

    async def upload(self, title: str, body: BatchBody) -> str:
        """Upload a file; return its name, `files/ID`.

        The provider names the address for the content; it has to be on the API's own host.

        Raises:
            ProviderError: There was no answer, or an error.
        """
        headers = {
            "X-Goog-Upload-Protocol": "resumable",
            "X-Goog-Upload-Command": "start",
            "X-Goog-Upload-Header-Content-Length": str(body.size),
            "X-Goog-Upload-Header-Content-Type": CONTENT_TYPE,
        }
        file = {"file": {"displayName": title}}
        start = aiohttp.BytesPayload(json.dumps(file).encode("ascii"))
        begun = await self._transfer.upload(self._upload, start, headers)
        address = _address(begun.headers.get("x-goog-upload-url"))
        content = {
            "Content-Type": CONTENT_TYPE,
            "X-Goog-Upload-Command": "upload, finalize",
            "X-Goog-Upload-Offset": "0",
        }
        answer = self._transfer.object(await self._transfer.upload(address, body, content))
        return checked_name(lenient.mapping(answer.get("file")).get("name"), "files/")

    def address(self, name: str) -> URL:
        base = self._transfer.base_url
        return base.with_path(f"{self._download}/{name}:download").with_query(alt="media")

    async def remove(self, name: str) -> None:
        with suppress(ProviderError):
            await self._transfer.call("DELETE", f"/{name}")


def _address(text: str | None) -> URL:
    try:
        return URL(text or "")
    except ValueError:
        raise lenient.malformed("the provider names no usable address for the upload") from None


LIMITS = BatchLimits(requests=100_000, bytes=2_000_000_000)
"""2 GB; no number of requests is documented, and more in one batch are more to lose with it."""
PREFIX = "batches/"
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"})
RPC_CANCELLED = 1
RPC_STATUSES = {
    3: 400,  # INVALID_ARGUMENT
    4: 504,  # DEADLINE_EXCEEDED
    5: 404,  # NOT_FOUND
    6: 409,  # ALREADY_EXISTS
    7: 403,  # PERMISSION_DENIED
    8: 429,  # RESOURCE_EXHAUSTED
    9: 400,  # FAILED_PRECONDITION
    10: 503,  # ABORTED: to be repeated
    11: 400,  # OUT_OF_RANGE
    12: 501,  # UNIMPLEMENTED
    13: 500,  # INTERNAL
    14: 503,  # UNAVAILABLE
    15: 500,  # DATA_LOSS
    16: 401,  # UNAUTHENTICATED
}
"""HTTP statuses for the codes of google.rpc.Status, which results carry."""


class GoogleBatches(VendorBatches, BatchClient):
    """The batches of one model."""

    limits = LIMITS
    envelope = Envelope(b'{"key":', b',"request":', b"}")

    @property
    def _files(self) -> GoogleFiles:
        return GoogleFiles(self._transfer)

    async def create(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Upload a file, and create a batch of it; the last call is the one that costs."""
        file = await self._files.upload(_title(token), self._body(token, requests))
        body = {"batch": {"displayName": _title(token), "inputConfig": {"fileName": file}}}
        path = f"/models/{self._model}:batchGenerateContent"
        try:
            return checked_name((await self._transfer.call("POST", path, body)).get("name"), PREFIX)
        except ProviderError as error:
            if refused(error):
                await self._files.remove(file)
            raise

    async def find(self, token: str, requests: int, since: datetime) -> list[str]:
        found = await self._created_since(since)
        return [
            checked_name(batch.get("name"), PREFIX)
            for batch in found
            if _metadata(batch).get("displayName") == _title(token)
        ]

    async def _page(self, cursor: str | None) -> Page:
        query = {"pageSize": str(PAGE_SIZE)} | ({"pageToken": cursor} if cursor else {})
        answer = await self._transfer.call("GET", "/batches", query=query)
        batches = lenient.objects(answer.get("operations"))
        return Page(batches, lenient.text(answer.get("nextPageToken")) or None)

    def _created_at(self, batch: Batch) -> datetime | None:
        return moment(_metadata(batch).get("createTime"))

    async def poll(self, name: str) -> BatchReport:
        batch = await self._batch(name)
        stats = lenient.mapping(_metadata(batch).get("batchStats"))
        state = lenient.label(_metadata(batch).get("state")) or "unknown"
        words = lenient.text(lenient.mapping(batch.get("error")).get("message")) or ""
        return BatchReport(
            ended=_ended(batch),
            status=failures.one_line(state),
            succeeded=_number(stats.get("successfulRequestCount")),
            failed=_number(stats.get("failedRequestCount")),
            problem=failures.one_line(words) or "failed" if _state(batch) == "FAILED" else None,
        )

    async def results(self, name: str) -> AsyncIterator[BatchResult]:
        """Stream the file of results; an expired or failed batch has none."""
        batch = await self._batch(name)
        file = _output(batch)
        if file is None:
            stats = lenient.mapping(_metadata(batch).get("batchStats"))
            if _state(batch) == "SUCCEEDED" or _number(stats.get("successfulRequestCount")):
                raise lenient.malformed("the batch has answers, and does not name their file yet")
            return
        url = self._files.address(checked_name(file, "files/"))
        async with aclosing(self._results_at(url)) as found:
            async for result in found:
                yield result

    async def cancel(self, name: str) -> None:
        await self._transfer.call("POST", f"/{checked_name(name, PREFIX)}:cancel")

    async def discard(self, name: str) -> None:
        """Remove the files of a batch, which the provider would keep for two days."""
        with suppress(ProviderError):
            batch = await self._batch(name)
            source = lenient.mapping(_metadata(batch).get("inputConfig")).get("fileName")
            for file in (source, _output(batch)):
                if file:
                    await self._files.remove(checked_name(file, "files/"))

    async def _batch(self, name: str) -> Batch:
        return await self._transfer.call("GET", f"/{checked_name(name, PREFIX)}")

    def _result(self, line: Mapping[str, object]) -> BatchResult:
        key = line.get("key") or lenient.mapping(line.get("metadata")).get("key")
        error = lenient.mapping(line.get("error"))
        if error.get("code") == RPC_CANCELLED:
            return BatchResult(lenient.label(key) or "", Unanswered.CANCELLED)
        return BatchResult(lenient.label(key) or "", settled(partial(self._answer, line, error)))

    def _answer(self, line: Mapping[str, object], error: Mapping[str, object]) -> Completion:
        if not error:
            return self._codec.decode(line.get("response"), {})
        code = lenient.count(error.get("code")) or 0
        status = code if 400 <= code < 600 else RPC_STATUSES.get(code, 500)
        if status == 429:
            # The word by which a live failure is known to be Google's.
            error = {"status": "RESOURCE_EXHAUSTED", **error}
        return failures.settle(status, {"error": error}, {})


def _title(token: str) -> str:
    return f"aegish-dist {token}"


def _metadata(batch: Batch) -> Mapping[str, object]:
    return lenient.mapping(batch.get("metadata"))


def _state(batch: Batch) -> str:
    state = lenient.text(_metadata(batch).get("state")) or ""
    return state.removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")


def _ended(batch: Batch) -> bool:
    return batch.get("done") is True or _state(batch) in ENDED


def _output(batch: Batch) -> object:
    """Return the name of the file of results, which stands in one of two places."""
    places = (batch.get("response"), _metadata(batch).get("output"))
    names = (lenient.mapping(place).get("responsesFile") for place in places)
    return next(filter(None, names), None)


def _number(value: object) -> int | None:
    """Read a count, which JSON of 64-bit integers spells as a text."""
    text = value if isinstance(value, str) and value.isdecimal() and len(value) < 16 else None
    return lenient.count(value if text is None else int(text))


CLIENT = GoogleBatches
