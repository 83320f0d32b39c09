"""Collecting the results of an ended batch: verdicts, and what becomes of the other items."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from time import monotonic

from sqlalchemy import func
from sqlalchemy.orm import Session

from aegish_dist.core.batch import BatchItem, BatchResult, BatchState
from aegish_dist.core.batch_results import ResultKind, ResultReader
from aegish_dist.core.completion import Completion
from aegish_dist.core.cost import cost_usd
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.parsing import PARSER_VERSION, judge
from aegish_dist.core.verdict import CallError, ErrorClass, Item, Outcome, Verdict
from aegish_dist.db.batch_items import free_items, live_items_of, requests_of, settle_items
from aegish_dist.db.batches import FAILED_AS_A_WHOLE, TakenBatch, give_back
from aegish_dist.db.verdict_rows import VerdictKey
from aegish_dist.db.verdicts import has_answers, insert_verdicts
from aegish_dist.errors import ProviderError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.batch_budget import has_money_left
from aegish_dist.pipeline.batches.desk import Desk
from aegish_dist.pipeline.batches.find import refuse
from aegish_dist.providers.batches.contract import BatchClient

log = get_logger(__name__)

READINGS = 4
"""Readings of results that lack answers after which these are given up."""
GROUP = 100
"""Verdicts per insert: live calls are stored beside it, and wait as long as one takes."""


@dataclass(frozen=True, slots=True)
class _Collecting:
    """A batch whose results are read by a worker."""

    desk: Desk
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
        return replace(verdict, worker=self.desk.worker, created_at=datetime.now(UTC))

    def key(self, item: BatchItem) -> VerdictKey:
        """Return the key of an item's verdict."""
        run_model = self.batch.run_model_id
        return VerdictKey(run_model, item.sample_key, item.epoch, item.generation)

    async def store(self, verdicts: Sequence[tuple[BatchItem, Verdict]]) -> None:
        """Insert verdicts; those that are there already stay."""
        keyed = [(self.key(item), verdict) for item, verdict in verdicts]
        began = monotonic()
        new = await self.desk.ask(lambda session: insert_verdicts(session, keyed))
        if self.desk.work is not None and new:  # results that break off are read once more
            group = [(self.batch.model, verdict) for _, verdict in verdicts]
            self.desk.work.stored(group, monotonic() - began)


async def collect(desk: Desk, batch: TakenBatch, client: BatchClient, spec: ModelSpec) -> None:
    """Store the results of an ended batch, then end it.

    After a break it is begun again: verdicts that are stored stay, and the counts are new.
    """
    asked = await desk.ask(lambda session: requests_of(session, batch.id))
    reader = ResultReader(batch.token, frozenset(request.item for request in asked))
    of = _Collecting(desk, batch, spec)
    name = str(batch.provider_name)
    if not batch.gone:
        await _read(of, reader, client.results(name))
        if batch.adopted and reader.is_foreign:
            await refuse(desk, batch)
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
    if await of.desk.ask(lambda session: has_answers(session, run_model_id)):
        await of.store([(item, of.refusal(error)) for item, error in reader.refused.items()])
    else:
        reader.problems.update((item, str(error)) for item, error in reader.refused.items())


async def _end(of: _Collecting, reader: ResultReader) -> None:
    """Settle all items, ask those live whose time it is, and end the batch, in this order."""
    desk, batch = of.desk, of.batch
    failed = batch.failed_as_a_whole and reader.is_empty
    if not failed:
        # What went wrong with all alike is the account's or the host's: no item is given up for it.
        await desk.ask(lambda session: settle_items(session, batch.id, reader.problems))
    if batch.held is None:  # else `resume` publishes them
        live = await desk.ask(lambda session: live_items_of(session, batch.id))
        if live and await _may_cost(of):
            await desk.publish([_item(batch, each) for each in live])
            log.info("batch_items_asked_live", batch=batch.id, model=batch.model, items=len(live))
    await desk.ask(lambda session: _close(session, of, reader, failed=failed))
    log.info("batch_ended", batch=batch.id, model=batch.model, **reader.numbers())


async def _may_cost(of: _Collecting) -> bool:
    """Return whether the caps leave money for calls, now that this batch has cost what it has."""
    batch = of.batch
    await of.desk.write(batch, expected_usd=Decimal(0))
    return await of.desk.ask(lambda session: has_money_left(session, batch.run_id, batch.model))


def _close(session: Session, of: _Collecting, reader: ResultReader, *, failed: bool) -> None:
    free_items(session, of.batch.id, refunded=1 if failed else 0)
    values: dict[str, object] = {"state": BatchState.ENDED.value, "ended_at": func.now()}
    counts: dict[str, object] = {**reader.numbers()}
    if failed:
        counts[FAILED_AS_A_WHOLE] = True
    else:
        values["problem"] = None
    give_back(session, of.batch, of.desk.worker, 0, counts=counts, failures=0, **values)


def _item(batch: TakenBatch, item: BatchItem) -> Item:
    return Item(batch.run_id, batch.model, item.sample_key, item.epoch, item.generation)
