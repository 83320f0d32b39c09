"""Decisions about batches: how long to wait, what a failed attempt leaves, what a result means.

Pure: `pipeline/batches` asks the store and the provider, and does what is decided here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from aegish_dist.core.batch import BATCH_WINDOW_S, BatchItem, BatchLimits
from aegish_dist.core.failures import KINDS
from aegish_dist.core.verdict import ErrorClass

MAX_TRIES = 3
"""Batches after which an item that got no verdict in any of them is asked live."""
POLL_SHARE = 0.1
"""A batch is looked at again after this share of its age."""
MAX_DOUBLINGS = 16
UNKNOWN_AFTER_S = 2 * BATCH_WINDOW_S + 7_200
"""Seconds after which a batch that its provider does not know is taken to have ended: Gemini's end
last, after two windows."""


@dataclass(frozen=True, slots=True)
class BatchPace:
    """The pauses between two looks at a batch, all of them multiples of the first one."""

    first_s: float = 10.0
    """Seconds until a batch that was handed over is looked at, and after a first failure."""

    @property
    def longest_s(self) -> float:
        """Seconds between two looks at most."""
        return 30 * self.first_s

    @property
    def lease_s(self) -> float:
        """Seconds without a sign of life after which another worker takes a batch."""
        return max(3.0, 6 * self.first_s)

    @property
    def certain_s(self) -> float:
        """Seconds after an attempt to create from which a provider's list is complete."""
        return 30 * self.first_s

    def next_poll_s(self, age_s: float) -> float:
        """Return the seconds until the next look at a batch."""
        return min(self.longest_s, max(self.first_s, age_s * POLL_SHARE))

    def after_failures_s(self, failures: int, asked_s: float | None = None) -> float:
        """Return the seconds until the next request after some that failed.

        Args:
            failures: How many failed in a row, at least 1.
            asked_s: Seconds that the provider asked to wait; None: it did not say.
        """
        doubled_s = self.first_s * float(2 ** min(failures - 1, MAX_DOUBLINGS))
        return max(min(self.longest_s, doubled_s), asked_s or 0.0)


def may_exist(status: int | None) -> bool:
    """Return whether a failed attempt to create a batch may have created it.

    Only a refusal (4xx) says that it has not. A 408 comes from a proxy that waited for
    the provider.

    Args:
        status: HTTP status of the failure, None when there was no response.
    """
    return status is None or not 400 <= status < 500 or status == 408


def is_permanent(error_class: ErrorClass) -> bool:
    """Return whether an errored result is the row's own, if the model answers others.

    As with a live call that is not tried again: its request was refused. All other classes pass,
    or belong to the key, the account or the host, and the item is asked again.
    """
    return KINDS[error_class] == KINDS[ErrorClass.BAD_REQUEST]


@dataclass(frozen=True, slots=True)
class SizedItem:
    """An item as it would be sent."""

    item: BatchItem
    bytes: int
    usd: Decimal | None
    """Expected cost; None when a price is unknown."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The items of one batch."""

    items: tuple[BatchItem, ...]
    """In their order."""
    expected_usd: Decimal | None
    """Expected cost; None when a price is unknown."""
    short_of_money: bool = False
    """Whether it ends where it does because the caps leave no more money."""


def cut(items: Iterable[SizedItem], limits: BatchLimits, left_usd: Decimal | None) -> Cut:
    """Take the items of the next batch from the front of those that are missing.

    Args:
        items: Those that are in no batch; read no further than the batch goes.
        left_usd: Money that the caps leave; None: no cap.
    """
    taken: list[BatchItem] = []
    size, usd, known, short = 0, Decimal(0), True, False
    for each in items:
        size, usd = size + each.bytes, usd + (each.usd or 0)
        # A request that is too large by itself is the provider's to refuse.
        if taken and (len(taken) == limits.requests or size > limits.bytes):
            usd -= each.usd or 0
            break
        if left_usd is not None and usd > left_usd:
            usd, short = usd - (each.usd or 0), True
            break
        taken.append(each.item)
        known = known and each.usd is not None
    return Cut(tuple(taken), usd if known else None, short)
