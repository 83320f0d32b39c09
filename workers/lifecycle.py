"""The components of a worker process, opened in order and closed in reverse.

Database, provider session, rate limiters and evaluator of a worker are built here alone.
"""

import asyncio
import os
import random
import secrets
from asyncio import wrap_future
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy.orm import Session

from aegish_dist.broker.app import process_of
from aegish_dist.db.engine import reading
from aegish_dist.db.fleet import ModelBlock, ModelBlocks, about_worker, forget_worker, report_worker
from aegish_dist.db.missing import may_aggregate
from aegish_dist.db.runs import Assignment
from aegish_dist.db.schema import require_current
from aegish_dist.db.verdicts import look_up
from aegish_dist.errors import ConfigError, StoreError
from aegish_dist.logs import get_logger
from aegish_dist.models.credentials import CatalogCredentials
from aegish_dist.pipeline.caller import Caller, Health, UsageEstimator, traced
from aegish_dist.pipeline.evaluate import Evaluator
from aegish_dist.pipeline.reading import open_note, store_deaths
from aegish_dist.pipeline.spool import recover_folder
from aegish_dist.providers.session import ProviderSession, provider_session
from aegish_dist.ratelimit.model_limiter import Limiters
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from workers.store import (
    WorkerDatabase,
    answered,
    assignments,
    budget_of,
    budgets,
    refusals,
    uncalled,
)
from workers.writer import Grouped, VerdictWriter, facts

if TYPE_CHECKING:
    from aegish_dist.telemetry.metrics import WorkerMetrics


NO_AGGREGATIONS = (
    "the role in AEGISH_DIST_DATABASE_URL may not store snapshots; a worker with"
    " --aggregate-only and the role of commands makes them, and so does `aegish-dist report`"
)


# Callers kept at most. A caller holds the prompt of its run; one look-up makes a dropped caller
# again.
KEPT_CALLERS = 500


class Callers:
    """Callers by run id and model id, made when they are asked for."""

    def __init__(self, make: Callable[[str, str], Coroutine[Any, Any, Caller]]) -> None:
        self._make = make
        self._made: dict[tuple[str, str], asyncio.Task[Caller]] = {}

    async def __call__(self, run_id: str, model: str) -> Caller:
        """Return the caller of a run and a model; calls while it is made wait for the same one."""
        key = (run_id, model)
        task = self._made.pop(key, None) or asyncio.create_task(self._make(run_id, model))
        self._made[key] = task
        if len(self._made) > KEPT_CALLERS:
            del self._made[next(iter(self._made))]
        try:
            return await asyncio.shield(task)
        except Exception:
            self._made.pop(key, None)
            raise


class CallerMaker(Struct, frozen=True):
    assignments: Callable[[tuple[str, str]], Awaitable[Assignment | None]]
    providers: ProviderSession
    limiters: Limiters
    credentials: CatalogCredentials

    async def __call__(self, run_id: str, model: str) -> Caller:
        assignment = await self.assignments((run_id, model))
        if assignment is None:
            raise StoreError(f"run {run_id} has no prompt for model '{model}': it was imported")
        spec = assignment.spec
        prompt = assignment.prompt
        parameters = assignment.parameters
        credentials = self.credentials.now()
        key = credentials.key(spec.destination)
        program = credentials.program(spec.destination)
        with reading(run_id):  # parameters may be nested too deeply for a request
            limiter = self.limiters.of(spec, run_id, program)
            client = self.providers.client(
                spec, prompt, parameters, key, observe=limiter.observe, program=program
            )
        budget = budget_of(parameters)
        estimator = UsageEstimator(prompt, spec.price, budget)
        traceable = traced(client, spec, parameters)
        return Caller(traceable, limiter, estimator, spec.price, budget, spec.output)


# Seconds without an answer of the database after which the worker does not count as ready. It is
# asked every 5 s at least.
SILENT_S = 10.0


