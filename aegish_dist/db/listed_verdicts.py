"""Listed verdicts: those about a range of samples that meet the conditions of a list."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.orm import Session

from aegish_dist.core.listing import ListedPart, ListedVerdict, VerdictFilter
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.verdict import Outcome
from aegish_dist.db.codes import error_class_of, finding_of, outcome_number, outcome_of
from aegish_dist.db.judgements import CODES, MARKS, marks_of
from aegish_dist.db.per_model import PerModel
from aegish_dist.db.sample_ranges import SampleRange
from aegish_dist.db.statements import statement
from aegish_dist.db.text import decode_text, encode_text, escaped_pattern

_CORRECT = {1: True, -1: False, 0: None}
_TARGETS = {target.value: target for target in Target}
_ACTIONS = [outcome_number(each) for each in (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)]

_SETTINGS = statement("settings_for_listing")


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


class ListedVerdicts:
    """Reads the verdicts of a run that meet some conditions, a range of samples at a time."""

    def __init__(
        self,
        run: Run,
        models: PerModel,
        chosen: VerdictFilter,
        rule: ScoringRule,
        changes: Mapping[str, Sequence[object]],
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            chosen: The conditions; models and datasets are those of the run.
            changes: What an overlay changes, as the fragment `labelled_samples` binds it.
        """
        self._run, self._models, self._chosen = run, models, chosen
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

    @property
    def compared(self) -> list[int]:
        """Keys of the models whose verdicts are looked at, sorted."""
        return sorted({*self._shown(), *self._missed()})

    def read(self, session: Session, part: SampleRange, limit: int | None) -> ListedPart:
        """Return the verdicts about a range of samples, by sample, model and epoch.

        Args:
            limit: Verdicts to read at most, while all that match are counted; None: all.
        """
        session.execute(_SETTINGS)
        keys = self._chosen_commands(session, part)
        models, flipped = self._flipped(session, part)
        values = {"keys": keys, "flipped_models": models, "flipped_keys": flipped}
        rows = session.execute(
            self._sql.verdicts, self._values | values | part.bounds() | {"limit": limit}
        ).all()
        verdicts = tuple(self._verdict(row, part) for row in rows if row.place is not None)
        return ListedPart(verdicts, rows[0].matched)

    def _shown(self) -> list[int]:
        """Return the keys of the models whose verdicts are listed, sorted by their names."""
        names = self._chosen.models or self._models.keys
        return [self._models.keys[model] for model in sorted(set(names))]

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

    def _chosen_commands(self, session: Session, part: SampleRange) -> list[int] | None:
        if not (self._chosen.disputed or self._missed()):
            return None
        values = self._labels | part.bounds() | {"disputed": self._chosen.disputed}
        models = {"models": self.compared, "compared": self._shown(), "missed": self._missed()}
        return list(session.scalars(self._sql.commands, values | models))

    def _flipped(
        self, session: Session, part: SampleRange
    ) -> tuple[list[int] | None, list[int] | None]:
        if not self._chosen.flipped:
            return None, None
        values = {"models": self._shown(), "actions": _ACTIONS}
        rows = session.execute(self._sql.flipped, values | part.bounds()).all()
        return [row.run_model_id for row in rows], [row.sample_key for row in rows]

    def _verdict(self, row: Row[Any], part: SampleRange) -> ListedVerdict:
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
