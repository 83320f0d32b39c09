"""How far a run is, counted from its verdicts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.verdict import Outcome
from aegish_dist.db.codes import outcome_of
from aegish_dist.db.per_model import PerModel

_PROGRESS = """
    SELECT code, count(*), sum(cost_usd),
           count(*) FILTER (WHERE stored_at > now() - make_interval(secs => {window_s}))
    FROM verdicts AS verdict
    WHERE run_model_id = :model AND {counts}
    GROUP BY code
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one model of a run is."""

    outcomes: Mapping[Outcome, int]
    """Verdicts by outcome of the newest generation."""
    cost_usd: Decimal | None
    """Sum over all generations; None when no price is known."""
    rate_per_s: float
    """Verdicts stored per second over the last seconds, of all generations."""


def model_progress(session: Session, run: Run, window_s: float) -> dict[str, Progress]:
    """Return how far each model of a run is.

    Args:
        session: Transaction of the caller. Of a large run, what it wrote itself is not seen.
        run: The run.
        window_s: Seconds over which the rate is taken.
    """
    models = PerModel.of(session, run)
    with models.readers(session) as readers:
        found = readers.map(
            lambda reader, model: _progress(reader, models, model, window_s), models.keys
        )
        return dict(zip(models.keys, found, strict=True))


def _progress(session: Session, models: PerModel, model: str, window_s: float) -> Progress:
    statement = _PROGRESS.replace("{window_s}", str(float(window_s)))
    newest = models.newest(session, statement, model)
    rows = [*newest, *(models.superseded(session, statement, model) if models.retried else ())]
    outcomes: Counter[Outcome] = Counter()
    for code, number, _, _ in newest:
        outcomes[outcome_of(code)] += number
    costs = [cost for _, _, cost, _ in rows if cost is not None]
    recent = sum(number for _, _, _, number in rows)
    return Progress(outcomes, sum(costs, Decimal(0)) if costs else None, recent / window_s)