class Readiness(Struct):
    """State of the parts that have to work before items are taken; any thread may read it."""

    broker_connected: bool = False
    stopping: bool = False
    # By the monotonic clock; None where nothing looks for runs: `-Q` may name queues of others.
    database_seen_at: float | None = None

    def problems(self, *, takes_verdicts: bool) -> list[str]:
        """Return why no items are taken; empty when they are."""
        seen_at = self.database_seen_at
        silent = seen_at is not None and monotonic() - seen_at > SILENT_S
        found = {
            "the worker is stopping": self.stopping,
            "the database takes no verdicts": not takes_verdicts,
            f"the database has not answered for {SILENT_S:g} s": silent,
            "there is no connection to the broker": not self.broker_connected,
        }
        return [problem for problem, holds in found.items() if holds]


log = get_logger(__name__)

REPORT_INTERVAL_S = 1.0
RESTS_PER_REPORT = 3  # intervals per report of a worker that holds nothing
# Seconds between two looks whether runs are held: calls have to stop within a second.
HOLD_INTERVAL_S = 0.2
ANNOUNCED_INTERVAL_S = 2.0  # seconds between these looks where the database announces changes
FORGET_S = 2.0  # seconds that a stopping worker waits for the removal of its heartbeat


class Heartbeat(Struct, frozen=True):
    """Reports the worker, the items that it holds and the models that it halts to the store."""

    database: WorkerDatabase
    credentials: CatalogCredentials
    name: str
    evaluator: Evaluator
    limiters: Limiters

    async def run(self) -> None:
        """Report until cancelled; an error of any kind is logged and retried."""
        failing = busy = False
        rested = -1
        while True:
            # The report after the last item says that none is held.
            was_busy, busy = busy, bool(self.evaluator.in_flight or self.limiters.parked)
            rested = 0 if busy or was_busy else rested + 1
            try:
                if failing or rested % RESTS_PER_REPORT == 0:
                    await self._report()
                    await self.evaluator.store_deaths()  # some workers may never start again
                failing = False
            except Exception as error:
                if not failing:
                    log.warning("heartbeat_fails", **facts(error))
                failing = True
            await asyncio.sleep(REPORT_INTERVAL_S)

    async def forget(self) -> None:
        """Remove the heartbeat; without success, it expires after ten seconds."""
        with suppress(Exception):
            async with asyncio.timeout(FORGET_S):
                await self.database.ask(forget_worker, self.name)

    async def _report(self) -> None:
        in_flight = dict(self.evaluator.in_flight)
        parked = self.limiters.parked
        reasons = {("", model): words for model, words in parked.items()}
        halts: ModelBlocks = {("", model): ModelBlock.PARKED for model in parked}
        halts |= dict.fromkeys(await self.limiters.over_budget(), ModelBlock.OVER_BUDGET)
        failing = self.evaluator.failing
        await self.database.ask(
            _report,
            self.credentials,
            name=self.name,
            in_flight=in_flight,
            halts=halts,
            reasons=reasons,
            waiting={
                key: replace(self.limiters.waiting(*key), backoff=failing.backing_off[key])
                for key in in_flight
            },
            failing=failing.by_run(datetime.now(UTC)),
        )


def _report(session: Session, credentials: CatalogCredentials, /, **facts: Any) -> None:
    unserved = refusals(session, credentials.now())
    report_worker(session, unserved=unserved, about=about_worker(datetime.now(UTC)), **facts)


