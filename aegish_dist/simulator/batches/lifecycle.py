"""Answers batches over time: reads their requests, asks the simulated models, ends them.

Each batch has one task, which gives way to live calls between a few requests.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from aegish_dist.core.batch import Unanswered
from aegish_dist.core.completion import Completion
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.simulator.batches.batch import (
    BatchPhase,
    BatchProblem,
    NamedRequest,
    RequestOutcome,
    ResultLine,
    SimulatedBatch,
)
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.chance import draw
from aegish_dist.simulator.dialect import ChatRequest, ErrorAnswer, command_in

# Requests between two chances for other tasks: about 5 ms.
_SLICE = 50
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Answered:
    """A request and its outcome if the batch lasts long enough."""

    name: str
    moment: float
    outcome: Completion | ErrorAnswer


class BatchRunner:
    """Carries out batches in tasks of the running loop."""

    def __init__(self, seed: int, model: Callable[[str], SimulatedModel]) -> None:
        self._seed = seed
        self._model = model
        self._asked: Counter[tuple[str, str]] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, batch: SimulatedBatch, at_end: Callable[[SimulatedBatch], None]) -> None:
        """Begin a batch.

        Args:
            batch: The batch, just created.
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
        async for request in _in_slices(batch.source):
            if isinstance(request, BatchProblem):
                batch.problems.append(request)
            else:
                batch.requests.append(request)
        if batch.problems:
            return self._end(batch, BatchPhase.FAILED, at_end)
        batch.size = len(batch.requests)
        answers = [self._ask(request) async for request in _in_slices(batch.requests)]
        answers.sort(key=lambda answer: answer.moment)
        batch.moments = [answer.moment for answer in answers]
        if batch.phase is BatchPhase.VALIDATING:
            batch.phase = BatchPhase.IN_PROGRESS
        with suppress(TimeoutError):
            async with asyncio.timeout(batch.due_s - time.time()):
                await batch.cancelling.wait()
        batch.outcomes = [_outcome(answer, batch) for answer in answers]
        names = (answer.name for answer in answers)
        batch.lines = list(map(ResultLine, names, batch.outcomes))
        whole = batch.cancelled_s is None
        return self._end(batch, BatchPhase.COMPLETED if whole else BatchPhase.CANCELLED, at_end)

    def _end(
        self,
        batch: SimulatedBatch,
        phase: BatchPhase,
        at_end: Callable[[SimulatedBatch], None],
    ) -> None:
        batch.ended_s = time.time()
        at_end(batch)
        batch.phase = phase

    def _ask(self, request: NamedRequest) -> _Answered:
        chat = request.chat
        if isinstance(chat, ErrorAnswer):
            return _Answered(request.name, draw(self._seed, "batch", request.name).luck, chat)
        command = command_in(chat.user)
        times = self._count(chat, command)
        draws = draw(self._seed, "batch", chat.model, command, str(times))
        outcome = self._model(chat.model).answer(chat, command).outcome
        if outcome is None:
            outcome = ErrorAnswer(ErrorClass.SERVER, "the request timed out")
        return _Answered(request.name, draws.latency, outcome)

    def _count(self, chat: ChatRequest, command: str) -> int:
        """Return how often batches asked this before, and count it."""
        asked = (chat.model, command)
        self._asked[asked] += 1
        return self._asked[asked] - 1


async def _in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items, with a chance for other tasks between slices of them."""
    for place, item in enumerate(items):
        if place % _SLICE == 0:
            await asyncio.sleep(0)
        yield item


def _outcome(answer: _Answered, batch: SimulatedBatch) -> RequestOutcome:
    """Return the outcome of a request; after the end of its batch it is not answered."""
    if batch.cancelled_s is not None and answer.moment > batch.progress(batch.cancelled_s):
        return Unanswered.CANCELLED
    return answer.outcome
