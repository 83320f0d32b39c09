"""Verdicts of a run by conditions, part by part, several parts side by side.

A part is what the models said about a range of samples. The first parts are small, so that a list
of which much is found ends soon; of a rare condition every part is read, mostly from the primary
key's index alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sqlalchemy import Row, TextClause, select
from sqlalchemy.orm import Session

from aegish_dist.core.listing import (
    ListedPart,
    ListedVerdict,
    VerdictFilter,
)
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.verdict import Outcome
from aegish_dist.db.codes import error_class_of, finding_of, outcome_number, outcome_of
from aegish_dist.db.judgements import CODES, MARKS, marks_of
from aegish_dist.db.per_model import PerModel, Readers
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import DatasetRow, RunDatasetRow
from aegish_dist.db.text import decode_text, encode_text, escaped_pattern

STEP_VERDICTS = 2_000
"""Verdicts of the first part, about; each part after it has twice as many as the one before."""
PART_VERDICTS = 50_000
"""Verdicts of the largest part, about."""
FILE_VERDICTS = 6_000
"""The same of a list without a limit, whose parts are held in memory whole."""
PARTS_ALONE = 3
END = 2**63 - 1

_CORRECT = {1: True, -1: False, 0: None}
_TARGETS = {target.value: target for target in Target}
_ACTIONS = [outcome_number(each) for each in (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)]

_SETTINGS = statement("settings_for_listing")
_CATEGORIES = statement("list_categories")
_EDGES = statement("every_nth_sample")


@dataclass(frozen=True, slots=True)
class _Statements:
    """The statements of a list, by which verdicts count."""

    commands: TextClause
    flipped: TextClause
    verdicts: TextClause

    @classmethod
    def counting(cls, counts: str, suffix: str) -> "_Statements":
        names = (f"choose_commands{suffix}", "choose_flipped", "list_verdicts")
        return cls(*(statement(name, counts=counts) for name in names))


_STATEMENTS = {
    (counts, one_epoch): _Statements.counting(counts, "_of_one_epoch" if one_epoch else "")
    for counts in ("every", "newest")
    for one_epoch in (False, True)
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A range of the samples of a dataset."""

    dataset: str
    dataset_id: int
    first: int
    end: int
    """The first key that is not in it."""
    limit: int | None
    """Verdicts to read at most; None: all that match."""

    def bounds(self) -> dict[str, object]:
        return {"dataset": self.dataset_id, "first": self.first, "end": self.end}


