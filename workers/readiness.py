"""Whether a worker takes items, and if not, why."""

from dataclasses import dataclass
from time import monotonic
from typing import Any

SILENT_S = 10.0
"""Seconds without an answer of the database after which the worker does not count as ready. It is
asked every 5 s at least."""


@dataclass(slots=True)
class Readiness:
    """State of the parts that have to work before items are taken; any thread may read it."""

    broker_connected: bool = False
    channel: Any = None
    """The channel that fetches; ours knows for how long the broker owes it an answer."""
    stopping: bool = False
    _seen_at: float | None = None

    def database_seen(self) -> None:
        """Note that the database has answered."""
        self._seen_at = monotonic()

    @property
    def _broker_silent_s(self) -> float:
        return float(getattr(self.channel, "silent_s", 0.0))

    def problems(self, *, takes_verdicts: bool) -> list[str]:
        """Return why no items are taken; empty when they are.

        Args:
            takes_verdicts: Whether the database took the last verdicts, as far as there were any.
        """
        # Celery's `-Q` may name queues of others: then nothing looks for runs.
        silent = self._seen_at is not None and monotonic() - self._seen_at > SILENT_S
        found = {
            "the worker is stopping": self.stopping,
            "the database takes no verdicts": not takes_verdicts,
            f"the database has not answered for {SILENT_S:g} s": silent,
            "there is no connection to the broker": not self.broker_connected,
            f"the broker has not answered for {SILENT_S:g} s": self._broker_silent_s > SILENT_S,
        }
        return [problem for problem, holds in found.items() if holds]