class HoldWatch(Struct):
    """Has the evaluator begin no call of runs that are held, and of models asked in batches."""

    database: WorkerDatabase
    evaluator: Evaluator
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _interval_s: float = HOLD_INTERVAL_S

    def runs_changed(self, announced: bool) -> None:
        """Look now; and seldom by itself while changes are announced."""
        self._interval_s = ANNOUNCED_INTERVAL_S if announced else HOLD_INTERVAL_S
        self._changed.set()

    async def run(self) -> None:
        """Look until cancelled; an error is left to the next look."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._interval_s)
            self._changed.clear()
            with suppress(Exception):
                await self._look()

    async def _look(self) -> None:
        known = self.evaluator.held.keys
        run_ids = known | {run_id for run_id, _ in self.evaluator.in_flight}
        if run_ids:
            held, batched = await self.database.ask(uncalled, run_ids)
            # A look-up of an item may have found another one meanwhile.
            self.evaluator.held.set(held | (self.evaluator.held.keys - known))
            self.evaluator.batched.set(batched)


class WorkerComponents(Struct, frozen=True):
    """The components that the pool hands messages to, or that say how they are."""

    name: str
    evaluator: Evaluator
    limiters: Limiters
    writer: VerdictWriter
    aggregates: bool  # whether the role of its database may store snapshots
    holds: HoldWatch


def new_worker_name() -> str:
    # Containers on one host may have the same host name and process ids.
    return f"{os.uname().nodename}:{os.getpid()}:{secrets.token_hex(2)}"


@asynccontextmanager
async def open_evaluator(
    app: Any, calls: int, work: "WorkerMetrics | None" = None
) -> AsyncIterator[WorkerComponents]:
    name = new_worker_name()
    process = process_of(app)
    settings = process.settings
    credentials = CatalogCredentials(
        settings.catalog, os.environ, embedded=settings.embedded_broker
    )
    with closing(WorkerDatabase(process.database_url, work)) as database:
        await wrap_future(database.rest.submit(require_current, database.engine))
        aggregates = await database.ask(may_aggregate)
        if not aggregates and not process.calls_models:
            raise ConfigError(f"--aggregate-only has nothing to do: {NO_AGGREGATIONS}")
        if not aggregates:
            log.info("aggregations_left_to_others", reason=NO_AGGREGATIONS)
        # Before the first message: an answer that is stored now is not paid for again.
        spool = settings.spool_folder
        await wrap_future(database.rest.submit(recover_folder, database.engine, spool))
        notes = settings.home / "reading"
        deaths = partial(store_deaths, database.engine, notes, set())
        limiter_url = settings.shared_limiter_url
        if limiter_url is None and not settings.embedded_broker:
            remedy = "set AEGISH_DIST_LIMITER_URL to a Redis that workers share"
            log.warning("limits_per_process", remedy=remedy)
        async with (
            SharedLimiter.connect(limiter_url, name) as shared,
            provider_session(settings.private_folders) as providers,
        ):
            health = Health()
            spent = Grouped(database.spent, database.recounts)
            limiters = Limiters(shared, spent, database.grouped(budgets, database.rest), calls)
            found = database.grouped(assignments, database.rest)
            caller = CallerMaker(found, providers, limiters, credentials)
            writer = VerdictWriter(database.record, database.inserts, health, folder=spool)
            # A worker that only aggregates reads no answer, and its home may be closed to it.
            note = open_note(notes, name) if process.calls_models else lambda _: None
            evaluator = Evaluator(
                look_up=database.grouped(look_up, database.look_ups, health),
                answered=database.grouped(answered, database.rest),
                record=writer,
                caller=Callers(caller),
                health=health,
                worker=name,
                generator=random.Random(),  # noqa: S311  # nosec B311 # jitter, not a secret
                note=note,
                store_deaths=lambda: wrap_future(database.rest.submit(deaths)),
            )
            await evaluator.store_deaths()
            evaluator.failing.on_failure = None if work is None else work.failed
            heartbeat = Heartbeat(database, credentials, name, evaluator, limiters)
            # A worker that calls no model is none to wait for, and reports nothing.
            reports = (heartbeat,) if process.calls_models else ()
            holds = HoldWatch(database, evaluator)
            background = [asyncio.create_task(each.run()) for each in (*reports, holds)]
            try:
                yield WorkerComponents(name, evaluator, limiters, writer, aggregates, holds)
            finally:
                for task in background:
                    task.cancel()
                await asyncio.wait(background)
                await writer.close()
                limiters.close()
                await limiters.finish()
                await heartbeat.forget()
