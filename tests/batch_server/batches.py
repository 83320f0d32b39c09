"""Batches: what they are asked, and their lives.

The module of a wire format with batches has a tuple `ROUTES`: method, path, and the function that
replies. A path names at most one batch or file, as `name`.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from aiohttp import web
from msgspec import Struct, field
from msgspec.structs import replace

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator.behaviour import SimulatedModel
from aegish_dist.simulator.dialect import Call, ChatRequest, ErrorAnswer, command_in, encode
from aegish_dist.simulator.personas import draw, parse_latency
from tests.batch_server.bill import BatchBill


class UnknownNameError(Exception):
    """Raised when a path names no batch or file of ours."""


class BatchAnswer(Struct, frozen=True):
    """A request of a batch with its outcome."""

    name: str
    outcome: Completion | ErrorAnswer | Unanswered
    model: str
    moment: float  # part of the batch's time after which it is answered, in (0, 1)

    @property
    def is_answered(self) -> bool:
        return isinstance(self.outcome, Completion)


class SimulatedBatch(Struct):
    """A batch; its task alone changes it, apart from `cancel`."""

    id: str
    created_s: float
    due_s: float  # Unix time at which it ends unless it is cancelled
    facts: dict[str, Any]
    """Facts that its dialect repeats in each description: metadata, input file."""
    answers: list[BatchAnswer]
    """Their outcomes are final when it has ended."""
    cancelled_s: float | None = None
    ended_s: float | None = None
    cancelling: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_ended(self) -> bool:
        return self.ended_s is not None

    @property
    def answered(self) -> int:
        """Count the requests that are answered so far."""
        return sum(answer.is_answered for answer in self.reached())

    def reached(self) -> list[BatchAnswer]:
        """Return the answers whose moment has come."""
        now_s = time.time() if self.cancelled_s is None else self.cancelled_s
        progress = (now_s - self.created_s) / (self.due_s - self.created_s)
        return [answer for answer in self.answers if answer.moment <= progress]

    def cancel(self) -> None:
        """Begin no further request; without effect once it is cancelled or ended."""
        if self.cancelled_s is None and not self.has_ended:
            self.cancelled_s = time.time()
            self.cancelling.set()

    async def carry_out(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.due_s - time.time()):
                await self.cancelling.wait()
        if self.cancelled_s is not None:
            begun = {answer.name for answer in self.reached()}
            self.answers = [
                answer if answer.name in begun else replace(answer, outcome=Unanswered.CANCELLED)
                for answer in self.answers
            ]
        self.ended_s = time.time()

    def written(
        self, answers: Iterable[BatchAnswer], body: Callable[[BatchAnswer, Call], dict[str, Any]]
    ) -> bytes:
        """Return the bytes of results, one JSON object a line."""
        lines = [
            encode(body(answer, Call(f"{self.id}{place:06x}", self.created_s)))
            for place, answer in enumerate(answers)
        ]
        return "".join(f"{line}\n" for line in lines).encode()


class BatchStore:
    """The batches and files of one dialect; they end with the process."""

    def __init__(
        self, duration: str, model: Callable[[str], SimulatedModel], bill: BatchBill
    ) -> None:
        self.batches: dict[str, SimulatedBatch] = {}
        self.files: dict[str, bytes] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._duration_s = parse_latency(duration)
        self._model = model
        self._bill = bill

    def add_file(self, content: bytes) -> str:
        name = f"file-{secrets.token_hex(12)}"
        self.files[name] = content
        return name

    def create(
        self, prefix: str, requests: Iterable[tuple[str, ChatRequest]], facts: dict[str, Any]
    ) -> SimulatedBatch:
        answers = [self._ask(name, chat) for name, chat in requests]
        self._bill.count_batch(answers[0].name)
        now_s = time.time()
        name = f"{prefix}{secrets.token_hex(12)}"
        duration_s = self._duration_s(draw(0, "batch", name).latency)
        batch = SimulatedBatch(name, now_s, now_s + duration_s, facts, answers)
        self.batches[name] = batch
        task = asyncio.create_task(self._carry_out(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return batch

    def _ask(self, name: str, chat: ChatRequest) -> BatchAnswer:
        """Return the outcome that a request has if its batch lasts long enough."""
        outcome = self._model(chat.model).answer(chat, command_in(chat.user)).outcome
        assert outcome is not None
        return BatchAnswer(name, outcome, chat.model, draw(0, "batch", name).latency)

    async def _carry_out(self, batch: SimulatedBatch) -> None:
        await batch.carry_out()
        for answer in batch.answers:
            if isinstance(answer.outcome, Completion):
                self._bill.charge_request(answer.model, answer.name, answer.outcome.usage)


Reply = dict[str, Any] | bytes


class BatchCall(Struct, frozen=True):
    request: web.BaseRequest
    store: BatchStore
    name: str  # of the batch or file that its path names

    @property
    def batch(self) -> SimulatedBatch:
        if self.name not in self.store.batches:
            raise UnknownNameError(f"No such batch: {self.name}")
        return self.store.batches[self.name]

    @property
    def file(self) -> bytes:
        if self.name not in self.store.files:
            raise UnknownNameError(f"No such file: {self.name}")
        return self.store.files[self.name]

    async def json(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(await self.request.read())
        return body

    def listing(
        self, describe: Callable[[SimulatedBatch], dict[str, Any]], after: str
    ) -> dict[str, Any]:
        """Return a page of the list of batches, newest first, in the form that both share."""
        query = self.request.query
        names = list(self.store.batches)[::-1]
        first = names.index(query[after]) + 1 if after in query else 0
        last = first + int(query.get("limit", 20))
        page = names[first:last]
        return {
            "data": [describe(self.store.batches[name]) for name in page],
            "has_more": len(names) > last,
            "first_id": page[0] if page else None,
            "last_id": page[-1] if page else None,
        }
