"""The steps of a batch, each made by the worker that has it.

    hand_over  planned -> creating          -> in_progress: the one step that costs money
    find       creating, answer lost        -> in_progress, or planned again
    follow     in_progress                  -> collecting
    collect    collecting, results          -> verdicts, ended; the rest is free to be asked again

Between two commits a worker may be killed at any line: every step can be made again, and none pays
twice. Decisions are in `core.batches`. `docs/batches.md` says what happens in each fault.
"""

import asyncio
from asyncio import wrap_future
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Engine, func
from sqlalchemy.orm import Session

from aegish_dist.core.batches import (
    UNKNOWN_AFTER_S,
    BatchItem,
    BatchPace,
    BatchReport,
    BatchRequest,
    BatchResult,
    BatchState,
    ResultKind,
    ResultReader,
    may_exist,
)
from aegish_dist.core.model import ModelSpec, cost_usd
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.parsing import PARSER_VERSION, judge
from aegish_dist.core.run import RunPause
from aegish_dist.core.verdict import CallError, Completion, Item, Verdict
from aegish_dist.db.batches import (
    FAILED_AS_A_WHOLE,
    GONE,
    SUCCEEDED,
    TakenBatch,
    free_items,
    give_back,
    known_names,
    live_items_of,
    problem_text,
    renew_lease,
    requests_of,
    settle_items,
    write,
)
from aegish_dist.db.engine import transaction
from aegish_dist.db.tables import VerdictKey
from aegish_dist.db.verdicts import has_answers, insert_verdicts
from aegish_dist.errors import (
    AegishError,
    BatchTakenError,
    ProviderError,
    StoreAwayError,
    StoreUnusableError,
)
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.batches.budget import has_money_left
from aegish_dist.providers.batches.transfer import BatchClient
from aegish_dist.telemetry import Attributes, known
from aegish_dist.telemetry.tracing import span

if TYPE_CHECKING:
    from aegish_dist.telemetry.metrics import WorkerMetrics

T = TypeVar("T")

OUTLAST_S = 60.0
"""Seconds for which a restart of the database is waited out: an answer may be in memory."""
RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The place of one worker."""

    engine: Engine
    executor: Executor
    """Executor of its transactions; the event loop does not block."""
    publish: Callable[[Sequence[Item]], Awaitable[None]]
    """Puts items into the queues of live calls; raises `QueueError`."""
    worker: str
    pace: BatchPace
    work: "WorkerMetrics | None" = None
    """Counts stored verdicts; None: nothing does."""

    async def ask(self, query: Callable[[Session], T]) -> T:
        """Return the result of a transaction, which is made again while the database is away.

        A commit whose answer is lost is made twice: each query leaves the same the second time, or
        raises `BatchTakenError`.

        Raises:
            StoreUnusableError: The database was away for a minute, or refuses.
        """
        until = monotonic() + OUTLAST_S
        while True:
            try:
                return await wrap_future(self.executor.submit(self._transact, query))
            except StoreAwayError:
                if monotonic() > until:
                    raise
            await asyncio.sleep(RETRY_S)

    def _transact(self, query: Callable[[Session], T]) -> T:
        with transaction(self.engine) as session:
            return query(session)

    async def write(self, batch: TakenBatch, **values: object) -> None:
        """Write columns of a batch that this worker has and keeps."""
        await self.ask(lambda session: write(session, batch, self.worker, **values))

    async def give_back(self, batch: TakenBatch, due_in_s: float, **values: object) -> None:
        """Write columns of a batch, and let any worker take it after some seconds."""
        await self.ask(lambda session: give_back(session, batch, self.worker, due_in_s, **values))

    async def failed(
        self, batch: TakenBatch, error: Exception, asked_s: float | None = None, **values: object
    ) -> None:
        """Give back a batch after a failed request, for longer after each one in a row.

        Args:
            asked_s: Seconds that the provider asked to wait; None: it did not say.
        """
        failures = batch.failures + 1
        await self.give_back(
            batch,
            self.pace.after_failures_s(failures, asked_s),
            failures=failures,
            problem=problem_text(str(error)),
            **values,
        )


log = get_logger(__name__)


async def hand_over(context: BatchContext, batch: TakenBatch, client: BatchClient) -> None:
    """Create a planned batch at its provider.

    That this is being tried is committed first. Whatever happens before the provider's name is
    committed leaves the batch `creating`, where it is looked for before it is created again.
    """
    if batch.held is RunPause.PAUSED:
        await context.give_back(batch, context.pace.longest_s)
        return
    requests: list[BatchRequest] = []
    if batch.held is None:
        requests = await context.ask(lambda session: _begin(session, context, batch))
    if not requests:
        await context.ask(lambda session: _dissolve(session, context, batch))
        return
    try:
        name = await client.create(batch.token, requests)
    except ProviderError as error:
        unknown = may_exist(error.status)
        values = {} if unknown else {"state": BatchState.PLANNED.value, "creating_at": None}
        log.warning("batch_not_created", batch=batch.id, model=batch.model, unknown=unknown)
        await context.failed(batch, error, error.retry_after_s, **values)
        return
    await context.give_back(batch, context.pace.first_s, **named(name))
    log.info("batch_created", batch=batch.id, model=batch.model, requests=len(requests))


def named(name: str) -> dict[str, object]:
    """Return the columns of a batch of which the provider's name is known."""
    return {
        "state": BatchState.IN_PROGRESS.value,
        "provider_name": name,
        "submitted_at": func.now(),
        "failures": 0,
        "problem": None,
    }


