"""Extensions of runs: more models, more datasets, more epochs of a run that is stored."""

from collections.abc import Sequence

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from aegish_dist.core.model import ModelSpec
from aegish_dist.core.run import Run
from aegish_dist.db.missing import Extent, open_models
from aegish_dist.db.runs import load_run, save_models
from aegish_dist.db.tables import RunDatasetRow, RunRow
from aegish_dist.errors import StoreError


def extent_of(session: Session, run: Run) -> Extent:
    """Lock a run until the transaction ends, and return what it asks.

    Args:
        session: Transaction of the caller. Two that extend one run wait for each other.

    Raises:
        StoreError: It was extended, held or deleted since.
    """
    locked = select(RunRow.id).where(RunRow.id == run.run_id).with_for_update(key_share=True)
    if session.scalar(locked) is None or load_run(session, run.run_id) != run:
        raise StoreError(f"run {run.run_id} was changed by another command meanwhile: try again")
    datasets = select(RunDatasetRow.dataset_id).where(RunDatasetRow.run_id == run.run_id)
    return Extent(
        tuple(spec.id for spec in run.models), tuple(session.scalars(datasets)), run.epochs
    )


def save_extension(
    session: Session,
    run_id: str,
    models: Sequence[ModelSpec],
    queues: Sequence[str],
    dataset_ids: Sequence[int],
    *,
    epochs: int,
    in_batches: bool = False,
) -> None:
    """Add to what a run asks, and have workers listen to all its queues again.

    Args:
        session: Transaction of the caller, which `extent_of` locked the run in.
        in_batches: Whether the new models are asked in batches, where their providers take them.
    """
    session.execute(update(RunRow).where(RunRow.id == run_id).values(epochs=epochs))
    if dataset_ids:
        added = [{"run_id": run_id, "dataset_id": key} for key in dataset_ids]
        session.execute(insert(RunDatasetRow), added)
    if models:
        after_s = 0.0 if in_batches else None
        save_models(session, run_id, models, queues, batch_after_s=after_s)
    open_models(session, run_id)
