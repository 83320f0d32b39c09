"""Every exception class of the product.

The command line prints an `AegishError` as one line and exits with code 1; anything else that
escapes is a bug and exits with code 3. Messages say what is wrong, where, and what to do; they
never contain a key, a prompt or a completion.
"""

from collections.abc import Mapping


class AegishError(Exception):
    """Base of every expected failure."""


class ConfigError(AegishError):
    """Raised when the environment or a setting cannot be used as it stands."""


class DatasetError(AegishError):
    """Raised when a dataset, a prompt file or a log cannot be read or breaks a rule.

    Attributes:
        problem: The rest of a sentence that begins with the place.
        line: 1-based; None, as of `field`, where the file or record as a whole is meant.
    """

    def __init__(
        self, problem: str, *, source: str, line: int | None = None, field: str | None = None
    ) -> None:
        self.problem = problem
        self.source = source
        self.line = line
        self.field = field
        where = source if line is None else f"{source}, line {line}"
        if field is not None:
            where = f"{where}, field '{field}'"
        super().__init__(f"{where}: {problem}")


class SecondVerdictError(Exception):
    """Raised when an item has a verdict already; only the caller knows where the second stood."""


class OtherDatasetError(Exception):
    """Raised when imported samples are not those of the stored dataset that they were taken for.

    An import that knows its `fingerprints`, by name of the dataset, succeeds.
    """

    def __init__(self, fingerprints: Mapping[str, str]) -> None:
        super().__init__()
        self.fingerprints = fingerprints


class InputError(ValueError):
    """Raised by `inputs` when a file or a value in it cannot be used, before its source is added.

    No `AegishError`: the reader of each kind of file turns it into an error of its own.

    Attributes:
        what: The rest of a sentence that begins with the field.
        field: Keys that lead to the value, joined by dots; None when there is no single one.
        text: What the file says there, for its reader to find the line by; empty: no line is found.
    """

    def __init__(
        self,
        what: str,
        *,
        line: int | None = None,
        field: str | None = None,
        text: str = "",
    ) -> None:
        self.what = what
        self.line = line
        self.field = field
        self.text = text
        where = "" if line is None else f"line {line}: "
        super().__init__(f"{where}{what}" if field is None else f"{where}key '{field}': {what}")

    def below(self, path: str) -> "InputError":
        """Return the same error about a value that stands below a path."""
        field = f"{path}.{self.field or ''}".replace(".[", "[").strip(".") or None
        return InputError(self.what, line=self.line, field=field, text=self.text)

    def under(self, heading: str) -> "InputError":
        """Return the same error about a value that stands under a heading of the file."""
        return InputError(f"{heading}: {self}", text=self.text)


class CatalogError(AegishError):
    """Raised when the model catalog is malformed or does not know a model."""


class OpinionError(AegishError):
    """Raised when a rule set, targets or an overlay do not exist or cannot be used."""


class QueueError(AegishError):
    """Raised when the broker cannot be reached or refuses a message."""


class RefusedQueueError(QueueError):
    """Raised when RabbitMQ has a queue with other arguments than a worker declares it with."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(f"RabbitMQ has queue '{queue}' with another type")


class StoreError(AegishError):
    """Raised when the database cannot be reached, is not migrated, or lacks what was asked for."""


class UnreadableRunError(StoreError):
    """Raised when the rows of a run hold what no version of the product writes; others go on."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(
            f"run {run_id} cannot be read: {why}; `aegish-dist runs delete {run_id}` removes it"
        )


class StoreUnusableError(StoreError):
    """Raised when the database is away, locked or full, or forbids what was asked of it."""


class StoreAwayError(StoreUnusableError):
    """Raised when the database was lost, or other sessions are in the way: worth another try."""


class ReportError(AegishError):
    """Raised when a report is asked of a run that has nothing to report."""


class ProviderError(AegishError):
    """Raised when one attempt to call a model brought no completion.

    Attributes:
        status: HTTP status, None when there was no response.
        retry_after_s: Seconds the provider asked us to wait, None when it did not say.
        cut: The connection broke after a long wait for the answer, which may be paid for.
    """

    def __init__(
        self,
        problem: str,
        *,
        error_class: str,
        status: int | None = None,
        retry_after_s: float | None = None,
        cut: bool = False,
    ) -> None:
        self.error_class = error_class
        self.status = status
        self.retry_after_s = retry_after_s
        self.cut = cut
        super().__init__(problem)


class LimiterUnreachableError(AegishError):
    """Raised when the Redis of the rate limiter does not answer; the request may be repeated."""


class OverBudgetError(AegishError):
    """Raised for an item whose run has reached a cost cap; it stays without a verdict."""


class BatchedItemError(AegishError):
    """Raised when the item's model is asked in batches before the item's call; its message goes."""


class RequeueError(AegishError):
    """Base of the reasons for which an item goes back to its queue without a verdict."""


class UnservedModelError(RequeueError):
    """Raised when this worker cannot call the item's model, though another worker may."""


class ItemShedError(RequeueError):
    """Raised when the circuit of the item's model is open, or far more items wait than it takes."""


class ShuttingDownError(RequeueError):
    """Raised when the worker began to stop before the item's call."""


class RunHeldError(RequeueError):
    """Raised when the item's run is paused or cancelled before the item's call."""


class LimiterFailedError(RequeueError):
    """Raised when a bug ended the renewal of leases while the item waited for its call."""


class RedeliveredError(RequeueError):
    """Raised when the broker lost the item's connection and gave its message to another worker."""


class EndlessResultsError(AegishError):
    """Raised when results of a batch exceed what its requests can have, in bytes, lines or time."""


class BatchTakenError(AegishError):
    """Raised when a worker writes to a batch that another one has since its lease ended."""


class OutputError(AegishError):
    """Raised when a file that a command should write cannot be written."""


class ClosedOutputError(OutputError):
    """Raised when the reader of standard output is gone, as `head` goes: no line is due."""


def interrupt_in(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt that an error is, or follows from as a library cleaned up after it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error