def _begin(session: Session, context: BatchContext, batch: TakenBatch) -> list[BatchRequest]:
    write(
        session,
        batch,
        context.worker,
        state=BatchState.CREATING.value,
        creating_at=func.now(),
    )
    return requests_of(session, batch.id)


def _dissolve(session: Session, context: BatchContext, batch: TakenBatch) -> None:
    """End a batch that no provider has heard of, as its run is cancelled."""
    free_items(session, batch.id, refunded=1)
    ended = {"state": BatchState.ENDED.value, "ended_at": func.now(), "problem": None}
    give_back(session, batch, context.worker, 0, **ended)


async def find(context: BatchContext, batch: TakenBatch, client: BatchClient) -> None:
    """Adopt a batch that the provider has, or plan it again once it certainly has none.

    Lists of providers lag: that nothing is found counts only some minutes after the attempt.
    """
    found = await client.find(batch.token, batch.requests, batch.begun_at)
    wanted = [name for name in found if name not in batch.refused_names]
    known = await context.ask(lambda session: known_names(session, wanted))
    names = [name for name in wanted if name not in known]
    if names:
        log.info("batch_adopted", batch=batch.id, model=batch.model, candidates=len(names))
        await context.give_back(batch, 0, adopted=True, **named(names[0]))
    elif not all(known.values()):
        # Another batch of ours took one of them for its own: it may be this one, and is left then.
        await context.give_back(batch, context.pace.next_poll_s(batch.creating_s), failures=0)
    elif batch.creating_s >= context.pace.certain_s:
        log.info("batch_not_found", batch=batch.id, model=batch.model)
        await context.give_back(
            batch, 0, state=BatchState.PLANNED.value, creating_at=None, problem=None
        )
    else:
        left_s = context.pace.certain_s - batch.creating_s
        await context.give_back(batch, min(context.pace.first_s, left_s), failures=0)


async def refuse(context: BatchContext, batch: TakenBatch) -> None:
    """Give up an adopted batch whose results are those of another one, and look on."""
    names = [{"name": name} for name in sorted({*batch.refused_names, str(batch.provider_name)})]
    log.warning("foreign_batch_refused", batch=batch.id, model=batch.model)
    await context.give_back(
        batch,
        0,
        state=BatchState.CREATING.value,
        provider_name=None,
        submitted_at=None,
        adopted=False,
        refused_names=names,
        counts={},
    )


async def follow(context: BatchContext, batch: TakenBatch, client: BatchClient) -> None:
    """Ask how far a batch is, and have it cancelled when its run is."""
    name = str(batch.provider_name)
    refusal = await _cancel(context, batch, client) if _is_to_be_cancelled(batch) else None
    try:
        report = await client.poll(name)
    except ProviderError as error:
        if not _is_gone(context, batch, error):
            raise
        await context.give_back(batch, 0, state=BatchState.COLLECTING.value, counts={GONE: True})
        return
    if refusal is not None and not report.ended:
        raise refusal
    due_in_s = 0.0 if report.ended else context.pace.next_poll_s(batch.submitted_s)
    state = BatchState.COLLECTING if report.ended else BatchState.IN_PROGRESS
    await context.give_back(
        batch,
        due_in_s,
        state=state.value,
        failures=0,
        counts=_counts(report),
        problem=problem_text(report.problem),
    )


async def _cancel(
    context: BatchContext, batch: TakenBatch, client: BatchClient
) -> ProviderError | None:
    """Have a batch cancelled; return why the provider does not: perhaps the batch has ended."""
    try:
        await client.cancel(str(batch.provider_name))
    except ProviderError as error:
        return error
    await context.write(batch, cancelled_at=func.now())
    log.info("batch_cancelled", batch=batch.id, model=batch.model)
    return None


def _is_to_be_cancelled(batch: TakenBatch) -> bool:
    """Return whether to cancel it; an adopted one may turn out to be another's, and is not."""
    stopped = batch.held is RunPause.CANCELLED
    return stopped and not batch.cancel_asked and not batch.adopted


