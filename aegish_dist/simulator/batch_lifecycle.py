"""Batches over time: their requests are read, the simulated models answer, the batch ends.

Each batch has one task, which gives way to live calls between a few requests. Every decision is a
draw that belongs to model, command and how often batches asked it before, so that results depend
neither on the order of the requests nor on other batches.
"""

import asyncio
import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct, field

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.bill import Bill
from aegish_dist.simulator.config import BatchPlan, EndFault, Fault, RequestFault, pick
from aegish_dist.simulator.dialect import (
    Call,
    ChatRequest,
    ErrorAnswer,
    command_in,
    dialect_of,
    encode,
)
from aegish_dist.simulator.personas import draw

# Requests between two chances for other tasks: about 5 ms.
_SLICE = 50
_MAX_PROBLEMS = 20
# Factor on the duration of a slow batch.
_SLOWER = 5


class BatchPhase(StrEnum):
    """How far a batch is; each dialect has words of its own for it."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"
    """It was refused as a whole, and no request was begun."""


ENDED = frozenset(
    {BatchPhase.COMPLETED, BatchPhase.EXPIRED, BatchPhase.CANCELLED, BatchPhase.FAILED}
)


class NamedRequest(Struct, frozen=True):
    name: str
    chat: ChatRequest | ErrorAnswer
    """The request; an error when it is not valid, which fails this request alone."""


RequestOutcome = Completion | ErrorAnswer | Unanswered


class BatchProblem(Struct, frozen=True):
    code: str
    message: str
    line: int | None = None
    """1-based line of the input file; None when no line is at fault."""


class ResultLine(Struct, frozen=True):
    """One line of a batch's results, before a dialect writes it."""

    name: str
    outcome: RequestOutcome
    broken: bool = False
    """Whether the line is cut, so that it is no JSON."""


class StoredFile(Struct, frozen=True):
    id: str
    name: str
    purpose: str
    content: bytes
    created_s: float


class SimulatedBatch(Struct):
    """A batch; its task in `lifecycle` alone changes it, apart from `cancel`."""

    id: str
    wire: WireFormat
    created_s: float
    due_s: float
    """Unix time at which it ends unless it is cancelled."""
    source: Iterator[NamedRequest | BatchProblem]
    """Its requests as they are read; a problem ends them."""
    fault: EndFault | None = None
    limit: float = 1.0
    """Part of its time after which no request is begun, in [0, 1]."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts that its dialect repeats in each description: metadata, input file."""
    phase: BatchPhase = BatchPhase.VALIDATING
    cancelled_s: float | None = None
    ended_s: float | None = None
    requests: list[NamedRequest] = field(default_factory=list)
    size: int = 0
    moments: Sequence[float] = ()
    """Part of its time after which each request is answered, in (0, 1), in ascending order."""
    problems: list[BatchProblem] = field(default_factory=list)
    outcomes: list[RequestOutcome] = field(default_factory=list)
    lines: list[ResultLine] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    cancelling: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED

    @property
    def progress(self) -> float:
        """Part of its time in which it has worked, in [0, 1]."""
        passed_s = min(time.time(), self.cancelled_s or math.inf) - self.created_s
        whole_s = self.due_s - self.created_s
        return min(self.limit, passed_s / whole_s if whole_s > 0 else 1.0)

    @property
    def counts(self) -> tuple[int, int]:
        """How many requests are answered so far, and how many of the outcomes are none."""
        succeeded = sum(isinstance(outcome, Completion) for outcome in self.outcomes)
        answered = succeeded if self.has_ended else bisect_right(self.moments, self.progress)
        return answered, len(self.outcomes) - succeeded

    def cancel(self) -> None:
        """Begin no further request; without effect once it is cancelled or ended."""
        if self.cancelled_s is None and not self.has_ended:
            self.cancelled_s = time.time()
            self.phase = BatchPhase.CANCELLING
            self.cancelling.set()


_WITHHELD = {
    RequestFault.EMPTY: Fault.EMPTY,
    RequestFault.CONTENT_FILTER: Fault.CONTENT_FILTER,
    RequestFault.TOKEN_LIMIT: Fault.TOKEN_LIMIT,
}
_ERRORS = {
    RequestFault.REFUSED: ErrorClass.BAD_REQUEST,
    RequestFault.SERVER_ERROR: ErrorClass.SERVER,
    RequestFault.MISSING: ErrorClass.SERVER,
}


class BatchAnswer(Struct, frozen=True):
    """A request of a batch with the outcome that it has if the batch lasts long enough."""

    name: str
    model: str
    """Model that it asks; empty when it is not valid."""
    moment: float
    """Part of the batch's time after which it is answered, in (0, 1)."""
    outcome: Completion | ErrorAnswer
    fault: RequestFault | None = None
    chance: float = 0.0
    """Decides between the variants of its fault, in (0, 1)."""


