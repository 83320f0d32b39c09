"""A provider of batches inside the test, and a worker that keeps batches with it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from msgspec import Struct, field
from sqlalchemy import Engine, func, text, update

from aegish_dist.core.batches import (
    BatchLimits,
    BatchPace,
    BatchReport,
    BatchRequest,
    BatchResult,
    Unanswered,
)
from aegish_dist.core.model import Price, Rate
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import RunPause
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Item, Usage
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import hold
from aegish_dist.db.schema import RUN_MODELS
from aegish_dist.errors import ProviderError
from aegish_dist.models.credentials import CatalogCredentials
from aegish_dist.pipeline.batches.keeper import BatchKeeper
from aegish_dist.pipeline.batches.steps import BatchContext
from aegish_dist.providers.batches.transfer import BatchClient
from aegish_dist.telemetry.metrics import WorkerMetrics
from tests.integration.stored_runs import a_model, stored_run
from workers.store import DaemonThread

RUN = "0abcdefgh"
MODEL = a_model(
    "openai/a",
    base_url="https://api.openai.com/v1",
    key_variable="OPENAI_API_KEY",
    price=Price(Rate(Decimal(2)), Rate(Decimal(10))),
    batch_share=Decimal("0.5"),
)
KEYS = {"OPENAI_API_KEY": "a key"}
PACE = BatchPace(0.01)
ANSWER = Completion('{"action": "BLOCK"}', usage=Usage(1000, 100))
"""Costs (1,000 x 2 + 100 x 10) / 1,000,000 x 0.5 = 0.0015 USD."""
WITHIN_S = 20.0


def refused(status: int, kind: ErrorClass = ErrorClass.AUTH) -> ProviderError:
    return ProviderError(f"HTTP {status}: no", error_class=kind, status=status)


BROKEN = ProviderError("connection failed: reset", error_class=ErrorClass.CONNECTION)

Answers = Callable[[BatchRequest], Completion | ProviderError | Unanswered | None]


def answers(_: BatchRequest) -> Completion:
    return ANSWER


class FakeProvider(Struct):
    """Keeps batches in memory; ends each at once."""

    answer: Answers = answers
    limits: BatchLimits = field(default_factory=lambda: BatchLimits(1000, 1_000_000))
    keeps_token: bool = True
    create_faults: list[tuple[bool, Exception | None]] = field(default_factory=list)
    """For each attempt to create, whether it succeeds, and what is raised all the same."""
    result_faults: list[int] = field(default_factory=list)
    """For each stream of results, after how many lines it breaks off."""
    extra: Callable[[str, list[BatchResult]], list[BatchResult]] = lambda _, lines: lines
    """Changes the lines of a batch with this token."""
    report: BatchReport = field(default_factory=lambda: BatchReport(True))
    delay_s: float = 0.0
    """Seconds before a batch is made, and again before its name is answered."""
    hides: int = 0
    """How many lists leave the newest batch out."""
    made: dict[str, tuple[str, list[BatchRequest]]] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    cancel_refusal: ProviderError | None = None
    """Answer to each request to cancel; a 404 answers looks as well."""

    @property
    def asked(self) -> list[BatchRequest]:
        return [request for _, requests in self.made.values() for request in requests]

    def size(self, request: BatchRequest, token: str) -> int:
        return len(request.command) + 10

    async def create(self, token: str, requests: Iterable[BatchRequest]) -> str:
        await asyncio.sleep(self.delay_s)
        creates, error = self.create_faults.pop(0) if self.create_faults else (True, None)
        name = f"batch_{len(self.made)}"
        if creates:
            self.made[name] = (token, list(requests))
        await asyncio.sleep(self.delay_s)
        if error is not None:
            raise error
        return name

    async def find(self, token: str, requests: int, since: datetime) -> list[str]:
        if self.hides:
            self.hides -= 1
            return []
        return [
            name
            for name, (its, made) in self.made.items()
            if (its == token if self.keeps_token else len(made) == requests)
        ]

    async def poll(self, name: str) -> BatchReport:
        if self.cancel_refusal is not None and self.cancel_refusal.status == 404:
            raise self.cancel_refusal
        return self.report

    async def results(self, name: str, _: int) -> AsyncIterator[BatchResult]:
        token, requests = self.made[name]
        lines = [
            BatchResult(request.item.name(token), answer)
            for request in requests
            if (answer := self.answer(request)) is not None
        ]
        breaks = self.result_faults.pop(0) if self.result_faults else None
        for number, line in enumerate(self.extra(token, lines)):
            if number == breaks:
                raise BROKEN
            yield line

    async def cancel(self, name: str) -> None:
        if self.cancel_refusal is not None:
            raise self.cancel_refusal
        self.cancelled.append(name)

    async def discard(self, name: str) -> None:
        pass


def commands(number: int, name: str = "ls") -> Dataset:
    samples = (Sample(f"{name} {n}", TrueLabel.HARMLESS) for n in range(number))
    return Dataset("many", tuple(samples))


class Bench(Struct):
    """A worker's keeper on a store, and what it has published."""

    engine: Engine
    provider: FakeProvider
    environ: dict[str, str] = field(default_factory=lambda: dict(KEYS))
    pace: BatchPace = PACE
    published: list[Item] = field(default_factory=list)
    work: WorkerMetrics = field(default_factory=WorkerMetrics)

    @contextmanager
    def context(self, worker: str = "w1") -> Iterator[BatchContext]:
        thread = DaemonThread("test-store")
        try:
            yield BatchContext(self.engine, thread, self._publish, worker, self.pace, self.work)
        finally:
            # A call under way would take a connection from an engine that the test has left.
            thread.submit(lambda: None).result(timeout=WITHIN_S)
            thread.shutdown()

    async def _publish(self, items: Sequence[Item]) -> None:
        self.published += items

    def keep(self, until: Callable[[], bool], workers: int = 1) -> None:
        async def body(contexts: Sequence[BatchContext]) -> None:
            stopping = asyncio.Event()
            running = [asyncio.create_task(self.keeper(each).run(stopping)) for each in contexts]
            try:
                async with asyncio.timeout(WITHIN_S):
                    while not await asyncio.to_thread(until):
                        await asyncio.sleep(0.01)
            finally:
                stopping.set()
                await asyncio.gather(*running)

        with ExitStack() as stack:
            names = [f"w{number + 1}" for number in range(workers)]
            asyncio.run(body([stack.enter_context(self.context(name)) for name in names]))

    def keeper(self, context: BatchContext) -> BatchKeeper:
        credentials = CatalogCredentials(None, self.environ)
        return BatchKeeper(context, lambda *_: cast(BatchClient, self.provider), credentials)

    def keep_and_kill(self, after_s: float, worker: str) -> None:
        """Keep batches for some seconds, and end in the middle of what is under way."""

        async def body(context: BatchContext) -> None:
            keeper = self.keeper(context)
            running = asyncio.create_task(keeper.run(asyncio.Event()))
            await asyncio.sleep(after_s)
            keeper.cancel()
            running.cancel()
            await asyncio.wait([running])

        with self.context(worker) as context:
            asyncio.run(body(context))

    def rows(self, sql: str) -> list[Any]:
        with transaction(self.engine) as session:
            return list(session.execute(text(sql)).all())

    def states(self) -> list[str]:
        return [row[0] for row in self.rows("SELECT state FROM batches ORDER BY id")]

    def verdicts(self) -> int:
        return int(self.rows("SELECT count(*) FROM verdicts")[0][0])

    def execute(self, sql: str) -> None:
        with transaction(self.engine) as session:
            session.execute(text(sql))

    def hold(self, reason: RunPause) -> None:
        with transaction(self.engine) as session:
            hold(session, RUN, reason)

    def has_verdicts(self, number: int) -> Callable[[], bool]:
        return lambda: self.verdicts() == number and set(self.states()) == {"ended"}


def a_bench(
    engine: Engine, samples: int, *, pace: BatchPace = PACE, command: str = "ls", **provider: Any
) -> Bench:
    """Store a run about so many samples; its provider differs in what is given."""
    stored_run(engine, run_id=RUN, models=(MODEL,), datasets=(commands(samples, command),))
    with transaction(engine) as session:
        session.execute(update(RUN_MODELS).values(batch_from=func.now() - timedelta(minutes=1)))
    return Bench(engine, FakeProvider(**provider), pace=pace)