def _is_gone(context: BatchContext, batch: TakenBatch, error: ProviderError) -> bool:
    """Return whether a provider has forgotten a batch that nothing more can come of."""
    unknown = error.error_class == ErrorClass.NOT_FOUND
    known_by_now = batch.submitted_s > context.pace.certain_s
    stopped = batch.cancel_asked or (_is_to_be_cancelled(batch) and known_by_now)
    return unknown and (stopped or batch.submitted_s > UNKNOWN_AFTER_S)


def _counts(report: BatchReport) -> dict[str, object]:
    numbers = {SUCCEEDED: report.succeeded, "failed": report.failed}
    counts: dict[str, object] = {k: v for k, v in numbers.items() if v is not None}
    if report.ended and report.problem is not None:
        counts[FAILED_AS_A_WHOLE] = True
    return counts


READINGS = 4
"""Readings of results that lack answers after which these are given up."""
GROUP = 100
"""Verdicts per insert: live calls are stored beside it, and wait as long as one takes."""


@dataclass(frozen=True, slots=True)
class _Collecting:
    """A batch whose results are read by a worker."""

    context: BatchContext
    batch: TakenBatch
    spec: ModelSpec

    def verdict(self, completion: Completion) -> Verdict:
        """Return the verdict of an answer; where its time went was not measured."""
        cost = cost_usd(completion.usage, self.spec.batch_price)
        return self._signed(replace(judge(completion), cost_usd=cost))

    def refusal(self, error: ProviderError) -> Verdict:
        """Return the verdict of a request that the provider refused, as of a live one."""
        kind = ErrorClass(error.error_class)
        call = CallError(1, kind, error.status, error.retry_after_s, str(error), datetime.now(UTC))
        lost = Verdict(Outcome.API_ERROR, None, kind, parser_version=PARSER_VERSION)
        return self._signed(replace(lost, call_errors=(call,)))

    def _signed(self, verdict: Verdict) -> Verdict:
        return replace(verdict, worker=self.context.worker, created_at=datetime.now(UTC))

    def key(self, item: BatchItem) -> VerdictKey:
        run_model = self.batch.run_model_id
        return VerdictKey(run_model, item.sample_key, item.epoch, item.generation)

    async def store(self, verdicts: Sequence[tuple[BatchItem, Verdict]]) -> None:
        """Insert verdicts; those that are there already stay."""
        keyed = [(self.key(item), verdict) for item, verdict in verdicts]
        began = monotonic()
        new = await self.context.ask(lambda session: insert_verdicts(session, keyed))
        if self.context.work is not None and new:  # results that break off are read once more
            group = [(self.batch.model, verdict) for _, verdict in verdicts]
            self.context.work.stored(group, monotonic() - began)


async def collect(
    context: BatchContext, batch: TakenBatch, client: BatchClient, spec: ModelSpec
) -> None:
    """Store the results of an ended batch, then end it.

    After a break it is begun again: verdicts that are stored stay, and the counts are new.
    """
    asked = await context.ask(lambda session: requests_of(session, batch.id))
    reader = ResultReader(batch.token, frozenset(request.item for request in asked))
    of = _Collecting(context, batch, spec)
    name = str(batch.provider_name)
    if not batch.gone:
        await _read(of, reader, client.results(name))
        if batch.adopted and reader.is_foreign:
            await refuse(context, batch)
            return
        _require_all(batch, reader)
    reader.finish()
    await _store_refusals(of, reader)
    await _end(of, reader)
    await client.discard(name)


def _require_all(batch: TakenBatch, reader: ResultReader) -> None:
    """Have results be read again that hold less than the provider counts, and charges.

    A file may be there before all of it is, or be cut without a sign. After some times what it
    lacks counts as lost, and is asked, and paid for, again.

    Raises:
        ProviderError: Answers are missing that another reading may bring.
    """
    if batch.failures < READINGS and reader.lacks_answers(batch.succeeded):
        raise ProviderError(
            f"{reader.counts[ResultKind.SUCCEEDED]} answers of {batch.succeeded} can be read",
            error_class=ErrorClass.MALFORMED,
            status=200,
        )


async def _read(of: _Collecting, reader: ResultReader, results: AsyncIterator[BatchResult]) -> None:
    group: list[tuple[BatchItem, Verdict]] = []
    async for result in results:
        found = reader.read(result)
        if found is not None:
            group.append((found[0], of.verdict(found[1])))
        if len(group) == GROUP:
            await of.store(group)
            group = []
    if group:
        await of.store(group)