@dataclass(slots=True)
class _Progress:
    """How much of a list was found."""

    limit: int | None
    counted: int
    """Verdicts beyond the limit to count."""
    shown: int = 0
    matched: int = 0

    @property
    def room(self) -> int | None:
        return None if self.limit is None else self.limit - self.shown

    @property
    def done(self) -> bool:
        return self.limit is not None and self.matched >= self.limit + self.counted

    @property
    def nearly_done(self) -> bool:
        """Whether parts like those that were read will soon hold the rest."""
        return self.limit is not None and self.limit + self.counted <= 10 * self.matched

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
            run: The run.
            chosen: The conditions; models and datasets are those of the run.
            rule: Says which verdicts are correct.
            changes: What an overlay changes, as the fragment `labelled_samples` binds it.
        """
        self._session, self._run, self._chosen = session, run, chosen
        self._models = PerModel.of(session, run)
        self._names = {key: model for model, key in self._models.keys.items()}
        newest = self._models.retried and not chosen.all_generations
        # With all generations a model may have several verdicts of an epoch.
        one_epoch = run.epochs == 1 and (newest or not self._models.retried)
        self._sql = _STATEMENTS["newest" if newest else "every", one_epoch]
        self._marks = {target: marks_of(rule, target) for target in Target}
        self._labels: dict[str, object] = {
            **{f"{target}_marks": marks for target, marks in self._marks.items()},
            **{name: list(values) for name, values in changes.items()},
        }
        self._by_code = {
            code: (outcome_of(code), rule.labels[finding_of(code)], error_class_of(code))
            for code in CODES
        }
        self._values = self._conditions()

    def parts(self, limit: int | None, counted: int) -> Iterator[ListedPart]:
        """Yield the parts of the list in order: by dataset, sample, model and epoch.

        Args:
            limit: Verdicts to yield at most; None: all.
            counted: Verdicts beyond the limit to count; the parts after that many are not read.
        """
        if self._chosen.flipped and self._run.epochs == 1:
            return
        progress = _Progress(limit, counted)
        for part in self._in_turn(self._parts(progress), progress):
            yield progress.cut(part)
            if progress.done:
                return

    def _parts(self, progress: "_Progress") -> Iterator[_Part]:
        largest = FILE_VERDICTS if progress.limit is None else PART_VERDICTS
        for dataset, dataset_id, first, end in self._ranges(largest):
            yield _Part(dataset, dataset_id, first, end, progress.room)

    def _in_turn(self, parts: Iterator[_Part], progress: "_Progress") -> Iterator[ListedPart]:
        """Read parts; side by side only where many are left: other sessions have to connect."""
        with Readers(self._session, side_by_side=False):
            for number, part in enumerate(parts):
                if number >= PARTS_ALONE and not progress.nearly_done:
                    parts = chain([part], parts)
                    break
                yield self._read(self._session, part)
            else:
                return
        with self._models.readers(self._session) as readers:
            yield from readers.map(self._read, parts)

    def _ranges(self, largest_part: int) -> Iterator[tuple[str, int, int, int]]:
        """Yield dataset, its key, first sample and end of each part."""
        step = max(1, STEP_VERDICTS // (len(self._compared()) * self._run.epochs))
        largest = max(1, largest_part // STEP_VERDICTS)
        width = 1
        for name, dataset_id in self._datasets():
            edges: list[int] = [
                *self._session.scalars(_EDGES, {"id": dataset_id, "step": step}),
                END,
            ]
            start = 0
            while start < len(edges) - 1:
                end = min(start + width, len(edges) - 1)
                yield name, dataset_id, edges[start], edges[end]
                start, width = end, min(2 * width, largest)

    def _datasets(self) -> list[tuple[str, int]]:
        found = (
            select(DatasetRow.name, DatasetRow.id)
            .join(RunDatasetRow, RunDatasetRow.dataset_id == DatasetRow.id)
            .where(RunDatasetRow.run_id == self._run.run_id)
            .order_by(DatasetRow.name)
        )
        if self._chosen.datasets:
            found = found.where(DatasetRow.name.in_(self._chosen.datasets))
        return [(row.name, row.id) for row in self._session.execute(found)]

    def _shown(self) -> list[int]:
        """Return the keys of the models whose verdicts are listed, sorted by their names."""
        names = self._chosen.models or self._models.keys
        return [self._models.keys[model] for model in sorted(set(names))]

    def _compared(self) -> list[int]:
        return sorted({*self._shown(), *self._missed()})

    def _missed(self) -> list[int]:
        names = self._models.keys if self._chosen.missed_by_all else self._chosen.missed_by
        return [self._models.keys[model] for model in sorted(set(names))]

    def _conditions(self) -> dict[str, object]:
        chosen = self._chosen
        codes = [code for code in CODES if self._has_outcome(code)]
        pattern = f"%{escaped_pattern(encode_text(chosen.text))}%" if chosen.text else None
        return self._labels | {
            "models": self._shown(),
            "targets": [*chosen.targets] or None,
            "categories": [*chosen.categories] or None,
            "codes": codes if chosen.outcomes else None,
            "marks": [MARKS[each] for each in chosen.correctness] or None,
            "epochs": [*chosen.epochs] or None,
            "pattern": pattern,
        }

    def _has_outcome(self, code: int) -> bool:
        outcome, label, _ = self._by_code[code]
        return any(
            outcome is each if isinstance(each, Outcome) else label is each
            for each in self._chosen.outcomes
        )

    def _read(self, session: Session, part: _Part) -> ListedPart:
        session.execute(_SETTINGS)
        keys = self._chosen_commands(session, part)
        models, flipped = self._flipped(session, part)
        values = {"keys": keys, "flipped_models": models, "flipped_keys": flipped}
        rows = session.execute(
            self._sql.verdicts, self._values | values | part.bounds() | {"limit": part.limit}
        ).all()
        verdicts = tuple(self._verdict(row, part) for row in rows if row.place is not None)
        return ListedPart(verdicts, rows[0].matched)

    def _chosen_commands(self, session: Session, part: _Part) -> list[int] | None:
        if not (self._chosen.disputed or self._missed()):
            return None
        values = self._labels | part.bounds() | {"disputed": self._chosen.disputed}
        models = {"models": self._compared(), "compared": self._shown(), "missed": self._missed()}
        return list(session.scalars(self._sql.commands, values | models))

    def _flipped(self, session: Session, part: _Part) -> tuple[list[int] | None, list[int] | None]:
        if not self._chosen.flipped:
            return None, None
        values = {"models": self._shown(), "actions": _ACTIONS}
        rows = session.execute(self._sql.flipped, values | part.bounds()).all()
        return [row.run_model_id for row in rows], [row.sample_key for row in rows]

    def _verdict(self, row: Row[Any], part: _Part) -> ListedVerdict:
        target, code = _TARGETS[row.target], row.code
        outcome, label, error_class = self._by_code[code]
        return ListedVerdict(
            run_id=self._run.run_id,
            model=self._names[row.run_model_id],
            dataset=part.dataset,
            sample_id=row.sample_id,
            command=row.command,
            target=target,
            category=row.category,
            cluster=row.cluster,
            epoch=row.epoch,
            generation=row.generation,
            outcome=outcome,
            label=label,
            correct=None if row.excluded else _CORRECT[self._marks[target][code]],
            reason=None if row.reason is None else decode_text(row.reason),
            confidence=row.confidence,
            error_class=error_class,
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            cost_usd=row.cost_usd,
            latency_ms=row.service_ms,
            attempts=row.attempts,
            created_at=row.created_at,
        )


def categories_of(session: Session, run_id: str) -> list[str]:
    """Return the categories of the samples of a run, sorted."""
    return list(session.scalars(_CATEGORIES, {"run": run_id}))
