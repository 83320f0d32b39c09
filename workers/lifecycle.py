"""What a worker process owns: engine, provider session, evaluator; opened and closed in order."""

import asyncio
import os
import random
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters
from aegish_dist.core.secret import SecretStr
from aegish_dist.core.verdict import Item, Verdict
from aegish_dist.db.engine import WORKER_REPLY_TIMEOUT_S, open_engine
from aegish_dist.db.progress import Progress, model_progress
from aegish_dist.db.runs import load_assignment, load_parameters, load_run
from aegish_dist.db.schema import require_current
from aegish_dist.db.verdict_rows import VerdictKey
from aegish_dist.db.verdicts import LookUp, insert_verdicts, look_up
from aegish_dist.db.workers import Halt, Halts, forget_worker, report_worker
from aegish_dist.errors import ConfigError, StoreError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.evaluate import Caller, Evaluator
from aegish_dist.pipeline.expectation import Expectation
from aegish_dist.providers.session import ProviderSession
from aegish_dist.queue.gates import Gates
from aegish_dist.queue.grants import NANO_USD
from aegish_dist.queue.limiter import Limiter
from aegish_dist.queue.waiting import Budget
from workers.callers import Callers
from workers.writer import Grouped

log = get_logger(__name__)

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

    def spent(self, run_ids: Sequence[str]) -> Sequence[Mapping[str, int]]:
        with Session(self._engine) as session:
            runs = [load_run(session, run_id) for run_id in run_ids]
            return [_in_nano_usd(model_progress(session, run, REPORT_INTERVAL_S)) for run in runs]

    def budgets(self, run_ids: Sequence[str]) -> Sequence[Budget | None]:
        with Session(self._engine) as session:
            return [_budget(parameters) for parameters in load_parameters(session, run_ids)]

    def report(self, name: str, in_flight: Mapping[tuple[str, str], int], halts: Halts) -> None:
        with Session(self._engine) as session, session.begin():
            report_worker(session, name, in_flight, halts)

    def forget(self, name: str) -> None:
        with Session(self._engine) as session, session.begin():
            forget_worker(session, name)


class _Making:
    """Makes the callers of this process."""

    def __init__(
        self,
        engine: Engine,
        providers: ProviderSession,
        gates: Gates,
        executor: ThreadPoolExecutor,
        environ: Mapping[str, str],
    ) -> None:
        self._engine = engine
        self._providers = providers
        self._gates = gates
        self._executor = executor
        self._environ = environ

    async def caller(self, run_id: str, model: str) -> Caller:
        loop = asyncio.get_running_loop()
        assignment = await loop.run_in_executor(self._executor, self._load, run_id, model)
        if assignment is None:
            raise StoreError(f"run {run_id} has no prompt for model '{model}': it was imported")
        spec, prompt, parameters = assignment.spec, assignment.prompt, assignment.parameters
        gate = self._gates.of(spec, run_id)
        client = self._providers.client(
            spec, prompt, parameters, self._key(spec.key_variable), gate.observe
        )
        budget = _budget(parameters)
        expectation = Expectation(prompt, spec.price, budget)
        return Caller(client, gate, expectation, spec.price, budget)

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


def _budget(parameters: CallParameters | None) -> Budget | None:
    if parameters is None:
        return None
    caps = (parameters.max_cost_usd, parameters.max_cost_per_model_usd)
    if caps == (None, None):
        return None
    return Budget(*(None if cap is None else int(cap * NANO_USD) for cap in caps))


def _in_nano_usd(progress: Mapping[str, Progress]) -> dict[str, int]:
    return {model: int((each.cost_usd or 0) * NANO_USD) for model, each in progress.items()}


async def _halts(gates: Gates) -> Halts:
    parked: Halts = {("", model): Halt.PARKED for model in gates.parked}
    return parked | dict.fromkeys(await gates.over_budget(), Halt.OVER_BUDGET)


async def _report(
    store: _Store, name: str, evaluator: Evaluator, gates: Gates, executor: ThreadPoolExecutor
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        with suppress(SQLAlchemyError):  # the writer tells about an unreachable database
            held, halts = dict(evaluator.in_flight), await _halts(gates)
            await loop.run_in_executor(executor, store.report, name, held, halts)
        await asyncio.sleep(REPORT_INTERVAL_S)


def _limiter(app: Any, worker: str) -> Limiter:
    url = app.conf.aegish_limiter_database_url
    if url is None and not app.conf.broker_url.startswith("memory"):
        log.warning(
            "limits_per_process", remedy="set AEGISH_DIST_LIMITER_URL to a Redis that workers share"
        )
    return Limiter.connect(url, worker)


@asynccontextmanager
async def open_evaluator(app: Any, calls: int) -> AsyncIterator[tuple[Evaluator, Gates]]:
    """Open what evaluating needs, and close it in the opposite order.

    Args:
        app: The Celery application; its configuration says which database.
        calls: How many may be in flight at once.

    Raises:
        AegishError: The database is unreachable or not migrated.
    """
    # Containers on one host may share its name and the numbers of their processes.
    name = f"{os.uname().nodename}:{os.getpid()}:{secrets.token_hex(2)}"
    engine = open_engine(app.conf.aegish_database_url, reply_timeout_s=WORKER_REPLY_TIMEOUT_S)
    executor = ThreadPoolExecutor(DATABASE_THREADS, thread_name_prefix="aegish-db")
    try:
        await asyncio.get_running_loop().run_in_executor(executor, require_current, engine)
        store = _Store(engine)
        async with _limiter(app, name) as limiter, ProviderSession() as providers:
            spent, budget = Grouped(store.spent, executor), Grouped(store.budgets, executor)
            gates = Gates(limiter, spent, budget, calls)
            making = _Making(engine, providers, gates, executor, os.environ)
            evaluator = Evaluator(
                look_up=Grouped(store.look_up, executor),
                record=Grouped(store.record, executor),
                caller=Callers(making.caller),
                worker=name,
                generator=random.Random(),  # noqa: S311  jitter, not a secret
            )
            heartbeat = asyncio.create_task(_report(store, name, evaluator, gates, executor))
            yield evaluator, gates
            heartbeat.cancel()
            gates.close()
            await gates.finish()
            await asyncio.get_running_loop().run_in_executor(executor, store.forget, name)
    finally:
        executor.shutdown()
        engine.dispose()