async def _store_refusals(of: _Collecting, reader: ResultReader) -> None:
    """Store refused requests as verdicts, unless nothing shows that the model answers others."""
    if not reader.refused:
        return
    run_model_id = of.batch.run_model_id
    if await of.context.ask(lambda session: has_answers(session, run_model_id)):
        await of.store([(item, of.refusal(error)) for item, error in reader.refused.items()])
    else:
        reader.problems.update((item, str(error)) for item, error in reader.refused.items())


async def _end(of: _Collecting, reader: ResultReader) -> None:
    """Settle all items, ask those live whose time it is, and end the batch, in this order."""
    context, batch = of.context, of.batch
    failed = batch.failed_as_a_whole and reader.is_empty
    if not failed:
        # What went wrong with all alike is the account's or the host's: no item is given up for it.
        await context.ask(lambda session: settle_items(session, batch.id, reader.problems))
    if batch.held is None:  # else `resume` publishes them
        live = await context.ask(lambda session: live_items_of(session, batch.id))
        if live and await _may_cost(of):
            await context.publish([_item(batch, each) for each in live])
            log.info("batch_items_asked_live", batch=batch.id, model=batch.model, items=len(live))
    await context.ask(lambda session: _close(session, of, reader, failed=failed))
    log.info("batch_ended", batch=batch.id, model=batch.model, **reader.numbers())


async def _may_cost(of: _Collecting) -> bool:
    """Return whether the caps leave money for calls, now that this batch has cost what it has."""
    batch = of.batch
    await of.context.write(batch, expected_usd=Decimal(0))
    return await of.context.ask(lambda session: has_money_left(session, batch.run_id, batch.model))


def _close(session: Session, of: _Collecting, reader: ResultReader, *, failed: bool) -> None:
    free_items(session, of.batch.id, refunded=1 if failed else 0)
    values: dict[str, object] = {"state": BatchState.ENDED.value, "ended_at": func.now()}
    counts: dict[str, object] = {**reader.numbers()}
    if failed:
        counts[FAILED_AS_A_WHOLE] = True
    else:
        values["problem"] = None
    give_back(session, of.batch, of.context.worker, 0, counts=counts, failures=0, **values)


def _item(batch: TakenBatch, item: BatchItem) -> Item:
    return Item(batch.run_id, batch.model, item.sample_key, item.epoch, item.generation)


STEPS = {
    BatchState.PLANNED: "create batch",
    BatchState.CREATING: "find batch",
    BatchState.IN_PROGRESS: "poll batch",
    BatchState.COLLECTING: "collect batch",
}


async def advance(
    context: BatchContext, batch: TakenBatch, client: BatchClient, spec: ModelSpec
) -> None:
    """Make the next step of a batch while its lease is renewed; give it back afterwards."""
    step = asyncio.create_task(_settled(context, batch, client, spec))
    lease = asyncio.create_task(_renew(context, batch))
    try:
        await asyncio.wait([step, lease], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (step, lease):
            task.cancel()
        await asyncio.wait([step, lease])
    if not step.cancelled():
        step.result()


async def _settled(
    context: BatchContext, batch: TakenBatch, client: BatchClient, spec: ModelSpec
) -> None:
    try:
        with span(STEPS[batch.state], batch.run_id, _facts(batch)):
            await _step(context, batch, client, spec)
    except BatchTakenError:
        log.warning("batch_lost_to_another_worker", batch=batch.id, model=batch.model)
    except StoreUnusableError:
        raise  # its lease ends by itself
    except AegishError as error:
        problem = str(error)
        log.warning("batch_step_failed", batch=batch.id, state=batch.state.value, problem=problem)
        asked_s = error.retry_after_s if isinstance(error, ProviderError) else None
        with suppress(BatchTakenError):
            await context.failed(batch, error, asked_s)


def _facts(batch: TakenBatch) -> Attributes:
    return known(
        {
            "aegish_dist.model": batch.model,
            "aegish_dist.batch.token": batch.token,
            "aegish_dist.batch.name": batch.provider_name,
            "aegish_dist.batch.requests": batch.requests,
        }
    )


async def _step(
    context: BatchContext, batch: TakenBatch, client: BatchClient, spec: ModelSpec
) -> None:
    match batch.state:
        case BatchState.PLANNED:
            await hand_over(context, batch, client)
        case BatchState.CREATING:
            await find(context, batch, client)
        case BatchState.IN_PROGRESS:
            await follow(context, batch, client)
        case BatchState.COLLECTING:
            await collect(context, batch, client, spec)


async def _renew(context: BatchContext, batch: TakenBatch) -> None:
    """Renew the lease until it is lost."""
    lease_s = context.pace.lease_s
    while True:
        await asyncio.sleep(lease_s / 3)
        with suppress(StoreUnusableError):
            if not await context.ask(lambda s: renew_lease(s, batch.id, context.worker, lease_s)):
                return
