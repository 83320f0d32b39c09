"""Gemini's batches: an uploaded file, a long-running operation that reads it, a file of results."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

import aiohttp
from yarl import URL

from aegish_dist.core.batches import BatchLimits, BatchReport, BatchRequest, Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.batches.transfer import (
    PAGE_SIZE,
    Batch,
    Envelope,
    FileBatchClient,
    checked_name,
    moment,
)

CONTENT_TYPE = "application/jsonl"
LIMITS = BatchLimits(requests=100_000, bytes=2_000_000_000)
"""2 GB; no number of requests is documented, and more in one batch are more to lose with it."""
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


class GoogleBatches(FileBatchClient):
    """The batches of one model."""

    limits = LIMITS
    envelope = Envelope(b'{"key":', b',"request":', b"}")
    path = "/"
    name_key = "name"
    name_prefix = "batches/"
    cancel_suffix = ":cancel"

    async def _upload(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Upload a file; the provider names the address, which has to be on the API's own host."""
        body = self._body(token, requests)
        headers = {
            "X-Goog-Upload-Protocol": "resumable",
            "X-Goog-Upload-Command": "start",
            "X-Goog-Upload-Header-Content-Length": str(body.size),
            "X-Goog-Upload-Header-Content-Type": CONTENT_TYPE,
        }
        described = json.dumps({"file": {"displayName": _title(token)}}).encode("ascii")
        base = self._transfer.base_url
        begun = await self._transfer.upload(
            base.with_path(f"/upload{base.path}/files"), aiohttp.BytesPayload(described), headers
        )
        try:
            address = URL(begun.headers.get("x-goog-upload-url") or "")
        except ValueError:
            raise lenient.malformed("the provider names no usable address for the upload") from None
        content = {
            "Content-Type": CONTENT_TYPE,
            "X-Goog-Upload-Command": "upload, finalize",
            "X-Goog-Upload-Offset": "0",
        }
        answer = self._transfer.object(await self._transfer.upload(address, body, content))
        return checked_name(lenient.mapping(answer.get("file")).get("name"), "files/")

    def _creation(self, token: str, file: str) -> tuple[str, Mapping[str, object]]:
        body = {"batch": {"displayName": _title(token), "inputConfig": {"fileName": file}}}
        return f"/models/{self._model}:batchGenerateContent", body

    def _is_ours(self, batch: Batch, token: str, requests: int) -> bool:
        return _metadata(batch).get("displayName") == _title(token)

    async def _page(self, cursor: str | None) -> tuple[list[Batch], str | None]:
        query = {"pageSize": str(PAGE_SIZE)} | ({"pageToken": cursor} if cursor else {})
        answer = await self._transfer.call("GET", "/batches", query=query)
        batches = lenient.objects(answer.get("operations"))
        return batches, lenient.text(answer.get("nextPageToken")) or None

    def _created_at(self, batch: Batch) -> datetime | None:
        return moment(_metadata(batch).get("createTime"))

    async def poll(self, name: str) -> BatchReport:
        batch = await self._batch(name)
        stats = lenient.mapping(_metadata(batch).get("batchStats"))
        state = lenient.label(_metadata(batch).get("state")) or "unknown"
        words = lenient.text(lenient.mapping(batch.get("error")).get("message")) or ""
        return BatchReport(
            ended=batch.get("done") is True or _state(batch) in ENDED,
            status=failures.one_line(state),
            succeeded=_number(stats.get("successfulRequestCount")),
            failed=_number(stats.get("failedRequestCount")),
            problem=failures.one_line(words) or "failed" if _state(batch) == "FAILED" else None,
        )

    async def _result_files(self, name: str) -> list[URL]:
        """Return the file of results; an expired or failed batch has none."""
        batch = await self._batch(name)
        file = _output(batch)
        if file is None:
            stats = lenient.mapping(_metadata(batch).get("batchStats"))
            if _state(batch) == "SUCCEEDED" or _number(stats.get("successfulRequestCount")):
                raise lenient.malformed("the batch has answers, and does not name their file yet")
            return []
        base = self._transfer.base_url
        path = f"/download{base.path}{self._file_path(file)}:download"
        return [base.with_path(path).with_query(alt="media")]

    def _files(self, batch: Batch) -> Iterable[object]:
        source = lenient.mapping(_metadata(batch).get("inputConfig")).get("fileName")
        return source, _output(batch)

    def _file_path(self, file: object) -> str:
        return f"/{checked_name(file, 'files/')}"

    def _result(self, line: Mapping[str, object]) -> tuple[object, Unanswered | None]:
        key = line.get("key") or lenient.mapping(line.get("metadata")).get("key")
        cancelled = lenient.mapping(line.get("error")).get("code") == RPC_CANCELLED
        return key, Unanswered.CANCELLED if cancelled else None

    def _answer(self, line: Mapping[str, object]) -> Completion:
        error = lenient.mapping(line.get("error"))
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
