"""The steps of a batch, each made by the worker that has it.

    hand over  planned -> creating          -> in_progress: the one step that costs money
    find       creating, answer lost        -> in_progress, or planned again
    follow     in_progress                  -> collecting
    collect    collecting, results          -> verdicts, ended; the rest is free to be asked again

Between two commits a worker may be killed at any line: every step can be made again, and none pays
twice. Decisions are in `core.batches`. `docs/guides/batches.md` says what happens in each fault.
"""

import asyncio
from asyncio import wrap_future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from time import monotonic
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Engine, func
from sqlalchemy.orm import Session

from aegish_dist.core.batches import (
    UNKNOWN_AFTER_S,
    BatchItem,
    BatchPace,
    BatchReport,
    BatchRequest,
    ResultKind,
    ResultReader,
    may_exist,
)
from aegish_dist.core.model import ModelSpec, cost_usd
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.run import BatchState, RunPause
from aegish_dist.core.text import JsonObject, known
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
from aegish_dist.db.engine import in_transaction
from aegish_dist.db.schema import VerdictKey
from aegish_dist.db.verdicts import has_answers, insert_verdicts
from aegish_dist.errors import (
    AegishError,
    BatchTakenError,
    EndlessResultsError,
    ProviderError,
    StoreAwayError,
    StoreUnusableError,
)
from aegish_dist.logs import get_logger
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline.batches.budget import has_money_left
from aegish_dist.providers.batches.transfer import BatchClient
from aegish_dist.telemetry import Attributes
from aegish_dist.telemetry.tracing import span

if TYPE_CHECKING:
    from aegish_dist.telemetry.metrics import WorkerMetrics

P = ParamSpec("P")
T = TypeVar("T")

log = get_logger(__name__)

# Seconds for which a restart of the database is waited out: an answer may be in memory.
OUTLAST_S = 60.0
RETRY_S = 0.5
READINGS = 4  # readings of results that lack answers after which these are given up
# Verdicts, and characters of their answers, per insert: live calls are stored beside it, and wait
# as long as one takes.
GROUP = 100
# Verdicts, and characters of their answers, per insert: live calls are stored beside it, and wait
# as long as one takes.
GROUP_CHARACTERS = 2**20


