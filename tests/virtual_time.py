"""An event loop whose clock jumps to the next timer: minutes pass in the time of their work."""

import asyncio
import heapq
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

START_S = 1_000.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never waits; only for code that stays inside its process."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_s = START_S

    def time(self) -> float:
        return self._virtual_s

    # Of asyncio, which has no public way to wait for nothing but timers; typeshed knows none of them.
    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]
    _timer_cancelled_count: int

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        if not self._ready and self._scheduled:
            self._virtual_s = max(self._virtual_s, self._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]  # not in typeshed


def run_virtually(main: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
