"""Where a worker moves its batches: its name, its store and its pace."""

import asyncio
from asyncio import wrap_future
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.batch_rules import BatchPace
from aegish_dist.core.verdict import Item
from aegish_dist.db.batches import TakenBatch, give_back, problem_text, write
from aegish_dist.db.engine import transaction
from aegish_dist.errors import StoreAwayError
from aegish_dist.telemetry.work import Work

T = TypeVar("T")

OUTLAST_S = 60.0
"""Seconds for which a restart of the database is waited out: an answer may be in memory."""
RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Desk:
    """The place of one worker."""

    engine: Engine
    executor: Executor
    """Executor of its transactions; the event loop does not block."""
    publish: Callable[[Sequence[Item]], Awaitable[None]]
    """Puts items into the queues of live calls; raises `QueueError`."""
    worker: str
    pace: BatchPace
    work: Work | None = None
    """Counts stored verdicts; None: nothing does."""

    async def ask(self, query: Callable[[Session], T]) -> T:
        """Return the result of a transaction, which is made again while the database is away.

        A commit whose answer is lost is made twice: each query leaves the same the second time, or
        raises `BatchTakenError`.

        Raises:
            StoreUnusableError: The database was away for a minute, or refuses.
        """
        until = monotonic() + OUTLAST_S
        while True:
            try:
                return await wrap_future(self.executor.submit(self._transact, query))
            except StoreAwayError:
                if monotonic() > until:
                    raise
            await asyncio.sleep(RETRY_S)

    def _transact(self, query: Callable[[Session], T]) -> T:
        with transaction(self.engine) as session:
            return query(session)

    async def write(self, batch: TakenBatch, **values: object) -> None:
        """Write columns of a batch that this worker has and keeps."""
        await self.ask(lambda session: write(session, batch, self.worker, **values))

    async def give_back(self, batch: TakenBatch, due_in_s: float, **values: object) -> None:
        """Write columns of a batch, and let any worker take it after some seconds."""
        await self.ask(lambda session: give_back(session, batch, self.worker, due_in_s, **values))

    async def failed(
        self, batch: TakenBatch, error: Exception, asked_s: float | None = None, **values: object
    ) -> None:
        """Give back a batch after a failed request, for longer after each one in a row.

        Args:
            asked_s: Seconds that the provider asked to wait; None: it did not say.
        """
        failures = batch.failures + 1
        await self.give_back(
            batch,
            self.pace.after_failures_s(failures, asked_s),
            failures=failures,
            problem=problem_text(str(error)),
            **values,
        )
