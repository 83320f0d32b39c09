"""OpenAI's batches: a file of requests, a batch that names it, and two files of results."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial

from aegish_dist.core.batches import BatchLimits, BatchReport, BatchRequest, BatchResult, Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.batches.transfer import (
    BatchClient,
    Envelope,
    Page,
    VendorBatches,
    checked_name,
    refused,
    settled,
)

LIMITS = BatchLimits(requests=50_000, bytes=199_000_000)
"""50,000 requests and 200 MB, the form around the file included."""
ENDPOINT = "/v1/chat/completions"
METADATA = "aegish_dist_batch"
"""Name of the metadata that holds the token."""
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
UNANSWERED = {
    "batch_expired": Unanswered.EXPIRED,
    "batch_cancelled": Unanswered.CANCELLED,
    "batch_canceled": Unanswered.CANCELLED,
}
ERROR_STATUSES = {"request_timeout": 504}
"""HTTP statuses for the codes of requests that got no response."""


class OpenAIBatches(VendorBatches, BatchClient):
    """The batches of one model."""

    limits = LIMITS
    envelope = Envelope(
        b'{"custom_id":', f',"method":"POST","url":"{ENDPOINT}","body":'.encode(), b"}"
    )

    async def create(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Upload a file, and create a batch of it; the second call is the one that costs."""
        file = await self._upload(token, requests)
        body = {
            "input_file_id": file,
            "endpoint": ENDPOINT,
            "completion_window": "24h",
            "metadata": {METADATA: token},
        }
        try:
            return checked_name((await self._transfer.call("POST", "/batches", body)).get("id"))
        except ProviderError as error:
            if refused(error):
                await self._remove(file)
            raise

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

    async def find(self, token: str, requests: int, since: datetime) -> list[str]:
        found = await self._created_since(since)
        return [
            checked_name(batch.get("id"))
            for batch in found
            if lenient.mapping(batch.get("metadata")).get(METADATA) == token
        ]

    async def _page(self, cursor: str | None) -> Page:
        return await self._listed_page("/batches", "after", cursor)

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

    async def results(self, name: str) -> AsyncIterator[BatchResult]:
        """Stream the file of answers, then that of errors; either may be missing."""
        batch = await self._batch(name)
        answered = lenient.count(lenient.mapping(batch.get("request_counts")).get("completed"))
        if answered and not batch.get("output_file_id"):
            raise lenient.malformed("the batch has answers, and does not name their file yet")
        for field in ("output_file_id", "error_file_id"):
            if batch.get(field):
                url = self._transfer.url(f"/files/{checked_name(batch[field])}/content")
                async with aclosing(self._results_at(url)) as found:
                    async for result in found:
                        yield result

    async def cancel(self, name: str) -> None:
        """Cancel a batch; what is answered by then is charged, and comes with the results."""
        await self._transfer.call("POST", f"/batches/{checked_name(name)}/cancel")

    async def discard(self, name: str) -> None:
        """Remove the three files of a batch."""
        with suppress(ProviderError):
            batch = await self._batch(name)
            for field in ("input_file_id", "output_file_id", "error_file_id"):
                if batch.get(field):
                    await self._remove(checked_name(batch[field]))

    async def _batch(self, name: str) -> Mapping[str, object]:
        return await self._transfer.call("GET", f"/batches/{checked_name(name)}")

    async def _remove(self, file: str) -> None:
        with suppress(ProviderError):
            await self._transfer.call("DELETE", f"/files/{file}")

    def _result(self, line: Mapping[str, object]) -> BatchResult:
        name = lenient.label(line.get("custom_id")) or ""
        error = lenient.mapping(line.get("error"))
        unanswered = UNANSWERED.get(lenient.text(error.get("code")) or "")
        return BatchResult(name, unanswered or settled(partial(self._answer, line, error)))

    def _answer(self, line: Mapping[str, object], error: Mapping[str, object]) -> Completion:
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
