"""OpenAI's batches: a file of requests, a batch that names it, and two files of results."""

from collections.abc import Iterable, Mapping

from yarl import URL

from aegish_dist.core.batches import BatchLimits, BatchReport, BatchRequest, Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.batches.transfer import Batch, Envelope, FileBatchClient, checked_name

LIMITS = BatchLimits(requests=50_000, bytes=199_000_000)
"""50,000 requests and 200 MB, the form around the file included."""
ENDPOINT = "/v1/chat/completions"
METADATA = "aegish_dist_batch"
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
UNANSWERED = {
    "batch_expired": Unanswered.EXPIRED,
    "batch_cancelled": Unanswered.CANCELLED,
    "batch_canceled": Unanswered.CANCELLED,
}
ERROR_STATUSES = {"request_timeout": 504}
"""HTTP statuses for the codes of requests that got no response."""


class OpenAIBatches(FileBatchClient):
    """The batches of one model."""

    limits = LIMITS
    envelope = Envelope(
        b'{"custom_id":', f',"method":"POST","url":"{ENDPOINT}","body":'.encode(), b"}"
    )
    path = "/batches/"

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
        return checked_name(self._transfer.object(reply).get("id"))

    def _creation(self, token: str, file: str) -> tuple[str, Mapping[str, object]]:
        return "/batches", {
            "input_file_id": file,
            "endpoint": ENDPOINT,
            "completion_window": "24h",
            "metadata": {METADATA: token},
        }

    def _is_ours(self, batch: Batch, token: str, requests: int) -> bool:
        return lenient.mapping(batch.get("metadata")).get(METADATA) == token

    async def _page(self, cursor: str | None) -> tuple[list[Batch], str | None]:
        return await self._listed_page("after", cursor)

    async def poll(self, name: str) -> BatchReport:
        batch = await self._batch(name)
        counts = lenient.mapping(batch.get("request_counts"))
        status = lenient.label(batch.get("status")) or "unknown"
        return BatchReport(
            ended=status in ENDED,
            status=failures.one_line(status),
            succeeded=lenient.count(counts.get("completed")),
            failed=lenient.count(counts.get("failed")),
            problem=_problem(batch) if status == "failed" else None,
        )

    async def _result_files(self, name: str) -> Iterable[URL]:
        """Return the file of answers, then that of errors; either may be missing."""
        batch = await self._batch(name)
        answered = lenient.count(lenient.mapping(batch.get("request_counts")).get("completed"))
        if answered and not batch.get("output_file_id"):
            raise lenient.malformed("the batch has answers, and does not name their file yet")
        _, *files = self._files(batch)
        # One after the other: a name that cannot be used keeps no paid answer of the first file.
        return (
            self._transfer.url(f"{self._file_path(file)}/content") for file in filter(None, files)
        )

    def _files(self, batch: Batch) -> Iterable[object]:
        return [batch.get(f"{use}_file_id") for use in ("input", "output", "error")]

    def _file_path(self, file: object) -> str:
        return f"/files/{checked_name(file)}"

    def _result(self, line: Mapping[str, object]) -> tuple[object, Unanswered | None]:
        code = lenient.text(lenient.mapping(line.get("error")).get("code"))
        return line.get("custom_id"), UNANSWERED.get(code or "")

    def _answer(self, line: Mapping[str, object]) -> Completion:
        error = lenient.mapping(line.get("error"))
        response = lenient.mapping(line.get("response"))
        status = response.get("status_code")
        headers = {"x-request-id": lenient.label(response.get("request_id")) or ""}
        if not isinstance(status, int):
            if not error:
                raise lenient.malformed("the result holds neither a response nor an error")
            code = ERROR_STATUSES.get(lenient.text(error.get("code")) or "", 502)
            return failures.settle(code, {"error": error}, headers)
        if 200 <= status < 300:
            return self._codec.decode(response.get("body"), headers)
        return failures.settle(status, response.get("body"), headers)


def _problem(batch: Mapping[str, object]) -> str:
    """Return the first error that kept a batch from being begun, and how many there are."""
    errors = lenient.objects(lenient.mapping(batch.get("errors")).get("data"))
    first = errors[0] if errors else {}
    words = (lenient.text(first.get(field)) for field in ("code", "message"))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{failures.one_line(': '.join(filter(None, words))) or 'failed'}{more}"


CLIENT = OpenAIBatches
