"""The samples of a run in ranges of their keys, for reading verdicts part by part."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy import select
from sqlalchemy.orm import Session

from aegish_dist.db.statements import statement
from aegish_dist.db.tables import DatasetRow, RunDatasetRow

_END = 2**63 - 1
_EVERY_NTH = statement("every_nth_sample")


@dataclass(frozen=True, slots=True)
class SampleRange:
    """A range of the samples of a dataset."""

    dataset: str
    dataset_id: int
    first: int
    """The first key of a sample."""
    end: int
    """The first one that is not in it."""

    def bounds(self) -> dict[str, object]:
        """Return what statements bind."""
        return {"dataset": self.dataset_id, "first": self.first, "end": self.end}


def sample_ranges(session: Session, run_id: str, step: int) -> Iterator[SampleRange]:
    """Yield the ranges of a run, ordered by dataset and sample.

    Args:
        step: Samples of each range but the last of a dataset.
    """
    for name, dataset_id in datasets_of(session, run_id):
        for first, end in pairwise(range_edges(session, dataset_id, step)):
            yield SampleRange(name, dataset_id, first, end)


def datasets_of(session: Session, run_id: str) -> list[tuple[str, int]]:
    """Return name and key of each dataset of a run, ordered by name."""
    found = session.execute(
        select(DatasetRow.name, DatasetRow.id)
        .join(RunDatasetRow, RunDatasetRow.dataset_id == DatasetRow.id)
        .where(RunDatasetRow.run_id == run_id)
        .order_by(DatasetRow.name)
    )
    return [(row.name, row.id) for row in found]


def range_edges(session: Session, dataset_id: int, step: int) -> list[int]:
    """Return the first key of each range of a dataset, and the end of the last one."""
    return [*session.scalars(_EVERY_NTH, {"id": dataset_id, "step": step}), _END]
