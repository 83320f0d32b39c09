"""Gemini's batches: an uploaded file, a long-running operation that reads it, a file of results."""

import json
from collections.abc import Iterable
from itertools import product
from urllib.parse import quote

import aiohttp
from yarl import URL

from aegish_dist.core.batches import BatchLimits, BatchRequest, Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.verdict import Completion
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.batches.transfer import Batch, FileBatchClient, Wording, checked_name
from aegish_dist.providers.lenient import JsonObject

CONTENT_TYPE = "application/jsonl"
STATES = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
KINDS = ("BATCH_STATE_", "JOB_STATE_", "")
RPC_CANCELLED = 1


class GoogleBatches(FileBatchClient):
    words = Wording(
        # 2 GB; no number of requests is documented, and more in one batch are more to lose with it.
        limits=BatchLimits(requests=100_000, bytes=2_000_000_000),
        frame=(b'{"key":', b',"request":', b"}"),
        path="/",
        name="name",
        name_prefix="batches/",
        cancel=":cancel",
        state=("metadata", "state"),
        ended=frozenset(kind + state for kind, state in product(KINDS, STATES)),
        counts=("metadata", "batchStats"),
        succeeded="successfulRequestCount",
        failed=("failedRequestCount",),
        created_at=("metadata", "createTime"),
        page=("pageSize", "pageToken", "operations"),
        file_path="/",
        file_prefix="files/",
    )

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
        begin = base.with_path(f"/upload{base.path}/files")
        begun = await self._transfer.upload(begin, aiohttp.BytesPayload(described), headers)
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
        return checked_name(lenient.at(answer, "file", "name"), self.words.file_prefix)

    def _creation(self, token: str, file: str) -> tuple[str, JsonObject]:
        body = {
            "batch": {
                "displayName": _title(token),
                "inputConfig": {"fileName": file},
            }
        }
        return f"/models/{quote(self._model, safe='')}:batchGenerateContent", body

    def _is_ours(self, batch: Batch, token: str, requests: int) -> bool:
        return lenient.at(batch, "metadata", "displayName") == _title(token)

    def _problem(self, batch: Batch) -> str:
        return failures.one_line(lenient.text(batch, "error", "message") or "")

    def _has_answers(self, batch: Batch) -> bool:
        succeeded = f"_STATE_{self._state(batch)}".endswith("_STATE_SUCCEEDED")
        return succeeded or super()._has_answers(batch)

    def _files(self, batch: Batch) -> list[object]:
        """Return the two files; the name of that of results stands in one of two places."""
        requests = lenient.at(batch, "metadata", "inputConfig", "fileName")
        results = lenient.at(batch, "response", "responsesFile")
        return [requests, results or lenient.at(batch, "metadata", "output", "responsesFile")]

    def _content(self, file: str) -> URL:
        base = self._transfer.base_url
        return base.with_path(f"/download{base.path}{file}:download").with_query(alt="media")

    def _result(self, line: JsonObject) -> tuple[object, Unanswered | None]:
        key = line.get("key") or lenient.at(line, "metadata", "key")
        if lenient.at(line, "error", "code") == RPC_CANCELLED:
            return key, Unanswered.CANCELLED
        return key, None

    def _answer(self, line: JsonObject) -> Completion:
        error = lenient.mapping(line, "error")
        if not error:
            return self._decode(line.get("response"), {})
        status = lenient.count(error, "code") or 0
        if not 400 <= status < 600:
            status = failures.OF_BATCHES[WireFormat.GOOGLE].get(str(status), 500)
        if status == 429:
            # The word by which a live failure is known to be Google's.
            error = {"status": "RESOURCE_EXHAUSTED", **error}

        return failures.settle(status, {"error": error}, {})


def _title(token: str) -> str:
    return f"aegish-dist {token}"


CLIENT = GoogleBatches
