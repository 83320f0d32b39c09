"""Batches: requests that a provider answers within a day, at half the price of live calls.

A batch holds requests of one model of one run. Results come in any order; each has the name that
its request was given. `pipeline/batches` asks the store and the provider.
"""

import re
import secrets
import string
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum

from msgspec import Struct, field

from aegish_dist.core.outcome import ErrorClass, is_passing
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError

# Vendors aim to answer in this time. OpenAI and Anthropic then end a batch, Gemini later.
BATCH_WINDOW_S = 86_400
TOKEN_CHARACTERS = 16  # characters of a batch's token: lower-case letters and digits
_ALPHABET = string.ascii_lowercase + string.digits
_NAME = re.compile(
    rf"([a-z0-9]{{{TOKEN_CHARACTERS}}})-([0-9]{{1,19}})-([0-9]{{1,5}})-([0-9]{{1,5}})"
)


class BatchItem(Struct, frozen=True):
    """An item of a batch: a verdict's natural key without the model, which is the batch's."""

    sample_key: int
    epoch: int
    generation: int

    def name(self, token: str) -> str:
        """Return the name of the item's request: at most 64 characters that all vendors allow."""
        return f"{token}-{self.sample_key}-{self.epoch}-{self.generation}"


def new_token() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(TOKEN_CHARACTERS))


def read_name(name: str, token: str) -> BatchItem | None:
    """Return the item that a result's name stands for; None for a name of another batch."""
    found = _NAME.fullmatch(name)
    if found is None or found[1] != token:
        return None
    return BatchItem(int(found[2]), int(found[3]), int(found[4]))


class BatchRequest(Struct, frozen=True):
    item: BatchItem
    command: str


class Unanswered(StrEnum):
    """Why a provider answered a request of a batch with neither a completion nor an error."""

    EXPIRED = "expired"  # the batch ended before the request was begun; not charged
    CANCELLED = "cancelled"  # the batch was cancelled before the request was begun; not charged


class BatchResult(Struct, frozen=True):
    name: str  # the name that the request was given; untrusted
    answer: Completion | ProviderError | Unanswered


class BatchReport(Struct, frozen=True):
    ended: bool  # its results can be read: completed, expired, cancelled or failed as a whole
    succeeded: int | None = None  # requests answered so far; None where the provider does not say
    failed: int | None = None
    problem: str | None = None  # why it failed as a whole, in the provider's words


class BatchLimits(Struct, frozen=True):
    """The largest batch that a provider takes."""

    requests: int
    bytes: int


MAX_TRIES = 3  # an item without a verdict after this many batches is asked live
POLL_SHARE = 0.1  # a batch is looked at again after this share of its age
MAX_DOUBLINGS = 16
# A batch of this age that its provider does not know has ended. Gemini takes two windows.
UNKNOWN_AFTER_S = 2 * BATCH_WINDOW_S + 7_200


class BatchPace(Struct, frozen=True):
    """The pauses between two looks at a batch; every pause is a multiple of the first."""

    first_s: float = 10.0  # seconds to the first look after handing over, and after a first failure

    @property
    def longest_s(self) -> float:
        return 30 * self.first_s

    @property
    def lease_s(self) -> float:
        """Seconds without a sign of life after which another worker takes a batch."""
        return max(3.0, 6 * self.first_s)

    @property
    def certain_s(self) -> float:
        """Seconds after an attempt to create a batch from which the provider's list shows it."""
        return 30 * self.first_s

    def next_poll_s(self, age_s: float) -> float:
        return min(self.longest_s, max(self.first_s, age_s * POLL_SHARE))

    def after_failures_s(self, failures: int, asked_s: float | None = None) -> float:
        """Return the pause before the next request; `asked_s` is what the provider asked for.

        That counts up to a batch's window: no quota of a day needs more, and a wrong header must
        not park a batch until its results have been deleted.
        """
        doubled_s = self.first_s * float(2 ** min(failures - 1, MAX_DOUBLINGS))
        return max(min(self.longest_s, doubled_s), min(asked_s or 0.0, BATCH_WINDOW_S))


def may_exist(status: int | None) -> bool:
    """Return whether a batch may exist although the attempt to create it failed with a status."""
    # Only a refusal proves that none exists. A proxy sends 408 after waiting for the provider.
    return status is None or not 400 <= status < 500 or is_passing(status)


