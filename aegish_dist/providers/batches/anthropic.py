"""Anthropic's message batches: the requests are the body of the call that creates one."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import partial

from aegish_dist.core.batches import BatchLimits, BatchReport, BatchRequest, BatchResult, Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.batches.transfer import (
    BatchClient,
    Envelope,
    Page,
    VendorBatches,
    checked_name,
    settled,
)

LIMITS = BatchLimits(requests=100_000, bytes=255_000_000)
"""100,000 requests and 256 MB, the frame of the body included."""
ROOT = "/v1/messages/batches"
UNANSWERED = {"expired": Unanswered.EXPIRED, "canceled": Unanswered.CANCELLED}
ERROR_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP statuses of live calls for the types of errors in results."""


class AnthropicBatches(VendorBatches, BatchClient):
    """The batches of one model."""

    limits = LIMITS
    envelope = Envelope(b'{"custom_id":', b',"params":', b"}", b",")

    async def create(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Create a batch; the token is in the names of its requests alone."""
        body = self._body(token, requests, b'{"requests":[', b"]}")
        reply = await self._transfer.upload(self._transfer.url(ROOT), body, {})
        return checked_name(self._transfer.object(reply).get("id"))

    async def find(self, token: str, requests: int, since: datetime) -> list[str]:
        """Return the batches of so many requests: the provider keeps nothing of ours."""
        found = await self._created_since(since)
        return [checked_name(batch.get("id")) for batch in found if _size(batch) == requests]

    async def _page(self, cursor: str | None) -> Page:
        return await self._listed_page(ROOT, "after_id", cursor)

    async def poll(self, name: str) -> BatchReport:
        """Read the state of a batch; its numbers are 0 until it has ended."""
        batch = await self._transfer.call("GET", f"{ROOT}/{checked_name(name)}")
        counts = lenient.mapping(batch.get("request_counts"))
        status = lenient.label(batch.get("processing_status")) or "unknown"
        failed = (lenient.count(counts.get(kind)) for kind in ("errored", "expired", "canceled"))
        return BatchReport(
            ended=status == "ended",
            status=failures.one_line(status),
            succeeded=lenient.count(counts.get("succeeded")),
            failed=lenient.total(failed),
        )

    async def results(self, name: str) -> AsyncIterator[BatchResult]:
        """Stream the results, from our own address: the one in the answer is the same."""
        url = self._transfer.url(f"{ROOT}/{checked_name(name)}/results")
        async with aclosing(self._results_at(url)) as found:
            async for result in found:
                yield result

    async def cancel(self, name: str) -> None:
        """Cancel a batch; what is answered by then is charged, and comes with the results."""
        await self._transfer.call("POST", f"{ROOT}/{checked_name(name)}/cancel")

    async def discard(self, name: str) -> None:
        """Remove nothing: there are no files, and the provider archives results by itself."""

    def _result(self, line: Mapping[str, object]) -> BatchResult:
        name = lenient.label(line.get("custom_id")) or ""
        result = lenient.mapping(line.get("result"))
        unanswered = UNANSWERED.get(lenient.text(result.get("type")) or "")
        return BatchResult(name, unanswered or settled(partial(self._answer, result)))

    def _answer(self, result: Mapping[str, object]) -> Completion:
        if result.get("type") == "succeeded":
            return self._codec.decode(result.get("message"), {})
        if result.get("type") != "errored":
            raise lenient.malformed("the result holds neither a message nor an error")
        error = lenient.mapping(result.get("error"))
        kind = lenient.text(lenient.mapping(error.get("error")).get("type")) or ""
        return failures.settle(ERROR_STATUSES.get(kind, 500), error, {})


def _size(batch: Mapping[str, object]) -> int | None:
    """Return how many requests a batch has: the sum of its numbers."""
    counts = lenient.mapping(batch.get("request_counts"))
    return lenient.total(lenient.count(value) for value in counts.values())


CLIENT = AnthropicBatches
