"""Handing a batch over to its provider: the one step that costs money."""

from sqlalchemy import func
from sqlalchemy.orm import Session

from aegish_dist.core.batch import BatchRequest, BatchState
from aegish_dist.core.batch_rules import may_exist
from aegish_dist.core.run import Held
from aegish_dist.db.batch_items import free_items, requests_of
from aegish_dist.db.batches import TakenBatch, give_back, write
from aegish_dist.errors import ProviderError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.batches.desk import Desk
from aegish_dist.providers.batches.contract import BatchClient

log = get_logger(__name__)


async def hand_over(desk: Desk, batch: TakenBatch, client: BatchClient) -> None:
    """Create a planned batch at its provider.

    That this is being tried is committed first. Whatever happens before the provider's name is
    committed leaves the batch `creating`, where it is looked for before it is created again.
    """
    if batch.held is Held.PAUSED:
        await desk.give_back(batch, desk.pace.longest_s)
        return
    requests: list[BatchRequest] = []
    if batch.held is None:
        requests = await desk.ask(lambda session: _begin(session, desk, batch))
    if not requests:
        await desk.ask(lambda session: _dissolve(session, desk, batch))
        return
    try:
        name = await client.create(batch.token, requests)
    except ProviderError as error:
        unknown = may_exist(error.status)
        values = {} if unknown else {"state": BatchState.PLANNED.value, "creating_at": None}
        log.warning("batch_not_created", batch=batch.id, model=batch.model, unknown=unknown)
        await desk.failed(batch, error, error.retry_after_s, **values)
        return
    await desk.give_back(batch, desk.pace.first_s, **named(name))
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


def _begin(session: Session, desk: Desk, batch: TakenBatch) -> list[BatchRequest]:
    write(
        session,
        batch,
        desk.worker,
        state=BatchState.CREATING.value,
        creating_at=func.now(),
    )
    return requests_of(session, batch.id)


def _dissolve(session: Session, desk: Desk, batch: TakenBatch) -> None:
    """End a batch that no provider has heard of, as its run is cancelled."""
    free_items(session, batch.id, refunded=1)
    ended = {"state": BatchState.ENDED.value, "ended_at": func.now(), "problem": None}
    give_back(session, batch, desk.worker, 0, **ended)
