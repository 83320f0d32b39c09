"""What a worker process owns: engine, provider session, evaluator; opened and closed in order."""

import asyncio
import os
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

from aegish_dist.core.secret import SecretStr
from aegish_dist.db.engine import WORKER_REPLY_TIMEOUT_S, open_engine
from aegish_dist.db.runs import Assignment
from aegish_dist.db.schema import require_current
from aegish_dist.db.workers import Halt, Halts, Reasons
from aegish_dist.errors import StoreError
from aegish_dist.logs import get_logger
from aegish_dist.models import CatalogCredentials
from aegish_dist.pipeline.evaluate import Caller, Evaluator
from aegish_dist.pipeline.expectation import UsageEstimator
from aegish_dist.pipeline.health import Health
from aegish_dist.pipeline.spool import recover_folder
from aegish_dist.providers.session import ProviderSession
from aegish_dist.ratelimit.limiters import Limiters
from aegish_dist.ratelimit.redis_store import SharedLimiter
from workers.callers import Callers
from workers.keeping import Keeper
from workers.store import Store, budget_of
from workers.threads import DaemonThread
from workers.writer import Grouped, facts

log = get_logger(__name__)

CONNECTIONS = 3
"""One for look-ups, one for inserts, one for the rare rest: each has a thread of its own."""
RECOUNT_CONNECTIONS = 2
"""For counting what a run has cost, which may take seconds: nothing else waits for it."""
REPORT_INTERVAL_S = 1.0
FORGET_S = 2.0
"""How long a worker that ends may take to say so."""


class _Making:
    """Makes the callers of this process."""

    def __init__(
        self,
        assignment: Callable[[tuple[str, str]], Awaitable[Assignment | None]],
        providers: ProviderSession,
        limiters: Limiters,
        credentials: CatalogCredentials,
    ) -> None:
        self._assignment = assignment
        self._providers = providers
        self._limiters = limiters
        self._credentials = credentials

    async def caller(self, run_id: str, model: str) -> Caller:
        assignment = await self._assignment((run_id, model))
        if assignment is None:
            raise StoreError(f"run {run_id} has no prompt for model '{model}': it was imported")
        spec, prompt, parameters = assignment.spec, assignment.prompt, assignment.parameters
        key = self._credentials.now().key(spec.destination)
        limiter = self._limiters.of(spec, run_id)
        client = self._providers.client(
            spec, prompt, parameters, None if key is None else SecretStr(key), limiter.observe
        )
        budget = budget_of(parameters)
        expectation = UsageEstimator(prompt, spec.price, budget)
        return Caller(client, limiter, expectation, spec.price, budget)


async def _halts(limiters: Limiters) -> tuple[Halts, Reasons]:
    parked = limiters.parked
    halts: Halts = {("", model): Halt.PARKED for model in parked}
    reasons = {("", model): words for model, words in parked.items() if words}
    return halts | dict.fromkeys(await limiters.over_budget(), Halt.OVER_BUDGET), reasons


async def _report(
    store: Store, name: str, evaluator: Evaluator, limiters: Limiters, thread: Executor
) -> None:
    loop = asyncio.get_running_loop()
    failing = False
    while True:
        try:
            held, (halts, reasons) = dict(evaluator.in_flight), await _halts(limiters)
            await loop.run_in_executor(thread, store.report, name, held, halts, reasons)
            failing = False
        except Exception as error:
            # Whatever it is, a worker that works must not look dead for good.
            if not failing:
                log.warning("heartbeat_fails", **facts(error))
            failing = True
        await asyncio.sleep(REPORT_INTERVAL_S)


def _limiter(app: Any, worker: str) -> SharedLimiter:
    url = app.conf.aegish_limiter_database_url
    if url is None and not app.conf.broker_url.startswith("memory"):
        log.warning(
            "limits_per_process", remedy="set AEGISH_DIST_LIMITER_URL to a Redis that workers share"
        )
    return SharedLimiter.connect(url, worker)


class _Database:
    """The connections and threads of a worker: a call that hangs does not hold up another kind."""

    def __init__(self, url: str, credentials: CatalogCredentials) -> None:
        self.engine = open_engine(
            url, pool_size=CONNECTIONS, reply_timeout_s=WORKER_REPLY_TIMEOUT_S
        )
        self._counting = open_engine(url, pool_size=RECOUNT_CONNECTIONS)
        self.look_ups, self.inserts, self.rest, self.recounts = self._threads = [
            DaemonThread(f"aegish-{name}") for name in ("look-ups", "inserts", "rest", "recounts")
        ]
        self.store = Store(self.engine, self._counting, credentials)

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown()
        self.engine.dispose()
        self._counting.dispose()


@asynccontextmanager
async def open_evaluator(app: Any, calls: int) -> AsyncIterator[tuple[Evaluator, Limiters]]:
    """Open what evaluating needs, and close it in the opposite order.

    Args:
        app: The Celery application; its configuration says which database.
        calls: How many may be in flight at once.

    Raises:
        AegishError: The database is unreachable or not migrated.
    """
    # Containers on one host may share its name and the numbers of their processes.
    name = f"{os.uname().nodename}:{os.getpid()}:{secrets.token_hex(2)}"
    loop = asyncio.get_running_loop()
    credentials = CatalogCredentials(app.conf.aegish_catalog, os.environ)
    with closing(_Database(app.conf.aegish_database_url, credentials)) as database:
        store = database.store
        spool = app.conf.aegish_spool
        await loop.run_in_executor(database.rest, require_current, database.engine)
        # Before any message comes: what is stored now is not called again.
        await loop.run_in_executor(database.rest, recover_folder, database.engine, spool)
        async with _limiter(app, name) as limiter, ProviderSession() as providers:
            health = Health()
            spent = Grouped(store.spent, database.recounts)
            budget = Grouped(store.budgets, database.rest)
            limiters = Limiters(limiter, spent, budget, calls)
            making = _Making(
                Grouped(store.assignments, database.rest), providers, limiters, credentials
            )
            keeper = Keeper(Grouped(store.record, database.inserts, health), spool)
            evaluator = Evaluator(
                look_up=Grouped(store.look_up, database.look_ups, health),
                answered=Grouped(store.answered, database.rest),
                record=keeper,
                caller=Callers(making.caller),
                health=health,
                worker=name,
                generator=random.Random(),  # noqa: S311  # nosec B311 # jitter, not a secret
            )
            heartbeat = asyncio.create_task(
                _report(store, name, evaluator, limiters, database.rest)
            )
            try:
                yield evaluator, limiters
            finally:
                heartbeat.cancel()
                await asyncio.wait([heartbeat])
                await keeper.close()
                limiters.close()
                await limiters.finish()
                with suppress(Exception):  # a worker that is not removed is silent in ten seconds
                    async with asyncio.timeout(FORGET_S):
                        await loop.run_in_executor(database.rest, store.forget, name)
