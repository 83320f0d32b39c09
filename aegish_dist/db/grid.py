"""The verdicts of a run for the grid of a report: numbers as columns, and texts part by part.

Of an item that was retried the newest verdict counts.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.columns import (
    COUNTED,
    NUMBERS,
    TEXTS,
    UNKNOWN,
    GridAttempt,
    GridCommand,
    GridNumbers,
    GridTexts,
    Ints,
)
from aegish_dist.core.outcome import ErrorClass, Outcome, ScoredAnswer
from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import STORED
from aegish_dist.db.columns import items_of, read_rows
from aegish_dist.db.engine import execute, reading, statement
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import PerModel, prepare_counting, prepare_listing
from aegish_dist.db.tables import CODES, error_class_of, finding_of, outcome_of
from aegish_dist.opinions.scoring import ScoringRule

# Verdicts whose texts are read at once, about, and characters of a text that are read at most.
PART_VERDICTS = 4_000
TEXT_CHARS = 20_000


def _whole(number: str) -> str:
    """Return SQL for the nearest integer that JavaScript knows exactly, -1 where it is unknown."""
    return (
        f"CASE WHEN {number} IS NULL THEN -1 ELSE least(round({number}), {2**53 - 1})::bigint END"
    )


_EXPRESSIONS = {name: _whole(f"verdict.{name}") for name in COUNTED} | {
    "confidence": _whole("verdict.confidence * 1000"),
    "cost_nano_usd": _whole("verdict.cost_usd * 1e9"),
    "attempts": "verdict.attempts::bigint",
    "generation": "verdict.generation::bigint",
    "created_s": "coalesce(floor(extract(epoch FROM verdict.created_at))::bigint, -1)",
}


def read_grid(
    session: Session, run: Run, models: Sequence[str], rule: ScoringRule, overlay: OverlayInRun
) -> GridNumbers:
    """Return the commands of a run by dataset, and the numbers of the verdicts that count.

    Raises:
        UnreadableRunError: A verdict is about no item of the run.
    """
    rows = execute(session, "samples_of_run", run=run.run_id, **overlay.values)
    commands = [GridCommand(*row) for row in rows]
    keys = np.array([command.key for command in commands], np.int64)
    by_key = np.argsort(keys)
    excluded = np.array([command.excluded for command in commands], bool)
    harmless = np.array([command.target == TrueLabel.HARMLESS for command in commands], int)
    labels = (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)
    correct_by_code = np.array([_correct_by_code(rule, label) for label in labels])
    places = _places_by_code(rule)
    shape = (len(models), len(commands), run.epochs)
    numbers = {name: np.full(shape, UNKNOWN) for name in NUMBERS}
    of_run = PerModel.of(session, run)
    prepare_counting(session)
    for place, model in enumerate(models):
        read = read_rows(of_run, model, _EXPRESSIONS, ">i8")
        code = read["code"]
        with reading(run.run_id):  # a verdict may be about no item of the run
            item = items_of(read, keys[by_key], by_key, run.epochs)
        command = item // run.epochs
        correct = correct_by_code[harmless[command], code]
        judged = {name: of_code[code] for name, of_code in places.items()}
        judged["correct"] = np.where(excluded[command], UNKNOWN, correct)
        for name, column in numbers.items():
            column[place].flat[item] = judged[name] if name in judged else read[name]
    return GridNumbers(commands, numbers)


def _correct_by_code(rule: ScoringRule, label: TrueLabel) -> Ints:
    """Return at each code 1 where it is correct about commands of a label, 0 where it is wrong."""
    correct = np.full(max(CODES) + 1, UNKNOWN)
    for code in CODES:
        finding = finding_of(code)
        if rule.is_scored(finding):
            correct[code] = rule.is_correct(label, finding)
    return correct


def _places_by_code(rule: ScoringRule) -> dict[str, Ints]:
    """Return at each code the places of its parts in their enumerations."""
    names = ("outcome", "label", "error_class")
    places = {name: np.full(max(CODES) + 1, UNKNOWN) for name in names}
    for code in CODES:
        error_class = error_class_of(code)
        places["outcome"][code] = list(Outcome).index(outcome_of(code))
        places["label"][code] = list(ScoredAnswer).index(rule.labels[finding_of(code)])
        if error_class is not None:
            places["error_class"][code] = list(ErrorClass).index(error_class)
    return places


_TEXTS = ", ".join(
    f"left(verdict.{each.column}, :chars) AS {each.name}" for each in STORED if each.name in TEXTS
)


def read_texts(
    session: Session,
    run: Run,
    models: Sequence[str],
    commands: Sequence[GridCommand],
    at_once: int,
) -> Iterator[GridTexts]:
    """Yield the texts of the verdicts that count, those of so many commands of a dataset at once.

    Of many commands without a verdict there are none.
    """
    of_run = PerModel.of(session, run)
    places = {of_run.keys[model]: place for place, model in enumerate(models)}
    query = statement("read_texts", columns=_TEXTS, counts=of_run.counts)
    asked = max(1, len(models) * run.epochs)
    step = at_once * max(1, PART_VERDICTS // (at_once * asked))
    prepare_listing(session)
    first = 0
    for _, of_dataset in groupby(commands, attrgetter("dataset")):
        keys = [command.key for command in of_dataset]
        for start in range(0, len(keys), step):
            samples = {key: place for place, key in enumerate(keys[start : start + step])}
            values = {"models": list(places), "samples": list(samples), "chars": TEXT_CHARS}
            parts: list[list[tuple[int, Row[Any]]]] = [[] for _ in range(0, len(samples), at_once)]
            rows = session.execute(query, values).all()
            for row in rows:
                part, command = divmod(samples[row.sample_key], at_once)
                model = command * len(models) + places[row.run_model_id]
                parts[part].append((model * run.epochs + row.epoch - 1, row))
            for number, verdicts in enumerate(parts if rows else ()):
                yield _texts(first + start + number * at_once, verdicts)
        first += len(keys)


def _texts(first: int, verdicts: Sequence[tuple[int, Row[Any]]]) -> GridTexts:
    attempts = []
    for cell, row in verdicts:
        for attempt in row.attempts or ():
            message = mask_key_shapes(attempt.pop("message"))
            attempts.append(GridAttempt(cell, message=message, **attempt))
    by_cell = dict(sorted(verdicts, key=itemgetter(0)))
    return GridTexts(
        first,
        cells=list(by_cell),
        columns={name: [getattr(row, name) for row in by_cell.values()] for name in TEXTS},
        lengths={cell: row.length for cell, row in by_cell.items() if row.length is not None},
        attempts=attempts,
    )
