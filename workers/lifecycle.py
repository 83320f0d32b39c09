"""What a worker process owns: engine, provider session, evaluator; opened and closed in order."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from pydantic import SecretStr
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from aegish_dist.core.verdict import Item, Verdict
from aegish_dist.db.engine import open_engine
from aegish_dist.db.runs import load_assignment
from aegish_dist.db.schema import require_current
from aegish_dist.db.verdict_rows import VerdictKey
from aegish_dist.db.verdicts import LookUp, insert_verdicts, look_up
from aegish_dist.db.workers import forget_worker, report_worker
from aegish_dist.errors import ConfigError, StoreError
from aegish_dist.pipeline.evaluate import Caller, Evaluator
from aegish_dist.providers.session import ProviderSession
from workers.writer import Grouped

DATABASE_THREADS = 3
"""One for look-ups, one for inserts, one for the rare rest."""
REPORT_INTERVAL_S = 1.0


class _Store:
    """The database as the evaluator's ports need it, each call a transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def look_up(self, items: Sequence[Item]) -> Sequence[LookUp | None]:
        with Session(self._engine) as session:
            return look_up(session, items)

    def record(self, verdicts: Sequence[tuple[VerdictKey, Verdict]]) -> Sequence[None]:
        with Session(self._engine) as session, session.begin():
            insert_verdicts(session, verdicts)
        return [None] * len(verdicts)

    def report(self, name: str, in_flight: Mapping[tuple[str, str], int]) -> None:
        with Session(self._engine) as session, session.begin():
            report_worker(session, name, in_flight)

    def forget(self, name: str) -> None:
        with Session(self._engine) as session, session.begin():
            forget_worker(session, name)


class _Slots(asyncio.Semaphore):
    """Places for calls to one model, each of which is one of the process too."""

    def __init__(self, calls: int, of_process: asyncio.Semaphore) -> None:
        super().__init__(calls)
        self._of_process = of_process

    async def acquire(self) -> Literal[True]:
        # In this order: an item that waits for its model takes no other model's place.
        await super().acquire()
        try:
            return await self._of_process.acquire()
        except BaseException:
            super().release()
            raise

    def release(self) -> None:
        self._of_process.release()
        super().release()


class _Callers:
    """Callers by run and model, made when first needed."""

    def __init__(
        self,
        engine: Engine,
        providers: ProviderSession,
        executor: ThreadPoolExecutor,
        environ: Mapping[str, str],
        calls: int,
    ) -> None:
        self._engine = engine
        self._providers = providers
        self._executor = executor
        self._environ = environ
        self._made: dict[tuple[str, str], asyncio.Task[Caller]] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._of_process = asyncio.Semaphore(calls)

    async def __call__(self, run_id: str, model: str) -> Caller:
        key = (run_id, model)
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.create_task(self._make(run_id, model))
        try:
            return await asyncio.shield(task)
        except Exception:
            self._made.pop(key, None)
            raise

    async def _make(self, run_id: str, model: str) -> Caller:
        loop = asyncio.get_running_loop()
        assignment = await loop.run_in_executor(self._executor, self._load, run_id, model)
        if assignment is None:
            raise StoreError(f"run {run_id} has no prompt for model '{model}': it was imported")
        spec = assignment.spec
        client = self._providers.client(
            spec, assignment.prompt, assignment.parameters, self._key(spec.key_variable)
        )
        slots = self._slots.setdefault(model, _Slots(spec.max_in_flight, self._of_process))
        return Caller(client, slots, spec.price)

    def _load(self, run_id: str, model: str) -> Any:
        with Session(self._engine) as session:
            return load_assignment(session, run_id, model)

    def _key(self, variable: str | None) -> SecretStr | None:
        if variable is None:
            return None
        value = self._environ.get(variable, "").strip()
        if not value:
            raise ConfigError(f"{variable} is not set for this worker")
        return SecretStr(value)


async def _report(
    store: _Store, name: str, evaluator: Evaluator, executor: ThreadPoolExecutor
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        with suppress(SQLAlchemyError):  # the writer tells about an unreachable database
            await loop.run_in_executor(executor, store.report, name, dict(evaluator.in_flight))
        await asyncio.sleep(REPORT_INTERVAL_S)


@asynccontextmanager
async def open_evaluator(app: Any, calls: int) -> AsyncIterator[Evaluator]:
    """Open what evaluating needs, and close it in the opposite order.

    Args:
        app: The Celery application; its configuration says which database.
        calls: How many may be in flight at once.

    Raises:
        AegishError: The database is unreachable or not migrated.
    """
    name = f"{os.uname().nodename}:{os.getpid()}"
    engine = open_engine(app.conf.aegish_database_url)
    executor = ThreadPoolExecutor(DATABASE_THREADS, thread_name_prefix="aegish-db")
    try:
        await asyncio.get_running_loop().run_in_executor(executor, require_current, engine)
        store = _Store(engine)
        async with ProviderSession() as providers:
            evaluator = Evaluator(
                look_up=Grouped(store.look_up, executor),
                record=Grouped(store.record, executor),
                caller=_Callers(engine, providers, executor, os.environ, calls),
                worker=name,
                generator=random.Random(),  # noqa: S311  jitter, not a secret
            )
            heartbeat = asyncio.create_task(_report(store, name, evaluator, executor))
            yield evaluator
            heartbeat.cancel()
            await asyncio.get_running_loop().run_in_executor(executor, store.forget, name)
    finally:
        executor.shutdown()
        engine.dispose()
