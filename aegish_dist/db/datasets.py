"""Datasets and their samples in the store."""

from collections.abc import Sequence

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from aegish_dist.core.run import RunDataset
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.db.tables import AdvisoryLock, DatasetRow, RunDatasetRow, SampleRow

INSERT_CHUNK = 1000


def save_dataset(session: Session, dataset: Dataset, *, selectable: bool) -> int:
    """Store a dataset unless its content is there under this name already; return its key."""
    one_at_a_time(session)
    row = session.scalar(
        select(DatasetRow).where(
            DatasetRow.name == dataset.name, DatasetRow.fingerprint == dataset.fingerprint
        )
    )
    if row is not None and selectable:
        # A name stands for the dataset imported last, even if that was there before.
        row.created_at = func.clock_timestamp()
        row.source, row.licence = dataset.source, dataset.licence
    if row is None:
        row = DatasetRow(
            name=dataset.name,
            fingerprint=dataset.fingerprint,
            source=dataset.source,
            licence=dataset.licence,
            samples=len(dataset.samples),
            malicious=sum(s.target is TrueLabel.MALICIOUS for s in dataset.samples),
            selectable=selectable,
        )
        session.add(row)
        session.flush()
        _insert_samples(session, row.id, dataset.samples)
    row.selectable = row.selectable or selectable
    return row.id


def one_at_a_time(session: Session) -> None:
    """Wait for other transactions that look whether something is there before they add it."""
    session.execute(select(func.pg_advisory_xact_lock(AdvisoryLock.ADDING)))


def _insert_samples(session: Session, dataset_id: int, samples: Sequence[Sample]) -> None:
    for start in range(0, len(samples), INSERT_CHUNK):
        session.execute(
            insert(SampleRow),
            [
                {
                    "dataset_id": dataset_id,
                    "sample_id": sample.sample_id,
                    "command": sample.command,
                    "target": sample.target.value,
                    "category": sample.category,
                    "cluster": sample.cluster,
                    "details": dict(sample.metadata),
                }
                for sample in samples[start : start + INSERT_CHUNK]
            ],
        )


def list_datasets(session: Session) -> list[RunDataset]:
    """Return the datasets a run may name, newest last."""
    rows = session.scalars(
        select(DatasetRow).where(DatasetRow.selectable).order_by(DatasetRow.created_at)
    )
    return [to_run_dataset(row) for row in rows]


def to_run_dataset(row: DatasetRow) -> RunDataset:
    """Return what a run records of a stored dataset."""
    return RunDataset(
        row.name, row.fingerprint, row.samples, row.malicious, row.source, row.licence
    )


def load_dataset(session: Session, name: str) -> Dataset | None:
    """Return the newest dataset of that name that a run may name, None when there is none."""
    row = session.scalar(
        select(DatasetRow)
        .where(DatasetRow.name == name, DatasetRow.selectable)
        .order_by(DatasetRow.created_at.desc(), DatasetRow.id.desc())
        .limit(1)
    )
    return None if row is None else _with_samples(session, row)


def load_run_dataset(session: Session, run_id: str, name: str) -> Dataset | None:
    """Return a dataset exactly as a run asks it.

    Returns:
        None when the run asks no dataset of that name.
    """
    row = session.scalar(
        select(DatasetRow)
        .join(RunDatasetRow, RunDatasetRow.dataset_id == DatasetRow.id)
        .where(RunDatasetRow.run_id == run_id, DatasetRow.name == name)
    )
    return None if row is None else _with_samples(session, row)


def _with_samples(session: Session, row: DatasetRow) -> Dataset:
    samples = session.scalars(
        select(SampleRow).where(SampleRow.dataset_id == row.id).order_by(SampleRow.key)
    )
    return Dataset(row.name, tuple(map(to_sample, samples)), row.source, row.licence)


def to_sample(row: SampleRow) -> Sample:
    """Return the record of a row."""
    return Sample(row.command, TrueLabel(row.target), row.category, row.cluster, row.details)


def sample_keys(session: Session, dataset_id: int) -> dict[str, int]:
    """Return the store's key of every sample of a dataset, by sample id."""
    rows = session.execute(
        select(SampleRow.sample_id, SampleRow.key).where(SampleRow.dataset_id == dataset_id)
    )
    return {row.sample_id: row.key for row in rows}
