"""Turns lines of results into results: one line that cannot be read spoils no other."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from yarl import URL

from aegish_dist.core.batch import BatchResult
from aegish_dist.core.completion import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient
from aegish_dist.providers.batches.transfer import MAX_LINE_BYTES, Transfer

Reader = Callable[[Mapping[str, object]], BatchResult]


async def results_of(
    transfer: Transfer, url: URL, read: Reader
) -> AsyncGenerator[BatchResult, None]:
    """Stream the results of a file.

    Yields:
        One result per line; that of a line which is no JSON has no name.

    Raises:
        ProviderError: The stream broke off or could not be begun.
    """
    async with aclosing(transfer.lines(url)) as lines:
        async for line in lines:
            yield _result(transfer, line, read)


def _result(transfer: Transfer, line: bytes | None, read: Reader) -> BatchResult:
    if line is None:
        return BatchResult("", lenient.malformed(f"a line exceeds {MAX_LINE_BYTES} bytes"))
    try:
        payload = transfer.payload(line)
    except ProviderError as error:
        return BatchResult("", error)
    return read(payload)


def settled(answer: Callable[[], Completion]) -> Completion | ProviderError:
    """Return the answer that a function reads, or the error that it raises."""
    try:
        return answer()
    except ProviderError as error:
        return error
