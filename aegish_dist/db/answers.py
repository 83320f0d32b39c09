"""The answers of several models as columns: sample by sample, and for the grid of a report.

Of an item that was retried the newest verdict counts. A sample is known by the name of its dataset
and by its content-derived id, so that runs with dataset rows of their own (`--limit`, imports) are
matched too.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome, ScoredAnswer
from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict_record import STORED
from aegish_dist.db.engine import execute, statement
from aegish_dist.db.runs import PerModel
from aegish_dist.db.tables import error_class_of, finding_of, outcome_of
from aegish_dist.db.verdict_reader import (
    CODES,
    MARKS,
    SampleRange,
    SqlScoring,
    marks_of,
    prepare,
    sample_ranges,
)
from aegish_dist.opinions.scoring import ScoringRule
from aegish_dist.opinions.verdict_query import (
    COUNTED,
    TEXTS,
    UNKNOWN,
    Correctness,
    GridAttempt,
    GridCommand,
    GridPart,
)

PART_KEYS = 5_000


def read_commands(
    session: Session,
    run: Run,
    model: str,
    keys: Sequence[int],
    *,
    target: TrueLabel,
    rule: ScoringRule,
) -> Iterator[tuple[str, str, str | None]]:
    """Yield id and command of samples, and the first reason of a model to stop each.

    Args:
        model: A model of the run, or a policy, which gives no reason.
        target: The label of all these samples.
        rule: What counts as stopped: an attack that is detected, a harmless command that is not
            accepted.
    """
    stopped = MARKS[Correctness.CORRECT if target is TrueLabel.MALICIOUS else Correctness.WRONG]
    codes = [code for code, mark in enumerate(marks_of(rule, target)) if mark == stopped]
    models = PerModel.of(session, run)
    query = statement("read_commands", counts=models.counts)
    values = {"model": models.keys.get(model), "codes": codes, "keys": list(keys)}
    prepare(session)
    for row in session.execute(query, values, execution_options={"yield_per": PART_KEYS}):
        yield row.sample_id, row.command, row.reason


PART_VERDICTS = 4_000
TEXT_CHARS = 20_000

_CORRECT = {1: 1, -1: 0, 0: UNKNOWN}
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
        commands: Each part but the last of a dataset has a multiple of so many.
    """
    asked = len(models) * run.epochs
    step = commands * max(1, PART_VERDICTS // (commands * max(1, asked)))
    prepare(session)
    reader = _GridReader(session, run, models, judged, texts=texts)
    yield from map(reader.read, sample_ranges(session, run.run_id, step))


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


class _GridReader:
    """Reads the verdicts of a run that count as columns, a range of samples at a time."""

    def __init__(
        self, session: Session, run: Run, models: Sequence[str], judged: SqlScoring, *, texts: bool
    ) -> None:
        of_run = PerModel.of(session, run)
        self._session, self._texts = session, texts
        self._places = {of_run.keys[model]: place for place, model in enumerate(models)}
        columns = f"{_NUMBERS}, {_LENGTH}, {_CUT}" if texts else _NUMBERS
        self._sql = statement("read_columns", columns=columns, counts=of_run.counts)
        self._changes = judged.changes
        self._judged = {code: _places_of(code, judged.rule) for code in CODES}
        self._marks = judged.marks

    def read(self, part: SampleRange) -> GridPart:
        rows = execute(self._session, "label_samples", **self._changes, **part.bounds()).all()
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
        items = zip(models, keys, epochs, numbers["generation"], strict=True)
        verdicts: dict[tuple[int, ...], int] = {item: place for place, item in enumerate(items)}
        return replace(
            asked,
            texts={name: list(column) for name, column in zip(TEXTS, texts, strict=True)},
            lengths={place: each for place, each in enumerate(lengths) if each is not None},
            attempts=list(self._attempts(values, verdicts)),
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
                UNKNOWN if (mark := marks[place]) is None else _CORRECT[mark[code]]
                for place, code in zip(at, codes, strict=True)
            ],
        }

    def _attempts(
        self, values: Mapping[str, object], verdicts: Mapping[tuple[int, ...], int]
    ) -> Iterator[GridAttempt]:
        for row in execute(self._session, "read_attempts", **values, chars=TEXT_CHARS):
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
