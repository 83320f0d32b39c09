"""Every verdict of a run that counts, as columns for the grid of a report."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from sqlalchemy import TextClause
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome, ScoredAnswer
from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict_query import (
    COUNTED,
    TEXTS,
    UNKNOWN,
    GridAttempt,
    GridCommand,
    GridPart,
)
from aegish_dist.core.verdict_record import STORED
from aegish_dist.db.codes import error_class_of, finding_of, outcome_of
from aegish_dist.db.counting import PerModel
from aegish_dist.db.statements import statement
from aegish_dist.db.verdict_reader import (
    ATTEMPTS,
    CODES,
    CORRECT,
    SampleRange,
    SqlScoring,
    prepare,
    sample_ranges,
)

PART_VERDICTS = 4_000
TEXT_CHARS = 20_000
"""Characters of a text; what is longer is cut."""

_LABELS = statement("label_samples")
_COLUMNS = {each.name: each.column for each in STORED}


def read_grid(
    session: Session,
    run: Run,
    models: Sequence[str],
    judged: SqlScoring,
    *,
    commands: int,
    texts: bool,
) -> Iterator[GridPart]:
    """Yield the verdicts that count as columns, by dataset and sample.

    Args:
        models: The models of the run in the order of the grid.
        commands: Each part but the last of a dataset has a multiple of so many.
    """
    asked = len(models) * run.epochs
    step = commands * max(1, PART_VERDICTS // (commands * max(1, asked)))
    prepare(session)
    reader = _GridReader(session, run, models, judged, texts=texts)
    for part in sample_ranges(session, run.run_id, step):
        yield reader.read(part)


def _whole(number: str) -> str:
    """Return SQL for the nearest integer that JavaScript knows exactly, -1 where it is unknown."""
    return (
        f"CASE WHEN {number} IS NULL THEN -1 ELSE least(round({number}), {2**53 - 1})::bigint END"
    )


_EXPRESSIONS = {
    "confidence": _whole("verdict.confidence * 1000"),
    "cost_nano_usd": _whole("verdict.cost_usd * 1e9"),
    "attempts": "verdict.attempts",
    "generation": "verdict.generation",
    "created_s": "coalesce(floor(extract(epoch FROM verdict.created_at))::bigint, -1)",
}
_NUMBERS = ", ".join(_EXPRESSIONS.get(name) or _whole(f"verdict.{name}") for name in COUNTED)
_LENGTH = (
    "CASE WHEN char_length(verdict.completion) > :chars THEN char_length(verdict.completion) END"
)
_CUT = ", ".join(f"left(verdict.{_COLUMNS[name]}, :chars)" for name in TEXTS)


@cache
def _grid_statement(counts: str, *, texts: bool) -> TextClause:
    columns = f"{_NUMBERS}, {_LENGTH}, {_CUT}" if texts else _NUMBERS
    return statement("read_columns", {"columns": columns}, counts=counts)


class _GridReader:
    """Reads the verdicts of a run that count as columns, a range of samples at a time."""

    def __init__(
        self, session: Session, run: Run, models: Sequence[str], judged: SqlScoring, *, texts: bool
    ) -> None:
        of_run = PerModel.of(session, run)
        self._session, self._texts = session, texts
        self._places = {of_run.keys[model]: place for place, model in enumerate(models)}
        self._sql = _grid_statement("newest" if of_run.retried else "every", texts=texts)
        self._changes = {name: list(values) for name, values in judged.changes.items()}
        self._judged = {code: _places_of(code, judged.rule) for code in CODES}
        self._marks = judged.marks

    def read(self, part: SampleRange) -> GridPart:
        rows = self._session.execute(_LABELS, self._changes | part.bounds()).all()
        commands = [
            GridCommand(
                row.sample_id, part.dataset, row.command, TrueLabel(row.target), row.category,
                row.cluster, row.excluded,
            )
            for row in rows
        ]  # fmt: skip
        values = {"models": list(self._places), **part.bounds()}
        cut = {"chars": TEXT_CHARS} if self._texts else {}
        found = self._session.execute(self._sql, values | cut).all()
        if not found:
            return GridPart(commands)
        columns = list(zip(*found, strict=True))
        models, keys, epochs, codes, *counted = columns
        places = {row.key: place for place, row in enumerate(rows)}
        at = [places[key] for key in keys]
        numbers = dict(zip(COUNTED, counted, strict=False))
        asked = GridPart(
            commands,
            [self._places[key] for key in models],
            at,
            epochs,
            self._opinions(commands, at, codes) | numbers,
        )
        if not self._texts:
            return asked
        lengths, *texts = counted[len(COUNTED) :]
        generations = zip(models, keys, epochs, numbers["generation"], strict=True)
        return replace(
            asked,
            texts={name: list(column) for name, column in zip(TEXTS, texts, strict=True)},
            lengths={place: each for place, each in enumerate(lengths) if each is not None},
            attempts=list(
                self._attempts(values, {key: place for place, key in enumerate(generations)})
            ),
        )

    def _opinions(
        self, commands: Sequence[GridCommand], at: Sequence[int], codes: Sequence[int]
    ) -> dict[str, Sequence[int]]:
        judged = [self._judged[code] for code in codes]
        marks = [None if command.excluded else self._marks[command.target] for command in commands]
        return {
            "outcome": [each[0] for each in judged],
            "label": [each[1] for each in judged],
            "error_class": [each[2] for each in judged],
            "correct": [
                _as_number(0 if (mark := marks[place]) is None else mark[code])
                for place, code in zip(at, codes, strict=True)
            ],
        }

    def _attempts(
        self, values: Mapping[str, object], verdicts: Mapping[tuple[int, ...], int]
    ) -> Iterator[GridAttempt]:
        for row in self._session.execute(ATTEMPTS, {**values, "chars": TEXT_CHARS}):
            verdict = verdicts.get((row.run_model_id, row.sample_key, row.epoch, row.generation))
            if verdict is not None:
                yield GridAttempt(
                    verdict=verdict,
                    attempt=row.attempt,
                    error_class=row.error_class,
                    status=UNKNOWN if row.status is None else row.status,
                    retry_after_s=row.retry_after_s,
                    message=mask_key_shapes(row.message),
                    at_s=math.floor(row.at.timestamp()),
                )


def _places_of(code: int, rule: ScoringRule) -> tuple[int, int, int]:
    """Return the places of outcome, label and error class of a code in their enumerations."""
    error_class = error_class_of(code)
    return (
        list(Outcome).index(outcome_of(code)),
        list(ScoredAnswer).index(rule.labels[finding_of(code)]),
        UNKNOWN if error_class is None else list(ErrorClass).index(error_class),
    )


def _as_number(mark: int) -> int:
    correct = CORRECT[mark]
    return UNKNOWN if correct is None else int(correct)
