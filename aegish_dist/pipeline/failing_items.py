"""Items that a worker holds and whose calls have failed so far; nothing else is noted of any item.

The store learns of failed calls with the verdict of their item: until then, `status` shows what the
worker's report says of them.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.status import FailedCalls
from aegish_dist.core.verdict import CallError, Item

LATELY = timedelta(minutes=1)
"""Age up to which a failed call counts as one of the last minute."""


class FailingItems:
    """The failed calls of items that are held, on one event loop."""

    def __init__(self) -> None:
        """Begin without any."""
        self.backing_off: Counter[tuple[str, str]] = Counter()
        """Items that pause before their next call, by run id and model."""
        self._errors: dict[Item, list[CallError]] = {}

    def note(self, item: Item, errors: list[CallError]) -> None:
        """Follow the failed calls of an item from its first one on; the list may grow."""
        self._errors[item] = errors

    def forget(self, item: Item) -> None:
        """Leave an item out that is held no longer, or waits for its verdict to be stored."""
        self._errors.pop(item, None)

    @contextmanager
    def pausing(self, item: Item) -> Iterator[None]:
        """Count an item as pausing while the body runs."""
        key = (item.run_id, item.model)
        self.backing_off[key] += 1
        try:
            yield
        finally:
            self.backing_off[key] -= 1
            if not self.backing_off[key]:
                del self.backing_off[key]

    def by_run(self, now: datetime) -> dict[str, list[FailedCalls]]:
        """Return the failed calls by run id, those that are alike together.

        Args:
            now: The time, with a zone.
        """
        kinds: dict[tuple[object, ...], tuple[str, FailedCalls]] = {}
        for item, errors in self._errors.items():
            for error in errors:
                key = (item.run_id, item.model, error.error_class, error.status)
                _, before = kinds.get(key, (item.run_id, None))
                kinds[key] = item.run_id, _with(before, item.model, error, now)
        by_run: dict[str, list[FailedCalls]] = {}
        for run_id, calls in kinds.values():
            masked = replace(calls, message=mask_key_shapes(calls.message))
            by_run.setdefault(run_id, []).append(masked)
        return by_run


def _with(before: FailedCalls | None, model: str, error: CallError, now: datetime) -> FailedCalls:
    """Add a failed call to those that are alike."""
    lately = now - error.at <= LATELY
    calls, calls_lately = (0, 0) if before is None else (before.calls, before.calls_lately)
    counts = calls + 1, calls_lately + lately
    if before is not None and before.at > error.at:
        return replace(before, calls=counts[0], calls_lately=counts[1])
    return FailedCalls(error.at, model, error.error_class, error.status, error.message, *counts)
