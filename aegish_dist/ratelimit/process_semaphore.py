"""Calls at once in a worker process, over all models."""

from collections import deque
from collections.abc import Callable


class Places:
    """As many places as a process may have calls in flight; the gates take turns at free ones."""

    def __init__(self, number: int) -> None:
        """Open so many places."""
        self.free = number
        self._admitting: deque[Callable[[], None]] = deque()

    def join(self, admit: Callable[[], None]) -> None:
        """Have waiters of a gate admitted when a place is free."""
        self._admitting.append(admit)

    def take(self) -> None:
        """Count a call that begins."""
        self.free -= 1

    def leave(self) -> None:
        """Count a call that has ended, and let others begin."""
        self.free += 1
        for _ in range(len(self._admitting)):
            if self.free <= 0:
                return
            self._admitting.rotate(-1)
            self._admitting[-1]()
