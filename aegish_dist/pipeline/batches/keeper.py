"""The batches of one worker process: plans them, and moves those whose models it may call.

One transaction stores a batch with its items before the provider hears of it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from time import monotonic

from sqlalchemy.orm import Session

from aegish_dist.core.batches import BatchPace, new_token, next_batch
from aegish_dist.core.isolation import Shares
from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.run import BatchState, Prompt, RunPause
from aegish_dist.core.secrets import SecretStr, origin
from aegish_dist.db.batches import (
    BatchingModel,
    TakenBatch,
    batchable_items,
    cancelled_among,
    failed_in_a_row,
    give_back,
    has_batches,
    models_of_due_batches,
    models_to_plan,
    plans_alone,
    save_batch,
    take_due,
)
from aegish_dist.db.fleet import items_under_way
from aegish_dist.db.runs import Assignment, load_assignment, load_run
from aegish_dist.errors import AegishError, BatchTakenError, StoreUnusableError
from aegish_dist.logs import get_logger
from aegish_dist.models.credentials import CatalogCredentials
from aegish_dist.pipeline.batches.budget import batch_budget
from aegish_dist.pipeline.batches.steps import BatchContext, advance
from aegish_dist.providers.batches.transfer import BatchClient

log = get_logger(__name__)


OpenClient = Callable[[ModelSpec, Prompt, CallParameters, SecretStr | None], BatchClient]

POLL_S = 1.0  # seconds between two looks for due batches, at most: a query of one small index
IDLE_S = 5.0  # the same while nothing is to be done, where the database announces changes of runs
# Batches of one provider that a worker moves at the same time; one may hold 200 MB while it is
# sent.
AT_ONCE = 4
PLANNING_SHARE = 0.05  # share of the time that looking for missing items may take
RETRY_AFTER_BUG_S = 10.0


class BatchKeeper:
    """Moves batches until it is stopped."""

    def __init__(
        self,
        context: BatchContext,
        open_client: OpenClient,
        credentials: CatalogCredentials,
        serves: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Take nothing yet; `serves` says if this worker is meant for the models of a queue."""
        self._context = context
        self._open_client = open_client
        self._credentials = credentials
        self._serves = serves
        self._steps: dict[int, tuple[TakenBatch, asyncio.Task[None]]] = {}
        self._slots: Shares[int] = Shares(AT_ONCE)
        self._planning: asyncio.Task[None] | None = None
        self._plan_at: dict[int, float] = {}
        self._empty_plans: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._announced = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Look for work until stopped, then let what is under way end."""
        while not stopping.is_set():
            self._changed.clear()
            pause_s = min(POLL_S, self._context.pace.first_s)
            try:
                if not await self._look() and self._announced:
                    pause_s = IDLE_S
            except StoreUnusableError as error:
                log.warning("batches_wait_for_database", problem=str(error))
            except Exception:
                pause_s = RETRY_AFTER_BUG_S
                log.exception("looking_for_batches_failed", retry_in_s=pause_s)
            waits = [asyncio.ensure_future(each.wait()) for each in (stopping, self._changed)]
            await asyncio.wait(waits, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
        if under_way := self._under_way():
            await asyncio.wait(under_way)

    def runs_changed(self, announced: bool) -> None:
        """Look now; and seldom, while there is nothing to do and changes are announced."""
        self._announced = announced
        self._changed.set()

    def _under_way(self) -> list[asyncio.Task[None]]:
        steps = [task for _, task in self._steps.values()]
        return [*steps, *([self._planning] if self._planning else [])]

    @property
    def busy(self) -> bool:
        return bool(self._steps)

    def cancel(self) -> None:
        """End what is under way at once; its leases end by themselves."""
        for task in self._under_way():
            task.cancel()

    async def _look(self) -> bool:
        """Begin what is due; return whether there is, or was, anything to do."""
        context = self._context
        due, wanted = await context.ask(
            lambda session: (models_of_due_batches(session), models_to_plan(session))
        )
        due, wanted = self._callable(due), self._callable(wanted)
        await self._end_cancelled()
        providers: defaultdict[str, list[int]] = defaultdict(list)
        for each in due:
            providers[str(origin(each.destination.base_url))].append(each.run_model_id)
        for provider, keys in providers.items():
            if (free := self._slots.left(provider)) > 0:
                for batch in await context.ask(
                    take_due, keys, context.worker, context.pace.lease_s, free
                ):
                    self._slots.hold(provider, batch.id)
                    step = asyncio.create_task(self._advance(batch, provider))
                    self._steps[batch.id] = (batch, step)
        if self._planning is None or self._planning.done():
            ready = [m for m in wanted if self._plan_at.get(m.run_model_id, 0) < monotonic()]
            if ready:
                self._planning = asyncio.create_task(self._plan(ready))
        return bool(due or wanted or self._under_way())

    async def _end_cancelled(self) -> None:
        """End the steps of runs that were cancelled since; the next step of a batch knows it."""
        since = [
            batch.id
            for batch, _ in self._steps.values()
            if batch.held is not RunPause.CANCELLED and batch.state is not BatchState.PLANNED
        ]
        for key in await self._context.ask(cancelled_among, since) if since else ():
            if (found := self._steps.get(key)) is not None:
                batch, step = found
                step.cancel()
                await asyncio.wait([step])
                with suppress(BatchTakenError):
                    await self._context.ask(give_back, batch, self._context.worker, 0)

    def _callable(self, models: list[BatchingModel]) -> list[BatchingModel]:
        credentials = self._credentials.now()
        return [
            each
            for each in models
            if self._serves(each.queue) and credentials.refusal(each.destination) is None
        ]

    async def _advance(self, batch: TakenBatch, provider: str) -> None:
        try:
            found = await self._open(batch.run_id, batch.model)
            if found is not None:
                await advance(self._context, batch, found[1], found[0].spec)
            self._plan_at.pop(batch.run_model_id, None)
        except StoreUnusableError as error:
            log.warning("batch_waits_for_database", batch=batch.id, problem=str(error))
        except Exception as error:
            log.exception("batch_failed", batch=batch.id, state=batch.state.value)
            with suppress(AegishError):
                await self._context.failed(batch, error)
        finally:
            del self._steps[batch.id]
            self._slots.release(provider, batch.id)

    async def _open(self, run_id: str, model: str) -> tuple[Assignment, BatchClient] | None:
        """Return a model of a run and the client of its batches; None when the run is gone."""
        found = await self._context.ask(load_assignment, run_id, model)
        if found is None:
            return None
        key = self._credentials.now().key(found.spec.destination)
        return found, self._open_client(found.spec, found.prompt, found.parameters, key)

    async def _plan(self, models: list[BatchingModel]) -> None:
        for model in models:
            began, planned = monotonic(), 0
            try:
                planned = await self._plan_model(model)
            except StoreUnusableError as error:
                log.warning("batches_wait_for_database", problem=str(error))
            except AegishError as error:
                log.warning("batch_not_planned", model=model.model, problem=str(error))
            except Exception:
                log.exception("planning_batches_failed", model=model.model)
            # Look less and less often for missing items of a model that has none.
            key, took_s, pace = model.run_model_id, monotonic() - began, self._context.pace
            empty = self._empty_plans[key] = 0 if planned else self._empty_plans.get(key, 0) + 1
            pause_s = pace.after_failures_s(empty) if empty else 0.0
            self._plan_at[key] = monotonic() + max(pause_s, took_s / PLANNING_SHARE)

    async def _plan_model(self, model: BatchingModel) -> int:
        found = await self._open(model.run_id, model.model)
        if found is None:
            return 0
        (assignment, client), pace, planned = found, self._context.pace, 0
        while await self._context.ask(plan_batch, model, assignment.spec, client, pace):
            planned += 1
        return planned


def plan_batch(
    session: Session, model: BatchingModel, spec: ModelSpec, client: BatchClient, pace: BatchPace
) -> bool:
    """Plan the next batch of a model of a run; return whether there was one to plan.

    The client knows the provider's limits and how large a request is. After batches that failed as
    a whole, the pace says how long the next one waits.
    """
    run_model_id = model.run_model_id
    if not (plans_alone(session, run_model_id) and _may_plan(session, model, pace)):
        return False
    token = new_token()
    run = load_run(session, model.run_id)
    budget = batch_budget(session, run, spec)
    with closing(batchable_items(session, run.run_id, run_model_id)) as missing:
        sized = (
            (each.item, client.size(each, token), budget.request_usd(each.command))
            for each in missing
        )
        items, usd, short_of_money = next_batch(sized, client.limits, budget.room_usd)
    if not items:
        return False
    # What open batches cost less than expected is left once they end.
    if short_of_money and has_batches(session, run_model_id, still_open=True):
        return False
    save_batch(session, run_model_id, token, items, usd)
    log.info("batch_planned", run=model.run_id, model=model.model, requests=len(items))
    return True


def _may_plan(session: Session, model: BatchingModel, pace: BatchPace) -> bool:
    """Return whether no item is asked live beside, and the last batches were not refused whole."""
    if not has_batches(session, model.run_model_id):
        # Calls that began before may be under way. Later ones are of items given up by batches.
        since = model.batch_from
        if since is None:
            return False
        # None: a living worker has not said since what it holds.
        return items_under_way(session, model.run_id, since, model.model) == 0
    failed, ended_s = failed_in_a_row(session, model.run_model_id)
    return not failed or ended_s >= pace.after_failures_s(failed)
