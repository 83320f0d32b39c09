"""Anthropic's message batches: the requests are the body of the call that creates one."""

from collections.abc import Iterable

from yarl import URL

from aegish_dist.core.batches import BatchLimits, BatchRequest, Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.verdict import Completion
from aegish_dist.providers import failures, lenient
from aegish_dist.providers.batches.transfer import Batch, BatchClient, Wording
from aegish_dist.providers.lenient import JsonObject

UNANSWERED = {"expired": Unanswered.EXPIRED, "canceled": Unanswered.CANCELLED}


class AnthropicBatches(BatchClient):
    words = Wording(
        # 100,000 requests and 256 MB, the frame of the body included.
        limits=BatchLimits(requests=100_000, bytes=255_000_000),
        frame=(b'{"custom_id":', b',"params":', b"}"),
        separator=b",",
        path="/v1/messages/batches/",
        state=("processing_status",),
        ended=frozenset({"ended"}),
        counts=("request_counts",),
        succeeded="succeeded",
        failed=("errored", "expired", "canceled"),
        page=("limit", "after_id", "data"),
    )

    async def create(self, token: str, requests: Iterable[BatchRequest]) -> str:
        """Create a batch; the token is in the names of its requests alone."""
        body = self._body(token, requests, b'{"requests":[', b"]}")
        url = self._transfer.url(self._list)
        reply = await self._transfer.upload(url, body, {})
        return self._named(self._transfer.object(reply))

    def _is_ours(self, batch: Batch, token: str, requests: int) -> bool:
        """Whether it has so many requests, by the sum of its numbers: nothing of ours is kept."""
        counts = lenient.mapping(batch, "request_counts")
        return lenient.total(map(lenient.count, counts.values())) == requests

    async def discard(self, name: str) -> None:
        """Remove nothing: there are no files, and the provider archives results by itself."""

    async def _result_files(self, name: str) -> list[URL]:
        """Return our own address of the results: the one in the answer is the same."""
        return [self._transfer.url(f"{self._address(name)}/results")]

    def _result(self, line: JsonObject) -> tuple[object, Unanswered | None]:
        kind = lenient.text(line, "result", "type")
        return line.get("custom_id"), UNANSWERED.get(kind or "")

    def _answer(self, line: JsonObject) -> Completion:
        result = lenient.mapping(line, "result")
        kind = result.get("type")
        if kind == "succeeded":
            return self._decode(result.get("message"), {})
        if kind != "errored":
            raise lenient.malformed("the result holds neither a message nor an error")
        error_type = lenient.text(result, "error", "error", "type") or ""
        status = failures.OF_BATCHES[WireFormat.ANTHROPIC].get(error_type, 500)
        return failures.settle(status, result.get("error"), {})


CLIENT = AnthropicBatches