class BatchContext(Struct, frozen=True):
    engine: Engine
    executor: Executor  # executor of its transactions; the event loop does not block
    # Puts items into the queues of live calls; raises `QueueError`.
    publish: Callable[[Sequence[Item]], Awaitable[None]]
    worker: str
    pace: BatchPace
    work: "WorkerMetrics | None" = None  # counts stored verdicts; None: nothing does

    async def ask(
        self, query: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the result of a transaction, which is made again while the database is away.

        A commit whose answer is lost is made twice: each query leaves the same the second time, or
        raises `BatchTakenError`. After a minute, or a refusal, there is a StoreUnusableError.
        """
        until = monotonic() + OUTLAST_S
        while True:
            try:
                return await wrap_future(
                    self.executor.submit(
                        lambda: in_transaction(self.engine, query, *args, **kwargs)
                    )
                )
            except StoreAwayError:
                if monotonic() > until:
                    raise
            await asyncio.sleep(RETRY_S)

    async def failed(
        self, batch: TakenBatch, error: Exception, asked_s: float | None = None, **values: object
    ) -> None:
        """Give back a batch, for longer after each failure in a row, or as the provider asked."""
        values |= {
            "failures": batch.failures + 1,
            "problem": problem_text(str(error)),
        }
        due_in_s = self.pace.after_failures_s(batch.failures + 1, asked_s)
        await self.ask(give_back, batch, self.worker, due_in_s, **values)


async def advance(
    context: BatchContext,
    batch: TakenBatch,
    client: BatchClient,
    spec: ModelSpec,
) -> None:
    """Make the next step of a batch while its lease is renewed; give it back afterwards."""
    its = BatchStep(context, batch, client, spec)
    step = asyncio.create_task(its.make())
    lease = asyncio.create_task(its.renew_lease())
    try:
        await asyncio.wait([step, lease], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (step, lease):
            task.cancel()
        await asyncio.wait([step, lease])

    if not step.cancelled():
        step.result()


class BatchStep(Struct, frozen=True):
    context: BatchContext
    batch: TakenBatch
    client: BatchClient
    spec: ModelSpec

    async def make(self) -> None:
        batch = self.batch
        name, step = {
            BatchState.PLANNED: ("create batch", self._hand_over),
            BatchState.CREATING: ("find batch", self._find),
            BatchState.IN_PROGRESS: ("poll batch", self._follow),
            BatchState.COLLECTING: ("collect batch", self._collect),
        }[batch.state]
        facts: Attributes = known(
            {
                "aegish_dist.model": batch.model,
                "aegish_dist.batch.token": batch.token,
                "aegish_dist.batch.name": batch.provider_name,
                "aegish_dist.batch.requests": batch.requests,
            }
        )
        try:
            with span(name, batch.run_id, facts):
                await step()
        except BatchTakenError:
            log.warning("batch_lost_to_another_worker", batch=batch.id, model=batch.model)
        except StoreUnusableError:
            raise  # its lease ends by itself
        except AegishError as error:
            state = batch.state.value
            log.warning(
                "batch_step_failed",
                batch=batch.id,
                state=state,
                problem=str(error),
            )
            asked_s = error.retry_after_s if isinstance(error, ProviderError) else None
            with suppress(BatchTakenError):
                await self.context.failed(batch, error, asked_s)

    async def renew_lease(self) -> None:
        context = self.context
        lease_s = context.pace.lease_s
        while True:
            await asyncio.sleep(lease_s / 3)
            with suppress(StoreUnusableError):
                if not await context.ask(renew_lease, self.batch.id, context.worker, lease_s):
                    return

    async def _write(self, **values: object) -> None:
        await self.context.ask(write, self.batch, self.context.worker, **values)

    async def _give_back(self, due_in_s: float, **values: object) -> None:
        """Write columns of the batch, and let any worker take it after some seconds."""
        await self.context.ask(give_back, self.batch, self.context.worker, due_in_s, **values)

    async def _hand_over(self) -> None:
        """Create a planned batch at its provider.

        That this is being tried is committed first. Whatever happens before the provider's name is
        committed leaves the batch `creating`, where it is looked for before it is created again.
        """
        batch = self.batch
        pace = self.context.pace
        if batch.held is RunPause.PAUSED:
            await self._give_back(pace.longest_s)
            return

        requests = await self.context.ask(self._begin) if batch.held is None else []
        if not requests:
            await self.context.ask(self._dissolve)
            return

        try:
            name = await self.client.create(batch.token, requests)
        except ProviderError as error:
            unknown = may_exist(error.status)
            log.warning(
                "batch_not_created",
                batch=batch.id,
                model=batch.model,
                unknown=unknown,
            )
            values: JsonObject = {}
            if not unknown:
                values = {
                    "state": BatchState.PLANNED.value,
                    "creating_at": None,
                }
            await self.context.failed(batch, error, error.retry_after_s, **values)
            return

        await self._named(name, pace.first_s)
        log.info(
            "batch_created",
            batch=batch.id,
            model=batch.model,
            requests=len(requests),
        )

    def _begin(self, session: Session) -> list[BatchRequest]:
        begun = {"state": BatchState.CREATING.value, "creating_at": func.now()}
        write(session, self.batch, self.context.worker, **begun)
        return requests_of(session, self.batch.id)

    def _dissolve(self, session: Session) -> None:
        """End a batch that no provider has heard of, as its run is cancelled."""
        free_items(session, self.batch.id, refunded=1)
        ended = {
            "state": BatchState.ENDED.value,
            "ended_at": func.now(),
            "problem": None,
        }
        give_back(session, self.batch, self.context.worker, 0, **ended)

    async def _named(self, name: str, due_in_s: float, **values: object) -> None:
        await self._give_back(
            due_in_s,
            state=BatchState.IN_PROGRESS.value,
            provider_name=name,
            submitted_at=func.now(),
            failures=0,
            problem=None,
            **values,
        )

    async def _find(self) -> None:
        """Adopt a batch that the provider has, or plan it again once it certainly has none.

        Lists of providers lag: that nothing is found counts only some minutes after the attempt.
        """
        batch = self.batch
        pace = self.context.pace
        listed = await self.client.find(batch.token, batch.requests, batch.begun_at)
        wanted = [name for name in listed if name not in batch.refused_names]
        taken = await self.context.ask(known_names, wanted)
        names = [name for name in wanted if name not in taken]
        if names:
            log.info(
                "batch_adopted",
                batch=batch.id,
                model=batch.model,
                candidates=len(names),
            )
            await self._named(names[0], 0, adopted=True)
        elif not all(taken.values()):
            # Another batch of ours took one of them for its own: it may be this one, and is left.
            await self._give_back(pace.next_poll_s(batch.creating_s), failures=0)
        elif batch.creating_s >= pace.certain_s:
            log.info("batch_not_found", batch=batch.id, model=batch.model)
            await self._give_back(
                0,
                state=BatchState.PLANNED.value,
                creating_at=None,
                problem=None,
            )
        else:
            await self._give_back(min(pace.first_s, pace.certain_s - batch.creating_s), failures=0)

    async def _follow(self) -> None:
        """Ask how far a batch is, and have it cancelled when its run is."""
        refusal = await self._cancel() if self._is_to_be_cancelled else None
        try:
            report = await self.client.poll(str(self.batch.provider_name))
        except ProviderError as error:
            if not self._is_gone(error):
                raise
            await self._give_back(0, state=BatchState.COLLECTING.value, counts={GONE: True})
            return

        if refusal is not None and not report.ended:
            raise refusal
        state = BatchState.IN_PROGRESS
        due_in_s = self.context.pace.next_poll_s(self.batch.submitted_s)
        if report.ended:
            state = BatchState.COLLECTING
            due_in_s = 0.0

        await self._give_back(
            due_in_s,
            state=state.value,
            failures=0,
            counts=_counts(report),
            problem=problem_text(report.problem),
        )

    @property
    def _is_to_be_cancelled(self) -> bool:
        """Whether to cancel it; an adopted one may turn out to be another's, and is not."""
        batch = self.batch
        return batch.held is RunPause.CANCELLED and not (batch.cancel_asked or batch.adopted)

    async def _cancel(self) -> ProviderError | None:
        """Have the batch cancelled; return why the provider does not: perhaps it has ended."""
        try:
            await self.client.cancel(str(self.batch.provider_name))
        except ProviderError as error:
            return error
        await self._write(cancelled_at=func.now())
        log.info("batch_cancelled", batch=self.batch.id, model=self.batch.model)
        return None

    def _is_gone(self, error: ProviderError) -> bool:
        """Return whether a provider has forgotten a batch that nothing more can come of."""
        batch = self.batch
        known_by_now = batch.submitted_s > self.context.pace.certain_s
        stopped = batch.cancel_asked or (self._is_to_be_cancelled and known_by_now)
        given_up = stopped or batch.submitted_s > UNKNOWN_AFTER_S
        return given_up and error.error_class == ErrorClass.NOT_FOUND

    async def _collect(self) -> None:
        """Store the results of an ended batch, then end it.

        After a break it is begun again: verdicts that are stored stay, and the counts are new.
        """
        batch = self.batch
        name = str(batch.provider_name)
        asked = await self.context.ask(requests_of, batch.id)
        commands = {request.item: request.command for request in asked}
        reader = ResultReader(batch.token, commands.keys())
        if not batch.gone:
            ends = await self._read(reader, name, commands)
            if batch.adopted and reader.is_foreign:
                await self._refuse()
                return
            # A file may be there before all of it is, or be cut without a sign. After some times
            # what it lacks counts as lost, and is asked, and paid for, again.
            # Those of a cancelled run are not waited for.
            readings = READINGS if ends or batch.held is not RunPause.CANCELLED else 0
            lacks = reader.lacks_answers(batch.succeeded) or not ends
            if batch.failures < readings and lacks:
                raise ProviderError(
                    f"{reader.counts[ResultKind.SUCCEEDED]} answers of {batch.succeeded} can be"
                    " read",
                    error_class=ErrorClass.MALFORMED,
                    status=200,
                )

        reader.finish()
        await self._store_refusals(reader)
        await self._end(reader)
        await self.client.discard(name)

    async def _read(
        self, reader: ResultReader, name: str, commands: Mapping[BatchItem, str]
    ) -> bool:
        """Store the answers as they come; return whether the results have an end."""
        group: list[tuple[BatchItem, Verdict]] = []
        size = 0
        ends = True
        try:
            async for result in self.client.results(name, self.batch.requests):
                answer = reader.read(result)
                if answer is not None:
                    item, completion = answer
                    group.append((item, self._answered(completion, commands[item])))
                    size += len(completion.text or "")
                if len(group) == GROUP or size > GROUP_CHARACTERS:
                    await self._store(group)
                    group = []
                    size = 0
        except ProviderError:
            if group:  # paid for, whatever is wrong behind them
                await self._store(group)
            raise
        except EndlessResultsError:
            ends = False
            log.warning("batch_results_without_end", batch=self.batch.id, model=self.batch.model)

        if group:
            await self._store(group)
        return ends

    def _answered(self, completion: Completion, command: str) -> Verdict:
        """Return the verdict of an answer; where its time went was not measured."""
        cost = cost_usd(completion.usage, self.spec.batch_price)
        return self._signed(judge(completion, command, self.spec.output), cost_usd=cost)

    def _refused(self, error: ProviderError) -> Verdict:
        """Return the verdict of a request that the provider refused, as of a live one."""
        kind = ErrorClass(error.error_class)
        call = CallError(
            attempt=1,
            error_class=kind,
            status=error.status,
            retry_after_s=error.retry_after_s,
            message=str(error),
            at=datetime.now(UTC),
        )
        lost = Verdict(Outcome.API_ERROR, None, kind)
        return self._signed(lost, call_errors=(call,))

    def _signed(self, verdict: Verdict, **more: object) -> Verdict:
        return replace(
            verdict,
            worker=self.context.worker,
            created_at=datetime.now(UTC),
            **more,
        )

    async def _store(self, verdicts: Sequence[tuple[BatchItem, Verdict]]) -> None:
        batch = self.batch
        keyed = []
        for item, verdict in verdicts:
            key = VerdictKey(batch.run_model_id, item.sample_key, item.epoch, item.generation)
            keyed.append((key, verdict))

        began_s = monotonic()
        new = await self.context.ask(insert_verdicts, keyed)
        if self.context.work is not None and new:  # results that break off are read once more
            group = [(batch.model, verdict) for _, verdict in verdicts]
            self.context.work.stored(group, monotonic() - began_s)

    async def _refuse(self) -> None:
        """Give up an adopted batch whose results are those of another one, and look on."""
        batch = self.batch
        log.warning("foreign_batch_refused", batch=batch.id, model=batch.model)
        refused = sorted({*batch.refused_names, str(batch.provider_name)})
        await self._give_back(
            0,
            state=BatchState.CREATING.value,
            provider_name=None,
            submitted_at=None,
            adopted=False,
            refused_names=[{"name": name} for name in refused],
            counts={},
        )

    async def _store_refusals(self, reader: ResultReader) -> None:
        """Store refused requests as verdicts, if something shows that the model answers others."""
        if not reader.refused:
            return
        if await self.context.ask(has_answers, self.batch.run_model_id):
            refused = [(item, self._refused(error)) for item, error in reader.refused.items()]
            await self._store(refused)
        else:
            for item, error in reader.refused.items():
                reader.problems[item] = str(error)

    async def _end(self, reader: ResultReader) -> None:
        """Settle all items, ask those live whose time it is, and end the batch, in this order."""
        batch = self.batch
        failed = batch.failed_as_a_whole and reader.is_empty
        if not failed:
            # What went wrong with all alike is the account's or the host's, and gives no item up.
            await self.context.ask(settle_items, batch.id, reader.problems)

        if batch.held is None:  # else `resume` publishes them
            items = []
            for item in await self.context.ask(live_items_of, batch.id):
                place = item.sample_key, item.epoch, item.generation
                items.append(Item(batch.run_id, batch.model, *place))
            if items and await self._may_cost():
                await self.context.publish(items)
                number = len(items)
                log.info(
                    "batch_items_asked_live",
                    batch=batch.id,
                    model=batch.model,
                    items=number,
                )

        await self.context.ask(self._close, reader, failed=failed)
        log.info(
            "batch_ended",
            batch=batch.id,
            model=batch.model,
            **reader.numbers(),
        )

    async def _may_cost(self) -> bool:
        """Return whether the caps leave money for calls, now that this batch has its cost."""
        batch = self.batch
        await self._write(expected_usd=Decimal(0))
        return await self.context.ask(has_money_left, batch.run_id, batch.model)

    def _close(
        self,
        session: Session,
        reader: ResultReader,
        *,
        failed: bool,
    ) -> None:
        free_items(session, self.batch.id, refunded=1 if failed else 0)
        values: JsonObject = {
            "state": BatchState.ENDED.value,
            "ended_at": func.now(),
            "failures": 0,
            "counts": dict(reader.numbers()),
        }
        if failed:
            values["counts"][FAILED_AS_A_WHOLE] = True
        else:
            values["problem"] = None

        give_back(session, self.batch, self.context.worker, 0, **values)


def _counts(report: BatchReport) -> dict[str, int]:
    counts = known({SUCCEEDED: report.succeeded, "failed": report.failed})
    if report.ended and report.problem is not None:
        counts[FAILED_AS_A_WHOLE] = True
    return counts
