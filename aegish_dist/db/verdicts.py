"""Verdicts in the store: looked up, inserted in groups, and read again by a newer parser.

What a parser read in a completion is all that ever changes of a verdict.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import exists, select, text, tuple_
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.verdict import Item, Verdict
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import (
    COLUMNS,
    ERROR_COLUMNS,
    KEY_COLUMNS,
    VerdictKey,
    VerdictRow,
    error_row,
    verdict_row,
)

STREAM_ROWS = 50
"""Rows fetched at once while completions are streamed."""

_LOOK_UP = statement("look_up_items")
_WRITE_READINGS = statement("write_readings")
_VERDICTS = VerdictRow.__table__.c


def _insert_json(table: str, columns: Sequence[str]) -> str:
    # One JSON parameter per group costs PostgreSQL a tenth of single rows.
    names = ", ".join(columns)
    return (
        f"INSERT INTO {table} ({names}) SELECT {names} "  # noqa: S608  # nosec B608 # names of our own
        f"FROM json_populate_recordset(NULL::{table}, CAST(:rows AS json)) ON CONFLICT DO NOTHING"
    )


_INSERT_VERDICTS = text(f"{_insert_json('verdicts', COLUMNS)} RETURNING {', '.join(KEY_COLUMNS)}")
_INSERT_ERRORS = text(_insert_json("call_errors", ERROR_COLUMNS))


@dataclass(frozen=True, slots=True)
class LookUp:
    """An item as the store has it."""

    key: VerdictKey
    command: str
    done: bool
    """Whether its verdict is there already, or one of a later generation."""
    held: bool = False
    """Whether its run is held: no call may begin."""
    batched: bool = False
    """Whether it is asked in batches now: no call may begin, and its message is of no use."""
    live: bool = False
    """Whether it is asked live although its model is asked in batches."""


def look_up(session: Session, items: Sequence[Item]) -> list[LookUp | None]:
    """Find the command and any verdict of each item, in one query.

    Returns:
        In the order of the items; None for one that neither a run nor a retry plans.
    """
    rows = session.execute(
        _LOOK_UP,
        {
            "runs": [item.run_id for item in items],
            "models": [item.model for item in items],
            "keys": [item.sample_key for item in items],
            "epochs": [item.epoch for item in items],
            "generations": [item.generation for item in items],
        },
    )
    found: list[LookUp | None] = [None] * len(items)
    for row in rows:
        item = items[row.number - 1]
        key = VerdictKey(row.run_model_id, item.sample_key, item.epoch, item.generation)
        found[row.number - 1] = LookUp(
            key,
            row.command,
            row.done,
            row.held,
            batched=row.batched and not row.live,
            live=row.live,
        )
    return found


def has_answers(session: Session, run_model_id: int) -> bool:
    """Return whether any call to a model of a run has been answered, in whatever generation."""
    answered = exists().where(
        VerdictRow.run_model_id == run_model_id, VerdictRow.error_class.is_(None)
    )
    return bool(session.scalar(select(answered)))


def insert_verdicts(session: Session, verdicts: Sequence[tuple[VerdictKey, Verdict]]) -> int:
    """Insert verdicts with the errors of their failed attempts; those already there stay.

    Returns:
        How many verdicts were not there yet.
    """
    firsts = dict(reversed(verdicts))
    rows = [verdict_row(key, verdict) for key, verdict in firsts.items()]
    errors = [error_row(key, each) for key, v in firsts.items() for each in v.call_errors]
    return insert_rows(session, rows, errors)


def insert_rows(
    session: Session, rows: Sequence[Mapping[str, object]], errors: Sequence[Mapping[str, object]]
) -> int:
    """Insert verdicts with the errors of their failed attempts; those already there stay.

    Returns:
        How many verdicts were not there yet.
    """
    inserted = session.execute(_INSERT_VERDICTS, {"rows": json.dumps(rows, default=str)}).all()
    new = set(map(tuple, inserted))
    # Errors of a verdict that came second say nothing about the one that was kept.
    of_new = [error for error in errors if tuple(error[name] for name in KEY_COLUMNS) in new]
    if of_new:
        session.execute(_INSERT_ERRORS, {"rows": json.dumps(of_new, default=str)})
    return len(inserted)


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of a completion, as a version of the parser reads it."""

    outcome: Outcome
    reason: str | None
    confidence: float | None
    """In [0, 1]; None when absent or not such a number."""
    parser_version: int


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A verdict's completion, and what is stored as its content."""

    key: VerdictKey
    text: str
    reading: Reading


def next_answers(
    session: Session, after: VerdictKey, limit: int, characters: int, *, lock: bool
) -> list[StoredAnswer]:
    """Return the next completions of a model of a run, in the order of their keys.

    Args:
        limit: Return at most so many.
        characters: Return no further one once the completions together have so many.
        lock: Whether to lock them until the transaction ends; two that do so wait for each other.
    """
    columns = (_VERDICTS.sample_key, _VERDICTS.epoch, _VERDICTS.generation)
    query = (
        select(
            *columns,
            _VERDICTS.completion,
            _VERDICTS.outcome,
            _VERDICTS.reason,
            _VERDICTS.confidence,
            _VERDICTS.parser_version,
        )
        .where(
            _VERDICTS.run_model_id == after.run_model_id,
            tuple_(*columns) > tuple_(after.sample_key, after.epoch, after.generation),
            _VERDICTS.completion.is_not(None),
            _VERDICTS.error_class.is_(None),
        )
        .order_by(*columns)
        .limit(limit)
    )
    streamed = session.execute(
        query.with_for_update(key_share=True) if lock else query,
        execution_options={"yield_per": STREAM_ROWS},
    )
    answers: list[StoredAnswer] = []
    with streamed as rows:
        for row in rows:
            reading = Reading(Outcome(row.outcome), row.reason, row.confidence, row.parser_version)
            key = VerdictKey(after.run_model_id, row.sample_key, row.epoch, row.generation)
            answers.append(StoredAnswer(key, row.completion, reading))
            characters -= len(row.completion)
            if characters <= 0:
                break
    return answers


def write_readings(session: Session, readings: Sequence[tuple[VerdictKey, Reading]]) -> None:
    """Replace what is stored as the content of completions; nothing else of a verdict changes."""
    rows = [
        {
            **key.columns(),
            "outcome": reading.outcome.value,
            "reason": reading.reason,
            "confidence": reading.confidence,
            "parser_version": reading.parser_version,
        }
        for key, reading in readings
    ]
    if rows:
        session.execute(_WRITE_READINGS, {"rows": json.dumps(rows)})
