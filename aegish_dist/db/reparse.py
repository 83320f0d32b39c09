"""Completions in the store and what was read in them: the only columns of verdicts that change."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from aegish_dist.core.verdict import Outcome
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import DatasetRow, SampleRow
from aegish_dist.db.text import encode_text
from aegish_dist.db.verdict_rows import VerdictKey
from aegish_dist.db.verdict_tables import VerdictRow

STREAM_ROWS = 50
"""Rows fetched at once while completions are streamed."""

_WRITE = statement("write_readings")
_VERDICTS = VerdictRow.__table__.c


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
            "reason": None if reading.reason is None else encode_text(reading.reason),
            "confidence": reading.confidence,
            "parser_version": reading.parser_version,
        }
        for key, reading in readings
    ]
    if rows:
        session.execute(_WRITE, {"rows": json.dumps(rows)})


@dataclass(frozen=True, slots=True)
class NamedSample:
    """A sample as a list names it."""

    dataset: str
    command: str


def named_samples(session: Session, keys: Sequence[int]) -> dict[int, NamedSample]:
    """Return dataset and command of samples by their keys."""
    rows = session.execute(
        select(SampleRow.key, SampleRow.command, DatasetRow.name)
        .join(DatasetRow, DatasetRow.id == SampleRow.dataset_id)
        .where(SampleRow.key.in_(keys))
    )
    return {row.key: NamedSample(row.name, row.command) for row in rows}
