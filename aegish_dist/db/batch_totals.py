"""Sums over the batches of a run, and what answers of a model use."""

import math
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from aegish_dist.core.batch import BatchState, BatchTotals
from aegish_dist.core.completion import Usage
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import RunModelRow

MOST_ANSWERS = 1000
"""Answers whose tokens are averaged at most."""
FEWEST_ANSWERS = 4

_ADD_UP = statement("add_up_batches")
_USAGE = statement("usage_of_answers")
_LOCK_RUN = statement("lock_run")


def batch_totals(session: Session, run_id: str) -> dict[str, BatchTotals]:
    """Return the batches of each model of a run that is asked in batches, now or later."""
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
        starts_in_s=float(row.starts_in_s),
        live=row.live,
    )


def usage_of_answers(session: Session, run_id: str, model: str) -> Usage | None:
    """Return the tokens that a call of a model of a run uses on average, not underestimated.

    Returns:
        None while there are fewer than `FEWEST_ANSWERS` answers with tokens.
    """
    key = session.scalar(
        select(RunModelRow.id).where(RunModelRow.run_id == run_id, RunModelRow.model == model)
    )
    row = session.execute(_USAGE, {"model": key, "limit": MOST_ANSWERS}).one()
    if row.answers < FEWEST_ANSWERS:
        return None
    return Usage(math.ceil(row.input_tokens), math.ceil(row.output_tokens))


def lock_run(session: Session, run_id: str) -> None:
    """Have other transactions that plan batches of a run wait until this one ends."""
    session.execute(_LOCK_RUN, {"run": run_id})
