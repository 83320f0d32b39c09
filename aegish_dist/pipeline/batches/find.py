"""Looking for a batch whose creation brought no answer: it may exist, and may be paid for."""

from aegish_dist.core.batch import BatchState
from aegish_dist.db.batches import TakenBatch, known_names
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.batches.desk import Desk
from aegish_dist.pipeline.batches.hand_over import named
from aegish_dist.providers.batches.contract import BatchClient

log = get_logger(__name__)


async def find(desk: Desk, batch: TakenBatch, client: BatchClient) -> None:
    """Adopt a batch that the provider has, or plan it again once it certainly has none.

    Lists of providers lag: that nothing is found counts only some minutes after the attempt.
    """
    found = await client.find(batch.token, batch.requests, batch.begun_at)
    wanted = [name for name in found if name not in batch.refused_names]
    known = await desk.ask(lambda session: known_names(session, wanted))
    names = [name for name in wanted if name not in known]
    if names:
        log.info("batch_adopted", batch=batch.id, model=batch.model, candidates=len(names))
        await desk.give_back(batch, 0, adopted=True, **named(names[0]))
    elif not all(known.values()):
        # Another batch of ours took one of them for its own: it may be this one, and is left then.
        await desk.give_back(batch, desk.pace.next_poll_s(batch.creating_s), failures=0)
    elif batch.creating_s >= desk.pace.certain_s:
        log.info("batch_not_found", batch=batch.id, model=batch.model)
        await desk.give_back(
            batch, 0, state=BatchState.PLANNED.value, creating_at=None, problem=None
        )
    else:
        left_s = desk.pace.certain_s - batch.creating_s
        await desk.give_back(batch, min(desk.pace.first_s, left_s), failures=0)


async def refuse(desk: Desk, batch: TakenBatch) -> None:
    """Give up an adopted batch whose results are those of another one, and look on."""
    names = [{"name": name} for name in sorted({*batch.refused_names, str(batch.provider_name)})]
    log.warning("foreign_batch_refused", batch=batch.id, model=batch.model)
    await desk.give_back(
        batch,
        0,
        state=BatchState.CREATING.value,
        provider_name=None,
        submitted_at=None,
        adopted=False,
        refused_names=names,
        counts={},
    )
