"""Searches a provider's list of batches, page by page."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient

PAGE_SIZE = 100
"""Batches per page: the most that each provider gives."""
MAX_PAGES = 500
"""Pages after which a list is taken to be endless."""
CLOCK_SLACK = timedelta(minutes=15)
"""By how much the clocks of provider and store may differ."""

Batch = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the list."""

    batches: list[Batch]
    """In the provider's order."""
    next: str | None
    """The word that asks for the next part; None at the end."""


async def created_since(
    page_of: Callable[[str | None], Awaitable[Page]],
    created_at: Callable[[Batch], datetime | None],
    since: datetime,
) -> list[Batch]:
    """Return the batches that were created since a moment.

    All providers list the newest first, but not all of them promise it: the search ends early only
    where a page itself is in that order.

    Args:
        created_at: Reads when a batch was created; None when it cannot be read.

    Raises:
        ProviderError: A page did not come: then an empty answer would be wrong.
    """
    earliest, found, cursor = since - CLOCK_SLACK, [], None
    for _ in range(MAX_PAGES):
        page = await page_of(cursor)
        times = [created_at(batch) or datetime.max.replace(tzinfo=UTC) for batch in page.batches]
        pairs = zip(page.batches, times, strict=True)
        found += [batch for batch, time in pairs if time >= earliest]
        newest_first = times == sorted(times, reverse=True)
        if page.next is None or (newest_first and times and times[-1] < earliest):
            return found
        cursor = page.next
    raise lenient.malformed("the provider's list of batches does not end")


def moment(value: object) -> datetime | None:
    """Read a time: seconds since 1970, or RFC 3339; None for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        if isinstance(value, str):
            read = datetime.fromisoformat(value)
            return read if read.tzinfo else read.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def refused(error: ProviderError) -> bool:
    """Whether the provider's answer says that it did not do as it was asked."""
    return error.status is not None and 400 <= error.status < 500
