"""Grouped database calls: many coroutines, one statement, repeated until the database takes it.

A group gathers for some milliseconds, and while the group before it is in the database: groups grow
with the load, and a single item hardly waits. A coroutine gets its result, or an error that its own
argument causes. Answers are paid for, and an outage of any length must not lose one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from tempfile import mkdtemp
from typing import Generic, NamedTuple, TypeVar

from psycopg import Error as DriverError
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from aegish_dist.errors import OutputError, StoreUnusableError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.caller import Health
from aegish_dist.pipeline.evaluate import Evaluated
from aegish_dist.pipeline.spool import LEFT_OVER, REFUSED, spool

log = get_logger(__name__)

Argument = TypeVar("Argument")
Result = TypeVar("Result")

GROUP_SIZE = 500
# Seconds; 100 transactions a second at most, and 1 % of the shortest call to a real model.
GATHER_S = 0.01
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
# Seconds after which a call under way counts as a failing database, until it ends.
STUCK_AFTER_S = 5.0


class _Member(NamedTuple, Generic[Argument, Result]):
    argument: Argument
    future: "asyncio.Future[Result]"


_Group = list[_Member[Argument, Result]]


class Grouped(Generic[Argument, Result]):
    """Makes one blocking call for all arguments that arrived since the last call."""

    def __init__(
        self,
        call: Callable[[Sequence[Argument]], Sequence[Result]],
        executor: Executor,
        health: Health | None = None,
    ) -> None:
        """Wrap a call that runs one transaction for a group; one result per argument, in order."""
        self._call = call
        self._executor = executor
        self._health = health or Health()
        self._waiting: deque[_Member[Argument, Result]] = deque()
        self._under_way: list[_Group[Argument, Result]] = []
        self._drainer: asyncio.Task[None] | None = None

    async def __call__(self, argument: Argument) -> Result:
        """Return the result for one argument once its group is committed.

        An error that the argument causes is raised; after any other the call is repeated.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Member(argument, future))
        if self._drainer is None:
            self._drainer = asyncio.create_task(self._drain())
        return await future

    async def close(self) -> list[Argument]:
        """Make no further call; return the arguments without a result, of cancelled callers too.

        A call that hangs in its thread cannot be cancelled, and may still succeed.
        """
        if self._drainer is not None:
            self._drainer.cancel()
            await asyncio.wait([self._drainer])
        return self.pending

    @property
    def pending(self) -> list[Argument]:
        """The arguments without a result, those of the call under way included."""
        groups = (*self._under_way, self._waiting)
        return [member.argument for group in groups for member in group]

    async def _drain(self) -> None:
        limit, pause_s = GROUP_SIZE, FIRST_PAUSE_S
        try:
            while self._waiting:
                if len(self._waiting) < limit:
                    await asyncio.sleep(GATHER_S)
                size = min(limit, len(self._waiting))
                self._under_way = [[self._waiting.popleft() for _ in range(size)]]
                if await self._settle():
                    limit, pause_s = min(2 * limit, GROUP_SIZE), FIRST_PAUSE_S
                    continue
                await asyncio.sleep(pause_s)
                # PostgreSQL closes the connection on a group whose texts exceed 1 GB, and a row may
                # lie on a damaged page: in smaller groups, the others succeed.
                limit, pause_s = max(1, size // 2), min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            self._drainer = None

    async def _settle(self) -> bool:
        """Run the groups under way; return False if the database failed and they wait again."""
        while self._under_way:
            part = self._under_way[-1]
            try:
                results = await self._run(part)
            except Exception as error:
                if not is_own_fault(error):
                    self._failed(error)
                    return False
                self._under_way.pop()
                if len(part) == 1:
                    self._refuse(part[0], error)
                else:  # one bad row must not fail its group
                    middle = len(part) // 2
                    self._under_way += [part[middle:], part[:middle]]
            else:
                self._under_way.pop()
                for member, result in zip(part, results, strict=True):
                    if not member.future.done():
                        member.future.set_result(result)
            self._health.works(self)
        return True

    async def _run(self, part: _Group[Argument, Result]) -> Sequence[Result]:
        loop = asyncio.get_running_loop()
        stuck = loop.call_later(STUCK_AFTER_S, self._health.fails, self)
        try:
            arguments = [member.argument for member in part]
            return await loop.run_in_executor(self._executor, self._call, arguments)
        finally:
            stuck.cancel()

    def _failed(self, error: Exception) -> None:
        self._health.fails(self)
        for part in reversed(self._under_way):
            self._waiting.extend(part)
        self._under_way = []
        problem = str(_driver_error(error)).partition("\n")[0][:200]
        log.warning("database_fails", items=len(self._waiting), problem=problem, **facts(error))

    def _refuse(self, member: _Member[Argument, Result], error: Exception) -> None:
        if not member.future.done():
            member.future.set_exception(error)


class VerdictWriter(Grouped[Evaluated, None]):
    """Stores verdicts, and writes those to a file that the database does not take.

    A call returns once its verdict is committed, or refused and written to a file.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Evaluated]], Sequence[None]],
        executor: Executor,
        health: Health | None = None,
        *,
        folder: Path,
    ) -> None:
        super().__init__(call, executor, health)
        self._folder = folder
        self.spooled = 0

    async def close(self) -> list[Evaluated]:
        """Write the verdicts that are not stored to a file; their messages are requeued."""
        left = await super().close()
        if left:
            self._spool(left, LEFT_OVER)
        return left

    def _refuse(self, member: _Member[Evaluated, None], error: Exception) -> None:
        item = member.argument.item
        log.error(
            "verdict_refused",
            run=item.run_id,
            model=item.model,
            sample=item.sample_key,
            epoch=item.epoch,
            generation=item.generation,
            **facts(error),
        )
        self._spool([member.argument], REFUSED)
        if not member.future.done():
            member.future.set_result(None)

    def _spool(self, group: Sequence[Evaluated], kind: str) -> None:
        try:
            path = self._written(group, kind)
        except (OSError, OutputError) as error:
            log.error("answers_lost", answers=len(group), problem=str(error))
        except Exception:
            # Raised in the middle of a group, a bug would leave the other answers waiting for ever.
            log.exception("answers_lost", answers=len(group))
        else:
            self.spooled += len(group)
            log.error("answers_kept_in_file", answers=len(group), path=str(path))

    def _written(self, group: Sequence[Evaluated], kind: str) -> Path:
        """Write answers to the folder, or where that is full or closed, to one of their own."""
        try:
            return spool(self._folder, group, kind)
        except (OSError, OutputError) as error:
            log.warning("spool_fails", folder=str(self._folder), problem=str(error))
            return spool(Path(mkdtemp(prefix="aegish-dist-spool-")), group, kind)


def is_own_fault(error: Exception) -> bool:
    """Return whether an error is caused by the rows themselves, so that a retry cannot help.

    True for PostgreSQL's classes 22 (data) and 23 (integrity), and for an error of our own code.
    All others end by themselves or by an administrator's action: lost connections, a server that
    takes no writes, missing privileges, a full disk, a failed transaction, damaged pages.
    """
    refused = isinstance(error, (DataError, IntegrityError))
    # A value that the driver cannot send.
    unsent = isinstance(error, StatementError) and not isinstance(error, DBAPIError)
    away = (StoreUnusableError, SQLAlchemyError, DriverError, OSError, MemoryError)
    return refused or unsent or not isinstance(error, away)


def facts(error: Exception) -> dict[str, str | None]:
    """Return the fields of an error that a log may hold; details may quote rows and completions."""
    cause = _driver_error(error)
    return {"error": type(cause).__name__, "sqlstate": getattr(cause, "sqlstate", None)}


def _driver_error(error: Exception) -> BaseException:
    if isinstance(error, StoreUnusableError):
        return _driver_error(error.__cause__) if isinstance(error.__cause__, Exception) else error
    return getattr(error, "orig", None) or error