SizedItem = tuple[BatchItem, int, Decimal | None]  # with bytes of its request, and expected USD


def next_batch(
    items: Iterable[SizedItem], limits: BatchLimits, left_usd: Decimal | None
) -> tuple[tuple[BatchItem, ...], Decimal | None, bool]:
    """Choose the next batch from the first items without a batch; `left_usd` None means no cap.

    Return its items, their expected cost, and whether the caps leave no money for the next item.
    """
    taken: list[BatchItem] = []
    size = 0
    usd = Decimal(0)
    known = True
    short = False
    for item, request_bytes, request_usd in items:
        size += request_bytes
        # A request that is too large by itself is the provider's to refuse.
        if taken and (len(taken) == limits.requests or size > limits.bytes):
            break
        with_it = usd + (request_usd or 0)
        short = left_usd is not None and with_it > left_usd
        if short:
            break
        taken.append(item)
        usd = with_it
        known = known and request_usd is not None
    return tuple(taken), usd if known else None, short


class ResultKind(StrEnum):
    SUCCEEDED = "succeeded"
    REFUSED = "refused"  # an error that is the row's own, if the model answers other rows
    ERRORED = "errored"  # any other error: the item is asked again
    EXPIRED = "expired"  # not begun when the window of the batch ended
    CANCELLED = "cancelled"  # not begun when the batch was cancelled
    MISSING = "missing"
    DUPLICATE = "duplicate"  # a further line about an item, which is ignored
    FOREIGN = "foreign"  # a line about nothing that was asked, which is ignored
    MALFORMED = "malformed"  # a line that cannot be read, so that its item counts as missing


class ResultReader(Struct):
    """Reads the lines of one batch, in any order, and counts them."""

    token: str
    asked: Collection[BatchItem]
    # Lines so far by kind; after `finish` also the items without a line.
    counts: Counter[ResultKind] = field(default_factory=Counter)
    # Errors that are the rows' own, if the model answers other rows.
    refused: dict[BatchItem, ProviderError] = field(default_factory=dict)
    problems: dict[BatchItem, str] = field(default_factory=dict)
    _seen: set[BatchItem] = field(default_factory=set)
    # Answered items with names of this batch that were settled before an interruption.
    _settled: set[BatchItem] = field(default_factory=set)

    def read(self, result: BatchResult) -> tuple[BatchItem, Completion] | None:
        """Take a line; return its item and completion, or None without a completion to store."""
        if not result.name:
            self.counts[ResultKind.MALFORMED] += 1
            return None
        item = read_name(result.name, self.token)
        if item is None or item not in self.asked:
            self.counts[ResultKind.FOREIGN] += 1
            if item is not None and isinstance(result.answer, Completion):
                self._settled.add(item)
            return None
        if item in self._seen:
            self.counts[ResultKind.DUPLICATE] += 1
            return None
        self._seen.add(item)
        match result.answer:
            case Completion() as completion:
                self.counts[ResultKind.SUCCEEDED] += 1
                return item, completion
            case Unanswered() as unanswered:
                self._note(item, ResultKind(unanswered.value), unanswered.value)
            # After any other error the item is asked again: it passes, or concerns key or host.
            case ProviderError(error_class=ErrorClass.BAD_REQUEST) as error:
                self.counts[ResultKind.REFUSED] += 1
                self.refused[item] = error
            case error:
                self._note(item, ResultKind.ERRORED, str(error))
        return None

    def _note(self, item: BatchItem, kind: ResultKind, problem: str) -> None:
        self.counts[kind] += 1
        self.problems[item] = problem

    def finish(self) -> None:
        for item in self.asked:
            if item not in self._seen:
                self._note(item, ResultKind.MISSING, "the provider left it out of the results")

    def lacks_answers(self, succeeded: int | None) -> bool:
        """Return whether fewer answers arrived than the provider counted."""
        return self.counts[ResultKind.SUCCEEDED] + len(self._settled) < (succeeded or 0)

    @property
    def is_foreign(self) -> bool:
        """Whether the lines belong to another batch."""
        own = self._seen or self._settled
        return not own and self.counts[ResultKind.FOREIGN] > 0

    @property
    def is_empty(self) -> bool:
        return not self._seen

    def numbers(self) -> Mapping[str, int]:
        return {kind.value: number for kind, number in self.counts.items() if number}
