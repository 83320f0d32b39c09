"""The callers at hand in a worker process: made when first needed, the latest kept."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aegish_dist.pipeline.evaluate import Caller

KEPT_CALLERS = 500
"""Each holds its run's prompt; of a run that goes on it is made anew, for one look-up."""


class Callers:
    """Callers by run and model."""

    def __init__(self, make: Callable[[str, str], Coroutine[Any, Any, Caller]]) -> None:
        """Begin without any.

        Args:
            make: Makes the caller for a run id and a model id.
        """
        self._make = make
        self._made: dict[tuple[str, str], asyncio.Task[Caller]] = {}

    async def __call__(self, run_id: str, model: str) -> Caller:
        """Return the caller; whoever comes while it is made waits for the same one."""
        key = (run_id, model)
        task = self._made.pop(key, None) or asyncio.create_task(self._make(run_id, model))
        self._made[key] = task
        if len(self._made) > KEPT_CALLERS:
            del self._made[next(iter(self._made))]
        try:
            return await asyncio.shield(task)
        except Exception:
            self._made.pop(key, None)
            raise