def outcomes_at(
    answers: Sequence[BatchAnswer], progress: float, unanswered: Unanswered
) -> list[RequestOutcome]:
    """Return the outcomes of a batch that ended after a part of its time, in [0, 1]."""
    return [each.outcome if each.moment <= progress else unanswered for each in answers]


def result_lines(
    answers: Sequence[BatchAnswer], outcomes: Sequence[RequestOutcome]
) -> list[ResultLine]:
    """Return the lines that report the outcomes of some answers, with the faults of these."""
    lines: list[ResultLine] = []
    second: list[ResultLine] = []
    for answer, outcome in zip(answers, outcomes, strict=True):
        begun = not isinstance(outcome, Unanswered)
        fault = answer.fault if begun else None
        if fault is not RequestFault.MISSING:
            lines.append(ResultLine(answer.name, outcome, fault is RequestFault.MALFORMED))
        if fault is RequestFault.DUPLICATE:
            second.append(ResultLine(answer.name, outcome))
        if fault is RequestFault.FOREIGN:
            # A name that the batch does not have: of another token, or of another request.
            token = "1" if answer.name[:1] == "0" else "0"
            name = token + answer.name[1:] if answer.chance < 0.5 else f"{answer.name}9"
            second.append(ResultLine(name, outcome))
    return lines + second


T = TypeVar("T", SimulatedBatch, StoredFile)
Item = TypeVar("Item")
AtEnd = Callable[["BatchStore", SimulatedBatch], None]
"""Called just before a batch counts as ended, with its result lines in place, to leave files."""
_QUOTA = BatchProblem("token_limit_exceeded", "Enqueued token limit reached for this model.")


