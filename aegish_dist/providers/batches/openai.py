"""OpenAI's batches: a file of requests, a batch that names it, and two files of results."""

from collections.abc import Iterable

from yarl import URL

from aegish_dist.core.batches import BatchLimits, BatchRequest, Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.verdict import Completion
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.batches.transfer import Batch, FileBatchClient, Wording, checked_name
from aegish_dist.providers.lenient import JsonObject

ENDPOINT = "/v1/chat/completions"
METADATA = "aegish_dist_batch"
UNANSWERED = {
    "batch_expired": Unanswered.EXPIRED,
    "batch_cancelled": Unanswered.CANCELLED,
    "batch_canceled": Unanswered.CANCELLED,
}


class OpenAIBatches(FileBatchClient):
    words = Wording(
        # 50,000 requests and 200 MB, the form around the file included.
        limits=BatchLimits(requests=50_000, bytes=199_000_000),
        frame=(b'{"custom_id":', f',"method":"POST","url":"{ENDPOINT}","body":'.encode(), b"}"),
        path="/batches/",
        state=("status",),
        ended=frozenset({"completed", "failed", "expired", "cancelled"}),
        counts=("request_counts",),
        succeeded="completed",
        failed=("failed",),
        page=("limit", "after", "data"),
        file_path="/files/",
    )

    async def _upload(self, token: str, requests: Iterable[BatchRequest]) -> str:
        # No line of the file begins with the boundary: each begins with a brace.
        boundary = f"aegish-dist-{token}"
        start = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
            f'filename="{token}.jsonl"\r\nContent-Type: application/jsonl\r\n\r\n'
        )
        end = f"\n\r\n--{boundary}--\r\n"
        body = self._body(token, requests, start.encode("ascii"), end.encode("ascii"))
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        reply = await self._transfer.upload(self._transfer.url("/files"), body, headers)
        return checked_name(lenient.at(self._transfer.object(reply), "id"))

    def _creation(self, token: str, file: str) -> tuple[str, JsonObject]:
        return "/batches", {
            "input_file_id": file,
            "endpoint": ENDPOINT,
            "completion_window": "24h",
            "metadata": {METADATA: token},
        }

    def _is_ours(self, batch: Batch, token: str, requests: int) -> bool:
        return lenient.at(batch, "metadata", METADATA) == token

    def _problem(self, batch: Batch) -> str:
        """Return the first error that kept a batch from being begun, and how many there are."""
        errors = lenient.objects(batch, "errors", "data")
        if not errors:
            return ""
        first = errors[0]
        words = [lenient.text(first, "code"), lenient.text(first, "message")]
        problem = failures.one_line(": ".join(word for word in words if word)) or "failed"
        if len(errors) > 1:
            return f"{problem} (and {len(errors) - 1} more)"
        return problem

    def _files(self, batch: Batch) -> list[object]:
        return [batch.get(f"{use}_file_id") for use in ("input", "output", "error")]

    def _content(self, file: str) -> URL:
        return self._transfer.url(f"{file}/content")

    def _result(self, line: JsonObject) -> tuple[object, Unanswered | None]:
        code = lenient.text(line, "error", "code")
        return line.get("custom_id"), UNANSWERED.get(code or "")

    def _answer(self, line: JsonObject) -> Completion:
        headers = {"x-request-id": lenient.label(line, "response", "request_id") or ""}
        status = lenient.at(line, "response", "status_code")
        if isinstance(status, int):
            body = lenient.at(line, "response", "body")
            if 200 <= status < 300:
                return self._decode(body, headers)
            return failures.settle(status, body, headers)

        error = lenient.mapping(line, "error")
        if not error:
            raise lenient.malformed("the result holds neither a response nor an error")
        code = lenient.text(error, "code") or ""
        status = failures.OF_BATCHES[WireFormat.OPENAI].get(code, 502)
        return failures.settle(status, {"error": error}, headers)


CLIENT = OpenAIBatches
