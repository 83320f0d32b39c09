"""How far a run is, counted from its verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Run
from aegish_dist.db.codes import error_class_of, outcome_of
from aegish_dist.db.counting import PerModel, prepare_counting
from aegish_dist.db.missing import unanswered_retries
from aegish_dist.db.statements import counting_statement

_COUNT_PROGRESS = counting_statement("count_progress")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one model of a run is."""

    outcomes: Mapping[Outcome, int]
    """Verdicts by outcome, of each item the newest one."""
    failed: Mapping[Outcome, int]
    """Those of them whose call brought no answer."""
    replaced: int
    """Verdicts that a retry has replaced by newer ones."""
    awaiting_retry: int
    """Items whose newest verdict a retry has been asked to replace, and has not yet."""
    cost_usd: Decimal | None
    """Sum over all generations; None when no price is known."""
    rate_per_s: float
    """Verdicts stored per second over the last seconds, of all generations."""


def model_progress(session: Session, run: Run, window_s: float) -> dict[str, Progress]:
    """Return how far each model of a run is.

    Args:
        window_s: Seconds over which the rate is taken, above 0.

    Returns:
        By model of the run, those without a verdict included.
    """
    models = PerModel.of(session, run)
    awaiting = unanswered_retries(session, run.run_id)
    window = {"window_s": float(window_s)}

    prepare_counting(session)
    found = {}
    for model in models.keys:
        newest = models.newest(session, _COUNT_PROGRESS, model, **window)
        replaced = models.superseded(session, _COUNT_PROGRESS, model, **window)
        found[model] = _progress(newest, replaced, awaiting.get(model, 0), window_s)
    return found


def costs_of(progress: Mapping[str, Progress]) -> dict[str, Decimal]:
    """Return the cost of each model so far, in USD; 0 where it is unknown."""
    return {model: each.cost_usd or Decimal(0) for model, each in progress.items()}


def _progress(
    newest: Sequence[Any], replaced: Sequence[Any], awaiting_retry: int, window_s: float
) -> Progress:
    outcomes: Counter[Outcome] = Counter()
    failed: Counter[Outcome] = Counter()
    for row in newest:
        outcomes[outcome_of(row.code)] += row.verdicts
        if error_class_of(row.code) is not None:
            failed[outcome_of(row.code)] += row.verdicts
    rows = [*newest, *replaced]
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    return Progress(
        outcomes=outcomes,
        failed=failed,
        replaced=sum(row.verdicts for row in replaced),
        awaiting_retry=awaiting_retry,
        cost_usd=sum(costs, Decimal(0)) if costs else None,
        rate_per_s=sum(row.recent for row in rows) / window_s,
    )
