"""Every verdict of a run that counts, for the grid of a report: part by part, side by side.

A part is a range of commands with what all models said about them, so memory holds some thousand
verdicts with their texts however large the run is, and the order is fixed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import Label, ScoringRule
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import ErrorClass, Outcome
from aegish_dist.core.verdict_grid import (
    COUNTED,
    TEXTS,
    UNKNOWN,
    GridAttempt,
    GridCommand,
    GridPart,
)
from aegish_dist.db.codes import error_class_of, finding_of, outcome_of
from aegish_dist.db.judgements import CODES, MARKS, marks_of
from aegish_dist.db.per_model import PerModel, prepare_counting
from aegish_dist.db.sample_ranges import SampleRange, sample_ranges
from aegish_dist.db.statements import CountingStatement, counting_statement, statement
from aegish_dist.db.text import ESCAPE, decode_text

TEXT_CHARS = 20_000
"""Characters of a text; what is longer is cut."""
PART_VERDICTS = 4_000

Result = TypeVar("Result")

_SETTINGS = statement("settings_for_listing")
_COMMANDS = statement("grid_commands")
_NUMBERS = counting_statement("grid_verdicts")
_TEXTS = counting_statement("grid_verdicts_with_texts")
_ATTEMPTS = statement("grid_attempts")

_KEYS = 4
"""Columns of keys and code before those of `COUNTED`."""
_CUT_ESCAPE = re.compile(f"{ESCAPE}[0-9a-f]{{0,3}}$")
_CORRECT = {MARKS[each]: each.as_bool for each in MARKS}


class VerdictGrid:
    """The verdicts of a run, as a rule set and an overlay judge them."""

    def __init__(
        self,
        session: Session,
        run: Run,
        models: Sequence[str],
        rule: ScoringRule,
        changes: Mapping[str, Sequence[object]],
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            session: Transaction of the caller, open until the last part is read.
            models: Its models in the order of the grid.
            changes: What an overlay changes, as the fragment `labelled_samples` binds it.
        """
        self._session, self._run = session, run
        self._per_model = PerModel.of(session, run)
        self._places = {self._per_model.keys[model]: n for n, model in enumerate(models)}
        self._changes = {name: list(values) for name, values in changes.items()}
        self._judged = {code: _judged(code, rule) for code in CODES}
        self._marks = {target: marks_of(rule, target) for target in Target}

    def parts(
        self, use: Callable[[GridPart], Result], *, commands: int, texts: bool
    ) -> Iterator[Result]:
        """Read the grid by dataset and sample.

        Args:
            commands: Each part but the last of a dataset has a multiple of so many.

        Yields:
            What `use` returned, in order.
        """
        asked = len(self._places) * self._run.epochs
        step = commands * max(1, PART_VERDICTS // (commands * max(1, asked)))

        prepare_counting(self._session)
        self._session.execute(_SETTINGS)
        for part in list(sample_ranges(self._session, self._run.run_id, step)):
            yield use(self._read(self._session, part, texts))

    def _read(self, session: Session, part: SampleRange, texts: bool) -> GridPart:
        rows = session.execute(_COMMANDS, self._changes | part.bounds()).all()
        commands = [
            GridCommand(
                row.sample_id, part.dataset, row.command, Target(row.target), row.category,
                row.cluster, row.excluded,
            )
            for row in rows
        ]  # fmt: skip
        values = {"models": list(self._places), **part.bounds()}
        columns = self._columns(session, _TEXTS if texts else _NUMBERS, values)
        if not columns:
            return GridPart(commands)
        places = {row.key: place for place, row in enumerate(rows)}
        models, keys, epochs, codes, *_ = columns
        at = [places[key] for key in keys]
        found = _found_texts(columns[_KEYS + len(COUNTED) :])
        return GridPart(
            commands,
            [self._places[key] for key in models],
            at,
            epochs,
            self._numbers(commands, at, codes) | dict(zip(COUNTED, columns[_KEYS:], strict=False)),
            found,
            _lengths(columns) if texts else {},
            list(self._attempts(session, values, columns)) if texts else [],
        )

    def _columns(
        self, session: Session, chosen: CountingStatement, values: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        newest = chosen.newest if self._per_model.retried else chosen.every
        limits = {"chars": TEXT_CHARS, "escape": ESCAPE} if chosen is _TEXTS else {}
        return list(zip(*session.execute(newest, {**values, **limits}), strict=True))

    def _numbers(
        self, commands: Sequence[GridCommand], at: Sequence[int], codes: Sequence[int]
    ) -> dict[str, list[int]]:
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
        self, session: Session, values: Mapping[str, object], columns: Sequence[Sequence[Any]]
    ) -> Iterator[GridAttempt]:
        generations = columns[_KEYS + COUNTED.index("generation")]
        verdicts = {
            key: place for place, key in enumerate(zip(*columns[:3], generations, strict=True))
        }
        for row in session.execute(_ATTEMPTS, {**values, "chars": TEXT_CHARS}):
            verdict = verdicts.get((row.run_model_id, row.sample_key, row.epoch, row.generation))
            if verdict is not None:
                yield GridAttempt(
                    verdict=verdict,
                    attempt=row.attempt,
                    error_class=row.error_class,
                    status=UNKNOWN if row.status is None else row.status,
                    retry_after_s=row.retry_after_s,
                    message=mask_key_shapes(_restored(row.message)),
                    at_s=row.at_s,
                )


def _judged(code: int, rule: ScoringRule) -> tuple[int, int, int]:
    """Return the places of outcome, label and error class of a code."""
    error_class = error_class_of(code)
    return (
        list(Outcome).index(outcome_of(code)),
        list(Label).index(rule.labels[finding_of(code)]),
        UNKNOWN if error_class is None else list(ErrorClass).index(error_class),
    )


def _as_number(mark: int) -> int:
    correct = _CORRECT[mark]
    return UNKNOWN if correct is None else int(correct)


def _found_texts(columns: Sequence[Sequence[str | None]]) -> dict[str, list[str | None]]:
    """Return the columns of texts, which follow the lengths of cut completions."""
    return {
        name: [None if each is None else _restored(each) for each in column]
        for name, column in zip(TEXTS, columns[1:], strict=False)
    }


def _lengths(columns: Sequence[Sequence[Any]]) -> dict[int, int]:
    lengths = columns[_KEYS + len(COUNTED)]
    return {place: length for place, length in enumerate(lengths) if length is not None}


def _restored(stored: str) -> str:
    """Return the original of a text as stored, whose end may be cut within an escape."""
    if ESCAPE not in stored:
        return stored
    return decode_text(_CUT_ESCAPE.sub("", stored))
