"""Reading the results of a batch: which line is about which item, and what it says."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from aegish_dist.core.batch import BatchItem, BatchResult, Unanswered, read_name
from aegish_dist.core.batch_rules import is_permanent
from aegish_dist.core.completion import Completion
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.errors import ProviderError


class ResultKind(StrEnum):
    """Kinds of results, under whose names they are counted."""

    SUCCEEDED = "succeeded"
    REFUSED = "refused"
    """An error that is the row's own, if the model answers others."""
    ERRORED = "errored"
    """Any other error: the item is asked again."""
    EXPIRED = "expired"
    """Not begun when the window of the batch ended."""
    CANCELLED = "cancelled"
    """Not begun when the batch was cancelled."""
    MISSING = "missing"
    DUPLICATE = "duplicate"
    """A further line about an item, which is ignored."""
    FOREIGN = "foreign"
    """A line about nothing that was asked, which is ignored."""
    MALFORMED = "malformed"
    """A line that cannot be read, so that its item counts as missing."""


_UNANSWERED = {
    Unanswered.EXPIRED: ResultKind.EXPIRED,
    Unanswered.CANCELLED: ResultKind.CANCELLED,
}


@dataclass(slots=True)
class ResultReader:
    """Reads the lines of one batch, in any order, and counts them."""

    token: str
    asked: Collection[BatchItem]
    counts: Counter[ResultKind] = field(default_factory=Counter)
    """Lines so far by kind; items without one after `finish`."""
    refused: dict[BatchItem, ProviderError] = field(default_factory=dict)
    """Errors that are the rows' own, if the model answers others."""
    problems: dict[BatchItem, str] = field(default_factory=dict)
    _seen: set[BatchItem] = field(default_factory=set)
    _settled: set[BatchItem] = field(default_factory=set)
    """Answered items with the batch's own names that were settled before a break."""

    def read(self, result: BatchResult) -> tuple[BatchItem, Completion] | None:
        """Take a line; return the item and its completion, None when it holds none to store."""
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
                self._note(item, _UNANSWERED[unanswered], unanswered.value)
            case ProviderError() as error if is_permanent(ErrorClass(error.error_class)):
                self.counts[ResultKind.REFUSED] += 1
                self.refused[item] = error
            case error:
                self._note(item, ResultKind.ERRORED, str(error))
        return None

    def _note(self, item: BatchItem, kind: ResultKind, problem: str) -> None:
        self.counts[kind] += 1
        self.problems[item] = problem

    def finish(self) -> None:
        """Count the items that had no line."""
        for item in self.asked:
            if item not in self._seen:
                self._note(item, ResultKind.MISSING, "the provider left it out of the results")

    def lacks_answers(self, succeeded: int | None) -> bool:
        """Return whether fewer answers came than there are by the provider's own count.

        Args:
            succeeded: That count; None when it gives none.
        """
        return self.counts[ResultKind.SUCCEEDED] + len(self._settled) < (succeeded or 0)

    @property
    def is_foreign(self) -> bool:
        """Whether the lines are those of another batch."""
        own = self._seen or self._settled
        return not own and self.counts[ResultKind.FOREIGN] > 0

    @property
    def is_empty(self) -> bool:
        """Whether no line was about an item of the batch."""
        return not self._seen

    def numbers(self) -> Mapping[str, int]:
        """Return the counts as they are stored."""
        return {kind.value: number for kind, number in self.counts.items() if number}
