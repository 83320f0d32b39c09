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
            waits = [asyncio.create_task(event.wait()) for event in (stopping, self._changed)]
            await asyncio.wait(waits, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

        if under_way := self._under_way():
            await asyncio.wait(under_way)

    def runs_changed(self, announced: bool) -> None:
        """Look now; and seldom, while there is nothing to do and changes are announced."""
        self._announced = announced
        self._changed.set()

    def _under_way(self) -> list[asyncio.Task[None]]:
        tasks = [step for _, step in self._steps.values()]
        if self._planning is not None:
            tasks.append(self._planning)
        return tasks

    @property
    def busy(self) -> bool:
        return bool(self._steps)

    def cancel(self) -> None:
        """End what is under way at once; its leases end by themselves."""
        for task in self._under_way():
            task.cancel()

    async def _look(self) -> bool:
        """Begin what is due; return whether there is, or was, anything to do."""
        due, wanted = await self._context.ask(
            lambda session: (models_of_due_batches(session), models_to_plan(session))
        )
        due = self._callable(due)
        wanted = self._callable(wanted)
        await self._end_cancelled()
        providers: defaultdict[str, list[int]] = defaultdict(list)
        for model in due:
            provider = str(origin(model.destination.base_url))
            providers[provider].append(model.run_model_id)

        for provider, keys in providers.items():
            await self._take(provider, keys)
        if self._planning is None or self._planning.done():
            now_s = monotonic()
            ready = [model for model in wanted if self._plan_at.get(model.run_model_id, 0) < now_s]
            if ready:
                self._planning = asyncio.create_task(self._plan(ready))

        return bool(due or wanted or self._under_way())

    async def _take(self, provider: str, keys: list[int]) -> None:
        """Take as many due batches of a provider as may be moved beside those under way."""
        # Asked for before batches are taken: a lease runs from then on.
        free = self._slots.left(provider)
        if free <= 0:
            return
        context = self._context
        lease_s = context.pace.lease_s
        for batch in await context.ask(take_due, keys, context.worker, lease_s, free):
            self._slots.hold(provider, batch.id)
            step = asyncio.create_task(self._advance(batch, provider))
            self._steps[batch.id] = (batch, step)

    async def _end_cancelled(self) -> None:
        """End the steps of runs that were cancelled since; the next step of a batch knows it."""
        asked = []
        for batch, _ in self._steps.values():
            if batch.held is not RunPause.CANCELLED and batch.state is not BatchState.PLANNED:
                asked.append(batch.id)

        if not asked:
            return
        for key in await self._context.ask(cancelled_among, asked):
            if key in self._steps:
                batch, step = self._steps[key]
                step.cancel()
                await asyncio.wait([step])
                with suppress(BatchTakenError):
                    await self._context.ask(give_back, batch, self._context.worker, 0)

    def _callable(self, models: list[BatchingModel]) -> list[BatchingModel]:
        credentials = self._credentials.now()
        served = [model for model in models if self._serves(model.queue)]
        return [model for model in served if credentials.refusal(model.destination) is None]

    async def _advance(self, batch: TakenBatch, provider: str) -> None:
        try:
            opened = await self._open(batch.run_id, batch.model)
            if opened is not None:
                assignment, client = opened
                await advance(self._context, batch, client, assignment.spec)
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
        assignment = await self._context.ask(load_assignment, run_id, model)
        if assignment is None:
            return None
        spec = assignment.spec
        key = self._credentials.now().key(spec.destination)
        client = self._open_client(spec, assignment.prompt, assignment.parameters, key)
        return assignment, client

    async def _plan(self, models: list[BatchingModel]) -> None:
        for model in models:
            began_s = monotonic()
            planned = 0
            try:
                planned = await self._plan_model(model)
            except StoreUnusableError as error:
                log.warning("batches_wait_for_database", problem=str(error))
            except AegishError as error:
                log.warning("batch_not_planned", model=model.model, problem=str(error))
            except Exception:
                log.exception("planning_batches_failed", model=model.model)
            took_s = monotonic() - began_s
            pause_s = self._pause_s(model.run_model_id, planned)
            self._plan_at[model.run_model_id] = monotonic() + max(pause_s, took_s / PLANNING_SHARE)

    def _pause_s(self, run_model_id: int, planned: int) -> float:
        """Return the pause until a model's next plan, longer each time that nothing is missing."""
        if planned:
            self._empty_plans.pop(run_model_id, None)
            return 0.0
        empty = self._empty_plans.get(run_model_id, 0) + 1
        self._empty_plans[run_model_id] = empty
        return self._context.pace.after_failures_s(empty)

    async def _plan_model(self, model: BatchingModel) -> int:
        opened = await self._open(model.run_id, model.model)
        if opened is None:
            return 0
        assignment, client = opened
        planned = 0
        pace = self._context.pace
        while await self._context.ask(plan_batch, model, assignment.spec, client, pace):
            planned += 1
        return planned


def plan_batch(
    session: Session,
    model: BatchingModel,
    spec: ModelSpec,
    client: BatchClient,
    pace: BatchPace,
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
            (request.item, client.size(request, token), budget.request_usd(request.command))
            for request in missing
        )
        items, usd, short_of_money = next_batch(sized, client.limits, budget.room_usd)

    if not items:
        return False
    # What open batches cost less than expected is left once they end.
    if short_of_money and has_batches(session, run_model_id, still_open=True):
        return False
    save_batch(session, run_model_id, token, items, usd)
    log.info(
        "batch_planned",
        run=model.run_id,
        model=model.model,
        requests=len(items),
    )
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
