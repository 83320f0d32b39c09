"""The progress of a use case, for a screen or a log that follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aegish_dist.core.status import RunStatus


class Observer:
    """Follows a use case; by itself it does nothing, and subclasses override what they show."""

    def note(self, line: str) -> None:
        """Take one line about what is planned, or what went wrong without stopping the work."""

    def note_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Take a note of several rows."""

    def counting(
        self, what: str, total: int | None = None
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Give a callback for how many rows have been worked on so far.

        Their total is None when they are not counted beforehand.
        """
        return nullcontext(lambda _: None)

    def watching(self) -> AbstractContextManager[Callable[[RunStatus], None]]:
        """Give a callback for each count of a run that is worked on."""
        return nullcontext(lambda _: None)


SILENT = Observer()
