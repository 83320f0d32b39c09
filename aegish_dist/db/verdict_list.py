"""Verdicts of a run by conditions, part by part, several parts side by side.

A part is what the models said about a range of samples. The first parts are small, so that a list
of which much is found ends soon; of a rare condition every part is read, mostly from the primary
key's index alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from aegish_dist.core.listing import ListedPart, VerdictFilter
from aegish_dist.core.run import Run
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.db.listed_verdicts import ListedVerdicts
from aegish_dist.db.per_model import PerModel, prepare_counting
from aegish_dist.db.sample_ranges import SampleRange, datasets_of, range_edges
from aegish_dist.db.statements import statement

STEP_VERDICTS = 2_000
"""Verdicts of the first part, about; each part after it has twice as many as the one before."""
PART_VERDICTS = 50_000
FILE_VERDICTS = 6_000
"""The same of a list without a limit, whose parts are held in memory whole."""

_CATEGORIES = statement("list_categories")


@dataclass(slots=True)
class _Progress:
    """How much of a list was found."""

    limit: int | None
    counted: int
    shown: int = 0
    matched: int = 0

    @property
    def room(self) -> int | None:
        return None if self.limit is None else self.limit - self.shown

    @property
    def done(self) -> bool:
        return self.limit is not None and self.matched >= self.limit + self.counted

    def cut(self, part: ListedPart) -> ListedPart:
        """Take a part into account, and return as much of it as the limit leaves."""
        verdicts = part.verdicts[: self.room]
        self.shown += len(verdicts)
        self.matched += part.matched
        return ListedPart(verdicts, part.matched)


class VerdictList:
    """The verdicts of a run that meet some conditions."""

    def __init__(
        self,
        session: Session,
        run: Run,
        chosen: VerdictFilter,
        rule: ScoringRule,
        changes: Mapping[str, Sequence[object]],
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            session: Transaction of the caller, open until the last part is read.
            chosen: The conditions; models and datasets are those of the run.
            changes: What an overlay changes, as the fragment `labelled_samples` binds it.
        """
        self._session, self._run, self._chosen = session, run, chosen
        self._models = PerModel.of(session, run)
        self._verdicts = ListedVerdicts(run, self._models, chosen, rule, changes)

    def parts(self, limit: int | None, counted: int) -> Iterator[ListedPart]:
        """Yield the parts of the list in order: by dataset, sample, model and epoch.

        Args:
            limit: Verdicts to yield at most; None: all.
            counted: Verdicts beyond the limit to count; the parts after that many are not read.
        """
        if self._chosen.flipped and self._run.epochs == 1:
            return
        progress = _Progress(limit, counted)
        prepare_counting(self._session)
        for samples in self._ranges(FILE_VERDICTS if limit is None else PART_VERDICTS):
            yield progress.cut(self._verdicts.read(self._session, samples, progress.room))
            if progress.done:
                return

    def _ranges(self, largest_part: int) -> Iterator[SampleRange]:
        step = max(1, STEP_VERDICTS // (len(self._verdicts.compared) * self._run.epochs))
        largest = max(1, largest_part // STEP_VERDICTS)
        width = 1
        for name, dataset_id in datasets_of(self._session, self._run.run_id):
            if self._chosen.datasets and name not in self._chosen.datasets:
                continue
            edges = range_edges(self._session, dataset_id, step)
            start = 0
            while start < len(edges) - 1:
                end = min(start + width, len(edges) - 1)
                yield SampleRange(name, dataset_id, edges[start], edges[end])
                start, width = end, min(2 * width, largest)


def categories_of(session: Session, run_id: str) -> list[str]:
    """Return the categories of the samples of a run, sorted."""
    return list(session.scalars(_CATEGORIES, {"run": run_id}))
