"""One step of a batch, by the worker that has it."""

import asyncio
from contextlib import suppress

from aegish_dist.core.batch import BatchState
from aegish_dist.core.model import ModelSpec
from aegish_dist.db.batches import TakenBatch, renew_lease
from aegish_dist.errors import (
    AegishError,
    BatchTakenError,
    ProviderError,
    StoreUnusableError,
)
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.batches.collect import collect
from aegish_dist.pipeline.batches.desk import Desk
from aegish_dist.pipeline.batches.find import find
from aegish_dist.pipeline.batches.follow import follow
from aegish_dist.pipeline.batches.hand_over import hand_over
from aegish_dist.providers.batches.contract import BatchClient
from aegish_dist.telemetry.attributes import Attributes, known
from aegish_dist.telemetry.tracing import span

log = get_logger(__name__)

STEPS = {
    BatchState.PLANNED: "create batch",
    BatchState.CREATING: "find batch",
    BatchState.IN_PROGRESS: "poll batch",
    BatchState.COLLECTING: "collect batch",
}


async def advance(desk: Desk, batch: TakenBatch, client: BatchClient, spec: ModelSpec) -> None:
    """Make the next step of a batch while its lease is renewed; give it back afterwards."""
    step = asyncio.create_task(_settled(desk, batch, client, spec))
    lease = asyncio.create_task(_renew(desk, batch))
    try:
        await asyncio.wait([step, lease], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (step, lease):
            task.cancel()
        await asyncio.wait([step, lease])
    if not step.cancelled():
        step.result()


async def _settled(desk: Desk, batch: TakenBatch, client: BatchClient, spec: ModelSpec) -> None:
    try:
        with span(STEPS[batch.state], batch.run_id, _facts(batch)):
            await _step(desk, batch, client, spec)
    except BatchTakenError:
        log.warning("batch_lost_to_another_worker", batch=batch.id, model=batch.model)
    except StoreUnusableError:
        raise  # its lease ends by itself
    except AegishError as error:
        problem = str(error)
        log.warning("batch_step_failed", batch=batch.id, state=batch.state.value, problem=problem)
        asked_s = error.retry_after_s if isinstance(error, ProviderError) else None
        with suppress(BatchTakenError):
            await desk.failed(batch, error, asked_s)


def _facts(batch: TakenBatch) -> Attributes:
    return known(
        {
            "aegish_dist.model": batch.model,
            "aegish_dist.batch.token": batch.token,
            "aegish_dist.batch.name": batch.provider_name,
            "aegish_dist.batch.requests": batch.requests,
        }
    )


async def _step(desk: Desk, batch: TakenBatch, client: BatchClient, spec: ModelSpec) -> None:
    match batch.state:
        case BatchState.PLANNED:
            await hand_over(desk, batch, client)
        case BatchState.CREATING:
            await find(desk, batch, client)
        case BatchState.IN_PROGRESS:
            await follow(desk, batch, client)
        case BatchState.COLLECTING:
            await collect(desk, batch, client, spec)


async def _renew(desk: Desk, batch: TakenBatch) -> None:
    """Renew the lease until it is lost."""
    lease_s = desk.pace.lease_s
    while True:
        await asyncio.sleep(lease_s / 3)
        with suppress(StoreUnusableError):
            if not await desk.ask(lambda s: renew_lease(s, batch.id, desk.worker, lease_s)):
                return