class BatchRunner:
    """Carries out batches in tasks of the running loop."""

    def __init__(
        self, seed: int, plan: BatchPlan, model: Callable[[str], SimulatedModel], bill: Bill
    ) -> None:
        self._seed = seed
        self._faults = plan.requests
        self._model = model
        self._bill = bill
        self._asked: Counter[tuple[str, str]] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, batch: SimulatedBatch, at_end: Callable[[SimulatedBatch], None]) -> None:
        task = asyncio.create_task(self._carry_out(batch, at_end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ask(self, request: NamedRequest, wire: WireFormat) -> BatchAnswer:
        chat = request.chat
        if isinstance(chat, ErrorAnswer):
            moment = draw(self._seed, "batch", request.name).latency
            return BatchAnswer(request.name, "", moment, chat)
        command = command_in(chat.user)
        times = self._asked[chat.model, command]
        self._asked[chat.model, command] += 1
        draws = draw(self._seed, "batch", chat.model, command, str(times))
        fault = pick(self._faults, draws.luck)
        outcome: Completion | ErrorAnswer | None = None
        if fault not in _ERRORS:
            withheld = None if fault is None else _WITHHELD.get(fault)
            outcome = self._model(chat.model).answer(chat, command, withheld).outcome
        if outcome is None:
            error_class = _ERRORS.get(fault, ErrorClass.SERVER) if fault else ErrorClass.SERVER
            words = dialect_of(wire).ERRORS[error_class].message
            outcome = ErrorAnswer(error_class, words.format(model=chat.model))
        return BatchAnswer(request.name, chat.model, draws.latency, outcome, fault, draws.form)

    async def _carry_out(
        self, batch: SimulatedBatch, at_end: Callable[[SimulatedBatch], None]
    ) -> None:
        await self._read(batch)
        phase = BatchPhase.FAILED if batch.problems else await self._answer(batch)
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
        asked = _in_slices(batch.requests)
        answers = [self.ask(request, batch.wire) async for request in asked]
        answers.sort(key=lambda answer: answer.moment)
        batch.moments = [answer.moment for answer in answers]
        if batch.phase is BatchPhase.VALIDATING:
            batch.phase = BatchPhase.IN_PROGRESS
        with suppress(TimeoutError):
            async with asyncio.timeout(batch.due_s - time.time()):
                await batch.cancelling.wait()
        phase = BatchPhase.COMPLETED
        if batch.cancelled_s is not None or batch.fault is EndFault.CANCELLED:
            phase = BatchPhase.CANCELLED
        elif batch.fault is EndFault.EXPIRED:
            phase = BatchPhase.EXPIRED
        if phase is not BatchPhase.EXPIRED or batch.wire is not WireFormat.GOOGLE:
            self._settle(batch, answers, phase)
        return phase

    def _settle(
        self, batch: SimulatedBatch, answers: Sequence[BatchAnswer], phase: BatchPhase
    ) -> None:
        expired = phase is BatchPhase.EXPIRED
        unanswered = Unanswered.EXPIRED if expired else Unanswered.CANCELLED
        progress = batch.limit if batch.cancelled_s is None else batch.progress
        batch.outcomes = outcomes_at(answers, progress, unanswered)
        if batch.fault is EndFault.FAILED:
            failed = ErrorAnswer(ErrorClass.SERVER, "Internal server error")
            batch.outcomes = [failed] * len(answers)
        batch.lines = result_lines(answers, batch.outcomes)
        for answer, outcome in zip(answers, batch.outcomes, strict=True):
            if isinstance(outcome, Completion):
                readable = answer.fault is not RequestFault.MALFORMED
                self._bill.charge_batch(answer.model, outcome.usage, answer.name, readable=readable)


async def _in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield items, with a chance for other tasks between slices of them."""
    for place, item in enumerate(items):
        if place % _SLICE == 0:
            await asyncio.sleep(0)
        yield item


class BatchStore:
    """The batches and files of one dialect; they end with the process."""

    def __init__(self, wire: WireFormat, plan: BatchPlan, runner: BatchRunner, seed: int) -> None:
        self.batches: dict[str, SimulatedBatch] = {}
        self.files: dict[str, StoredFile] = {}
        self.uploads: dict[str, tuple[str, bytearray]] = {}
        """Name of each file that arrives in parts, and what has come of it."""
        self.wire = wire
        self._plan = plan
        self._runner = runner
        self._seed = seed
        self._serial = count(1)
        self._numbers = count()

    def add_file(self, name: str, purpose: str, content: bytes) -> StoredFile:
        file = StoredFile(self._new_id("file"), name, purpose, content, time.time())
        self.files[file.id] = file
        return file

    def begin_upload(self, name: str) -> str:
        """Begin to take a file in parts, and return the identifier of the upload."""
        id = self._new_id("upload")
        self.uploads[id] = name, bytearray()
        return id

    def create(
        self,
        source: Iterator[NamedRequest | BatchProblem],
        facts: dict[str, Any],
        at_end: AtEnd = lambda _, __: None,
    ) -> SimulatedBatch:
        id, now_s = self._new_id("batch"), time.time()
        draws = draw(self._seed, "batch end", self.wire, str(next(self._numbers)))
        fault = pick(self._plan.ends, draws.luck)
        duration_s = self._plan.duration.at(draws.latency) * (
            _SLOWER if fault is EndFault.SLOW else 1
        )
        batch = SimulatedBatch(id, self.wire, now_s, now_s + duration_s, source, fault)
        batch.facts = facts
        if fault in (EndFault.EXPIRED, EndFault.CANCELLED):
            batch.limit = draws.length
        self.batches[id] = batch
        self._runner.start(batch, partial(at_end, self))
        return batch

    def listed(self) -> list[SimulatedBatch]:
        """Return the batches that a list shows, oldest first."""
        known_s = time.time() - self._plan.list_lag_s
        return [batch for batch in self.batches.values() if batch.created_s <= known_s]

    def remove(self, batch: SimulatedBatch) -> None:
        """Forget a batch and the files that it left."""
        del self.batches[batch.id]
        for id in batch.files.values():
            self.files.pop(id, None)

    def _new_id(self, kind: str) -> str:
        """Return 24 hexadecimal digits; those of another seed or dialect differ."""
        luck = draw(self._seed, "id", self.wire, kind, str(serial := next(self._serial))).luck
        return f"{int(luck * 2**48):012x}{serial:012x}"


def page(items: Iterable[T], limit: int, after: str, before: str = "") -> tuple[list[T], bool]:
    """Return the page of a list between two identifiers, newest first, and whether another follows.

    The items come oldest first; an empty identifier is no bound.
    """
    newest = list(items)[::-1]
    places = {item.id: place for place, item in enumerate(newest)}
    first, end = places.get(after, -1) + 1, places.get(before, len(newest))
    if before:
        return newest[max(first, end - limit) : end], end - limit > first
    return newest[first : first + limit], end > first + limit


def written(
    batch: SimulatedBatch,
    body: Callable[[ResultLine, Call], dict[str, Any]],
    kept: Callable[[ResultLine], bool] = lambda _: True,
) -> bytes:
    """Return the bytes of results, one JSON object a line."""
    content = bytearray()
    for place, line in enumerate(batch.lines):
        if kept(line):
            entry = encode(body(line, Call(f"{batch.id}{place:06x}", batch.created_s))).encode()
            content += (entry[: len(entry) // 2] if line.broken else entry) + b"\n"
    return bytes(content)
