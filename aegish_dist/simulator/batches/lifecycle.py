"""Answers batches over time: reads their requests, asks the simulated models, ends them.

Each batch has one task, which gives way to live calls between a few requests.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from aegish_dist.core.batch import Unanswered
from aegish_dist.core.completion import Completion
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.wire import WireFormat
from aegish_dist.simulator.batch_plan import BatchPlan, EndFault, RequestFault
from aegish_dist.simulator.batches.batch import BatchPhase, BatchProblem, SimulatedBatch
from aegish_dist.simulator.batches.results import (
    BatchAnswer,
    BatchAnswers,
    outcomes_at,
    result_lines,
)
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.bill import Bill
from aegish_dist.simulator.dialect import ErrorAnswer

# Requests between two chances for other tasks: about 5 ms.
_SLICE = 50
_MAX_PROBLEMS = 20
_QUOTA = BatchProblem("token_limit_exceeded", "Enqueued token limit reached for this model.")
T = TypeVar("T")


class BatchRunner:
    """Carries out batches in tasks of the running loop."""

    def __init__(
        self, seed: int, plan: BatchPlan, model: Callable[[str], SimulatedModel], bill: Bill
    ) -> None:
        self._answers = BatchAnswers(seed, plan, model)
        self._bill = bill
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, batch: SimulatedBatch, at_end: Callable[[SimulatedBatch], None]) -> None:
        """Begin a batch.

        Args:
            at_end: Called with its result lines in place, just before it counts as ended.
        """
        task = asyncio.create_task(self._carry_out(batch, at_end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all tasks, finished or not."""
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(
        self, batch: SimulatedBatch, at_end: Callable[[SimulatedBatch], None]
    ) -> None:
        await self._read(batch)
        if batch.problems:
            phase = BatchPhase.FAILED
        else:
            phase = await self._answer(batch)
        batch.ended_s = time.time()
        at_end(batch)
        batch.phase = phase

    async def _read(self, batch: SimulatedBatch) -> None:
        async for request in _in_slices(batch.source):
            if not isinstance(request, BatchProblem):
                batch.requests.append(request)
            elif len(batch.problems) < _MAX_PROBLEMS:
                batch.problems.append(request)
        self._bill.count_batch(batch.requests[0].name if batch.requests else "")
        if batch.fault is EndFault.FAILED and batch.wire is not WireFormat.ANTHROPIC:
            batch.problems.append(_QUOTA)
        if not batch.problems:
            batch.size = len(batch.requests)

    async def _answer(self, batch: SimulatedBatch) -> BatchPhase:
        """Answer the requests until the batch is due or cancelled; return the phase it ends in."""
        asked = _in_slices(batch.requests)
        answers = [self._answers.ask(request, batch.wire) async for request in asked]
        answers.sort(key=lambda answer: answer.moment)
        batch.moments = [answer.moment for answer in answers]
        if batch.phase is BatchPhase.VALIDATING:
            batch.phase = BatchPhase.IN_PROGRESS
        with suppress(TimeoutError):
            async with asyncio.timeout(batch.due_s - time.time()):
                await batch.cancelling.wait()
        phase = _last_phase(batch)
        if phase is BatchPhase.EXPIRED and batch.wire is WireFormat.GOOGLE:
            return phase
        self._settle(batch, answers, phase)
        return phase

    def _settle(
        self, batch: SimulatedBatch, answers: Sequence[BatchAnswer], phase: BatchPhase
    ) -> None:
        expired = phase is BatchPhase.EXPIRED
        unanswered = Unanswered.EXPIRED if expired else Unanswered.CANCELLED
        cancelled_s = batch.cancelled_s
        progress = batch.limit if cancelled_s is None else batch.progress(cancelled_s)
        batch.outcomes = outcomes_at(answers, progress, unanswered)
        if batch.fault is EndFault.FAILED:
            failed = ErrorAnswer(ErrorClass.SERVER, "Internal server error")
            batch.outcomes = [failed] * len(answers)
        batch.lines = result_lines(answers, batch.outcomes)
        for answer, outcome in zip(answers, batch.outcomes, strict=True):
            if isinstance(outcome, Completion):
                readable = answer.fault is not RequestFault.MALFORMED
                usage = outcome.usage
                self._bill.charge_batch(answer.model, usage, answer.name, readable=readable)


def _last_phase(batch: SimulatedBatch) -> BatchPhase:
    if batch.cancelled_s is not None or batch.fault is EndFault.CANCELLED:
        return BatchPhase.CANCELLED
    return BatchPhase.EXPIRED if batch.fault is EndFault.EXPIRED else BatchPhase.COMPLETED


async def _in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items, with a chance for other tasks between slices of them."""
    for place, item in enumerate(items):
        if place % _SLICE == 0:
            await asyncio.sleep(0)
        yield item
