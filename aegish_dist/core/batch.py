"""Batches: requests that a provider answers within a day, at half the price of live calls.

A batch holds requests of one model of one run. The provider gives each result the name under which
it got the request, so that an item is found again whatever the order of the results is.
"""

import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from aegish_dist.core.completion import Completion
from aegish_dist.errors import ProviderError

BATCH_WINDOW_S = 86_400
"""Seconds within which all three vendors mean to answer a batch. OpenAI and Anthropic then end it,
finished or not; Gemini ends it after twice as long."""
TOKEN_CHARACTERS = 16
"""Characters of a batch's token: lower-case letters and digits."""
_ALPHABET = string.ascii_lowercase + string.digits
_NAME = re.compile(
    rf"([a-z0-9]{{{TOKEN_CHARACTERS}}})-([0-9]{{1,19}})-([0-9]{{1,5}})-([0-9]{{1,5}})"
)


class BatchState(StrEnum):
    """How far a batch is, in the order of its life."""

    PLANNED = "planned"
    """Its items are chosen, and the provider knows nothing of it."""
    CREATING = "creating"
    """A worker has begun to hand it over; the provider may know it already."""
    IN_PROGRESS = "in_progress"
    """The provider has named it and works on it."""
    COLLECTING = "collecting"
    """The provider has ended it; its results are being stored."""
    ENDED = "ended"
    """All of its results are stored, and what is left of its items is free to be asked again."""


@dataclass(frozen=True, slots=True)
class BatchItem:
    """An item of a batch: a verdict's natural key without the model, which is the batch's."""

    sample_key: int
    epoch: int
    """1-based repeat."""
    generation: int
    """0 for the first try, n for the n-th `retry`."""

    def name(self, token: str) -> str:
        """Return the name of its request, at most 64 characters of what all vendors allow."""
        return f"{token}-{self.sample_key}-{self.epoch}-{self.generation}"


def new_token() -> str:
    """Return a token that no other batch has."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(TOKEN_CHARACTERS))


def read_name(name: str, token: str) -> BatchItem | None:
    """Return the item that a result's name stands for; None for a name of another batch.

    Args:
        token: The token of the batch that was asked for its results.
    """
    found = _NAME.fullmatch(name)
    if found is None or found[1] != token:
        return None
    return BatchItem(int(found[2]), int(found[3]), int(found[4]))


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request of a batch."""

    item: BatchItem
    command: str
    """The shell command; sent as data, never executed."""


class Unanswered(StrEnum):
    """Why a provider answered a request of a batch with neither a completion nor an error."""

    EXPIRED = "expired"
    """The batch ended at the end of its window before the request was begun; not charged."""
    CANCELLED = "cancelled"
    """The batch was cancelled before the request was begun; not charged."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One line of a batch's results."""

    name: str
    """The name that the request was given; untrusted."""
    answer: Completion | ProviderError | Unanswered


@dataclass(frozen=True, slots=True)
class BatchReport:
    """State of a batch by its provider."""

    ended: bool
    """Whether its results can be read: completed, expired, cancelled or failed as a whole."""
    status: str
    succeeded: int | None = None
    """Requests answered so far; None where the provider does not say."""
    failed: int | None = None
    """Requests that ended otherwise so far; None where the provider does not say."""
    problem: str | None = None
    """Why it failed as a whole, in the provider's words; None when it did not."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The largest batch that a provider takes."""

    requests: int
    bytes: int
    """Bytes of all requests as they are sent."""


@dataclass(frozen=True, slots=True)
class BatchTotals:
    """The batches of a model of a run, for `status`."""

    batches: int
    open: int
    requests: int
    answered: int
    """Items of open ones that the provider says are answered."""
    oldest_s: float | None = None
    """Seconds since the oldest open one was handed over; None when none was."""
    expected_usd: Decimal | None = None
    """Expected cost of open ones in USD; None when a price is unknown."""
    problem: str | None = None
    """The newest problem of open ones, or else of the newest; None when there is none."""
    states: Mapping[BatchState, int] = field(default_factory=dict)
    """How many are in each state; states of none are left out."""
    starts_in_s: float = 0.0
    """Seconds until its items are asked in batches; 0 when they are."""
    live: int = 0
    """Items that are asked live because batches gave no answer; counted while none is open."""
