"""Sums over the batches of a run, and what answers of a model use."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from aegish_dist.core.batch import BatchState, BatchTotals
from aegish_dist.core.completion import Usage
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import RunModelRow

MOST_ANSWERS = 1000
"""Answers whose tokens are averaged at most."""
FEWEST_ANSWERS = 10
"""Answers below which the average says nothing."""

_ADD_UP = statement("add_up_batches")
_USAGE = statement("usage_of_answers")
_LOCK_RUN = statement("lock_run")


@dataclass(frozen=True, slots=True)
class BatchedModel:
    """A model of a run that is, or will be, asked in batches."""

    run_model_id: int
    """Its key in the store."""
    from_now: bool
    """Whether its items are asked in batches already; otherwise they are asked live until then."""
    seconds_until: float
    """Seconds until that begins; 0 when it has."""


def batched_models(session: Session, run_id: str) -> dict[str, BatchedModel]:
    """Return the models of a run that are asked in batches, now or later.

    Args:
        session: Transaction of the caller.
        run_id: A full run id.
    """
    left = func.extract("epoch", RunModelRow.batch_from - func.now())
    rows = session.execute(
        select(RunModelRow.model, RunModelRow.id, left.label("left")).where(
            RunModelRow.run_id == run_id, RunModelRow.batch_from.is_not(None)
        )
    )
    return {
        row.model: BatchedModel(row.id, row.left <= 0, max(0.0, float(row.left))) for row in rows
    }


def batch_totals(session: Session, run_id: str) -> dict[str, BatchTotals]:
    """Return the batches of each model of a run that has any.

    Args:
        session: Transaction of the caller.
        run_id: A full run id.
    """
    return {row.model: _totals(row) for row in session.execute(_ADD_UP, {"run": run_id})}


def _totals(row: Row[Any]) -> BatchTotals:
    states = {state: getattr(row, state.value) for state in BatchState}
    return BatchTotals(
        batches=row.batches,
        open=row.batches - row.ended,
        requests=int(row.requests),
        answered=int(row.answered),
        oldest_s=None if row.oldest_s is None else float(row.oldest_s),
        expected_usd=None if row.unpriced else row.expected_usd or Decimal(0),
        problem=row.problem,
        states={state: number for state, number in states.items() if number},
    )


def usage_of_answers(session: Session, run_model_id: int) -> Usage | None:
    """Return the tokens that a call of a model of a run uses on average, not underestimated.

    Args:
        session: Transaction of the caller.
        run_model_id: The model of the run, by its key.

    Returns:
        None while there are fewer than `FEWEST_ANSWERS` answers with tokens.
    """
    row = session.execute(_USAGE, {"model": run_model_id, "limit": MOST_ANSWERS}).one()
    if row.answers < FEWEST_ANSWERS:
        return None
    return Usage(math.ceil(row.input_tokens), math.ceil(row.output_tokens))


def lock_run(session: Session, run_id: str) -> None:
    """Have other transactions that plan batches of a run wait until this one ends."""
    session.execute(_LOCK_RUN, {"run": run_id})


def expected_of_open(totals: Mapping[str, BatchTotals]) -> dict[str, Decimal]:
    """Return the expected cost of the open batches of each model; 0 where it is unknown."""
    return {model: each.expected_usd or Decimal(0) for model, each in totals.items()}
