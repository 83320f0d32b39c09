"""Items that a worker holds and whose calls have failed so far; nothing else is noted of any item.

The store learns of failed calls with the verdict of their item: until then, `status` shows what the
worker's report says of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.status import LATELY, FailedCalls
from aegish_dist.core.verdict import CallError, ErrorClass, Item


class FailingItems:
    """The failed calls of items that are held, on one event loop."""

    def __init__(self) -> None:
        """Begin without any."""
        self.backing_off: Counter[tuple[str, str]] = Counter()
        """Items that pause before their next call, by run id and model."""
        self.on_failure: Callable[[str, CallError], None] | None = None
        """Called with the model and each failed call; None: nothing counts them."""
        self._errors: dict[Item, list[CallError]] = {}

    def note(self, item: Item, errors: list[CallError]) -> None:
        """Follow the failed calls of an item; the list grows, and its last one is new."""
        self._errors[item] = errors
        if self.on_failure is not None:
            self.on_failure(item.model, errors[-1])

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
        """Return the failed calls by run id, those that are alike together."""
        kinds: dict[tuple[str, str, ErrorClass, int | None], list[CallError]] = {}
        for item, errors in self._errors.items():
            for error in errors:
                key = (item.run_id, item.model, error.error_class, error.status)
                kinds.setdefault(key, []).append(error)
        by_run: dict[str, list[FailedCalls]] = {}
        for (run_id, model, _, _), errors in kinds.items():
            by_run.setdefault(run_id, []).append(_together(model, errors, now))
        return by_run


def _together(model: str, errors: Sequence[CallError], now: datetime) -> FailedCalls:
    newest = max(errors, key=lambda error: error.at)
    return FailedCalls(
        at=newest.at,
        model=model,
        error_class=newest.error_class,
        status=newest.status,
        message=mask_key_shapes(newest.message),
        calls=len(errors),
        calls_lately=sum(now - error.at <= LATELY for error in errors),
    )
