"""Following a batch at its provider until it has ended there."""

from sqlalchemy import func

from aegish_dist.core.batch import BatchReport, BatchState
from aegish_dist.core.batch_rules import UNKNOWN_AFTER_S
from aegish_dist.core.run import Held
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.db.batches import FAILED_AS_A_WHOLE, GONE, SUCCEEDED, TakenBatch, problem_text
from aegish_dist.errors import ProviderError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.batches.desk import Desk
from aegish_dist.providers.batches.contract import BatchClient

log = get_logger(__name__)


async def follow(desk: Desk, batch: TakenBatch, client: BatchClient) -> None:
    """Ask how far a batch is, and have it cancelled when its run is."""
    name = str(batch.provider_name)
    refusal = await _cancel(desk, batch, client) if _is_to_be_cancelled(batch) else None
    try:
        report = await client.poll(name)
    except ProviderError as error:
        if not _is_gone(desk, batch, error):
            raise
        await desk.give_back(batch, 0, state=BatchState.COLLECTING.value, counts={GONE: True})
        return
    if refusal is not None and not report.ended:
        raise refusal
    due_in_s = 0.0 if report.ended else desk.pace.next_poll_s(batch.submitted_s)
    state = BatchState.COLLECTING if report.ended else BatchState.IN_PROGRESS
    await desk.give_back(
        batch,
        due_in_s,
        state=state.value,
        failures=0,
        counts=_counts(report),
        problem=problem_text(report.problem),
    )


async def _cancel(desk: Desk, batch: TakenBatch, client: BatchClient) -> ProviderError | None:
    """Have a batch cancelled; return why the provider does not: perhaps the batch has ended."""
    try:
        await client.cancel(str(batch.provider_name))
    except ProviderError as error:
        return error
    await desk.write(batch, cancelled_at=func.now())
    log.info("batch_cancelled", batch=batch.id, model=batch.model)
    return None


def _is_to_be_cancelled(batch: TakenBatch) -> bool:
    """Return whether to cancel it; an adopted one may turn out to be another's, and is not."""
    stopped = batch.held is Held.CANCELLED
    return stopped and not batch.cancel_asked and not batch.adopted


def _is_gone(desk: Desk, batch: TakenBatch, error: ProviderError) -> bool:
    """Return whether a provider has forgotten a batch that nothing more can come of."""
    unknown = error.error_class == ErrorClass.NOT_FOUND
    known_by_now = batch.submitted_s > desk.pace.certain_s
    stopped = batch.cancel_asked or (_is_to_be_cancelled(batch) and known_by_now)
    return unknown and (stopped or batch.submitted_s > UNKNOWN_AFTER_S)


def _counts(report: BatchReport) -> dict[str, object]:
    numbers = {SUCCEEDED: report.succeeded, "failed": report.failed}
    counts: dict[str, object] = {k: v for k, v in numbers.items() if v is not None}
    if report.ended and report.problem is not None:
        counts[FAILED_AS_A_WHOLE] = True
    return counts
