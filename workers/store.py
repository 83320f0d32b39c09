"""The database of a worker process: its connections, their threads, and its transactions.

A query is one transaction and may block; the event loop has it made in a thread.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from decimal import Decimal
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters
from aegish_dist.db.engine import WORKER_REPLY_TIMEOUT_S, in_transaction, open_engine, transaction
from aegish_dist.db.missing import open_queues
from aegish_dist.db.runs import (
    Assignment,
    batched_among,
    held_among,
    load_assignment,
    load_parameters,
    load_run,
)
from aegish_dist.db.verdicts import has_answers, insert_verdicts
from aegish_dist.models.credentials import Credentials
from aegish_dist.pipeline.batches.budget import committed_usd
from aegish_dist.pipeline.caller import Health
from aegish_dist.pipeline.evaluate import Evaluated
from aegish_dist.ratelimit.fair_queue import NANO_USD, Budget
from workers.writer import Grouped

if TYPE_CHECKING:
    from aegish_dist.telemetry.metrics import WorkerMetrics

# One for look-ups, one for inserts, one for rare calls: each has a thread of its own.
CONNECTIONS = 3
RECOUNT_CONNECTIONS = 2  # for summing the costs of a run, which may take seconds

Parameters = ParamSpec("Parameters")
Argument = TypeVar("Argument")
Result = TypeVar("Result")

_Call = tuple["Future[Any]", Callable[[], Any]]


class WorkerDatabase:
    """Connections and threads of a worker by kind of call: one that hangs delays no other kind."""

    def __init__(self, url: str, work: "WorkerMetrics | None" = None) -> None:
        self.engine = open_engine(
            url, pool_size=CONNECTIONS, reply_timeout_s=WORKER_REPLY_TIMEOUT_S
        )
        self.counting = open_engine(url, pool_size=RECOUNT_CONNECTIONS)
        self.look_ups, self.inserts, self.rest, self.recounts = self._threads = [
            DaemonThread(f"aegish-{name}") for name in ("look-ups", "inserts", "rest", "recounts")
        ]
        self._work = work

    def close(self) -> None:
        """Close the connections; a call that hangs is not waited for."""
        for thread in self._threads:
            thread.shutdown()
        self.engine.dispose()
        self.counting.dispose()

    def ask(
        self,
        query: Callable[Concatenate[Session, Parameters], Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> "asyncio.Future[Result]":
        """Make one of the rare queries, in a transaction of its own."""
        call = partial(in_transaction, self.engine, query, *args, **kwargs)
        return asyncio.wrap_future(self.rest.submit(call))

    def grouped(
        self,
        query: Callable[[Session, Sequence[Argument]], Sequence[Result]],
        thread: Executor,
        health: Health | None = None,
    ) -> Grouped[Argument, Result]:
        """Return a query that many coroutines make together."""
        return Grouped(lambda each: in_transaction(self.engine, query, each), thread, health)

    def record(self, group: Sequence[Evaluated]) -> Sequence[None]:
        """Insert verdicts, and count them; stored ones stay as they are."""
        began = monotonic()
        verdicts = [(evaluated.key, evaluated.verdict) for evaluated in group]
        in_transaction(self.engine, insert_verdicts, verdicts)
        if self._work is not None:
            by_model = [(evaluated.item.model, evaluated.verdict) for evaluated in group]
            self._work.stored(by_model, monotonic() - began)
        return [None] * len(group)

    def spent(self, run_ids: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """Return the costs of each model of each run, in 1e-9 USD; those of open batches too."""
        spent = []
        with transaction(self.counting) as session:
            for run_id in run_ids:
                costs = committed_usd(session, load_run(session, run_id))
                spent.append({model: int(usd * NANO_USD) for model, usd in costs.items()})
        return spent


def assignments(
    session: Session, callers: Sequence[tuple[str, str]]
) -> Sequence[Assignment | None]:
    """Return model, prompt and parameters by run and model; None for an unknown pair."""
    return [load_assignment(session, run_id, model) for run_id, model in callers]


def answered(session: Session, run_models: Sequence[int]) -> Sequence[bool]:
    """Return for each model of a run, by its row, whether it has an answer in the store."""
    return [has_answers(session, run_model_id) for run_model_id in run_models]


def budgets(session: Session, run_ids: Sequence[str]) -> Sequence[Budget | None]:
    """Return the current budget of each run; None without a cap."""
    return [budget_of(parameters) for parameters in load_parameters(session, run_ids)]


def uncalled(
    session: Session, run_ids: Collection[str]
) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """Return those of some runs that are held, and their models that are asked in batches."""
    return held_among(session, run_ids), batched_among(session, run_ids)


def refusals(session: Session, credentials: Credentials) -> dict[tuple[str, str], str]:
    """Return by run and model the reason why this worker may not call it."""
    reasons = {}
    for opened in open_queues(session).values():
        refusal = credentials.refusal(opened.destination)
        if refusal is not None:
            reasons[opened.run_id, opened.model] = refusal
    return reasons


class DaemonThread(Executor):
    """An executor with one daemon thread.

    At its end, the interpreter waits for every thread of a `ThreadPoolExecutor`. A stopping worker
    would wait for a call on a half-open connection, which may never return.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(
        self,
        fn: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> "Future[Result]":
        future: Future[Result] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread after the calls in its queue; does not wait for them."""
        self._calls.put(None)

    def _run(self) -> None:
        while (queued := self._calls.get()) is not None:
            future, call = queued
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)


def budget_of(parameters: CallParameters | None) -> Budget | None:
    if parameters is None:
        return None
    run_cap, model_cap = parameters.max_cost_usd, parameters.max_cost_per_model_usd
    if run_cap is None and model_cap is None:
        return None
    return Budget(_nano_usd(run_cap), _nano_usd(model_cap))


def _nano_usd(cap: Decimal | None) -> int | None:
    return None if cap is None else int(cap * NANO_USD)
