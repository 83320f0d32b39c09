"""Grouping: many coroutines, one statement.

A group gathers for some milliseconds, and while the one before it is in the database: groups grow
with the load, and a lone item hardly waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from aegish_dist.logs import get_logger

log = get_logger(__name__)

Argument = TypeVar("Argument")
Result = TypeVar("Result")

GROUP_SIZE = 500
GATHER_S = 0.01
"""A hundred transactions a second at most; a hundredth of the shortest call to a real model."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0


class Grouped(Generic[Argument, Result]):
    """Makes one blocking call for all arguments that came in since the last one."""

    def __init__(
        self, call: Callable[[Sequence[Argument]], Sequence[Result]], executor: ThreadPoolExecutor
    ) -> None:
        """Wrap a call.

        Args:
            call: Takes a group in one transaction; returns one result per argument, in order.
            executor: Where it runs.
        """
        self._call = call
        self._executor = executor
        self._waiting: deque[tuple[Argument, asyncio.Future[Result]]] = deque()
        self._drainer: asyncio.Task[None] | None = None

    async def __call__(self, argument: Argument) -> Result:
        """Return the result for one argument once its group is through."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((argument, future))
        if self._drainer is None:
            self._drainer = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        try:
            while self._waiting:
                if len(self._waiting) < GROUP_SIZE:
                    await asyncio.sleep(GATHER_S)
                size = min(GROUP_SIZE, len(self._waiting))
                await self._run([self._waiting.popleft() for _ in range(size)])
        finally:
            self._drainer = None

    async def _run(self, group: list[tuple[Argument, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._until_reachable(
                [argument for argument, _ in group], FIRST_PAUSE_S
            )
        except Exception as error:
            if len(group) == 1:
                _settle(group[0][1], error)
                return
            # One bad row must not take its group along.
            for member in group:
                await self._run([member])
        else:
            for (_, future), result in zip(group, results, strict=True):
                _settle(future, result)

    async def _until_reachable(self, arguments: list[Argument], pause_s: float) -> Sequence[Result]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._call, arguments)
        except (OperationalError, InterfaceError, PoolTimeoutError) as error:
            if not _unreachable(error):
                raise
            log.warning("database_unreachable", items=len(arguments), retry_in_s=pause_s)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        # PostgreSQL hangs up on a group whose texts exceed a gigabyte: no group comes back whole.
        middle = len(arguments) // 2
        first = await self._until_reachable(arguments[:middle], pause_s) if middle else []
        return [*first, *await self._until_reachable(arguments[middle:], pause_s)]


def _unreachable(error: Exception) -> bool:
    # psycopg files disk-full, deadlock and shutdown under OperationalError as well: all pass.
    return not (isinstance(error, DBAPIError) and error.orig is None)


def _settle(future: "asyncio.Future[Result]", outcome: "Result | Exception") -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
