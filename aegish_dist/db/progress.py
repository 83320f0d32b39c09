"""How far a run is, counted from its verdicts."""

from decimal import Decimal

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from aegish_dist.db.newest import newest_verdict
from aegish_dist.db.tables import RunModelRow, VerdictRow


def count_outcomes(session: Session, run_id: str) -> dict[str, dict[str, int]]:
    """Return how many verdicts each model has, by outcome of the newest generation."""
    rows = session.execute(
        text(
            "SELECT model.model, verdict.outcome, count(*) FROM verdicts AS verdict"  # noqa: S608
            " JOIN run_models AS model ON model.id = verdict.run_model_id"
            f" WHERE model.run_id = :run AND {newest_verdict(session, run_id)} GROUP BY 1, 2"
        ),
        {"run": run_id},
    )
    counts: dict[str, dict[str, int]] = {}
    for model, outcome, number in rows:
        counts.setdefault(model, {})[outcome] = number
    return counts


def model_costs(session: Session, run_id: str) -> dict[str, Decimal | None]:
    """Return what each model has cost so far in USD, retries included; None when unknown."""
    rows = session.execute(
        select(RunModelRow.model, func.sum(VerdictRow.cost_usd))
        .join(VerdictRow, VerdictRow.run_model_id == RunModelRow.id)
        .where(RunModelRow.run_id == run_id)
        .group_by(RunModelRow.model)
    )
    return {row[0]: row[1] for row in rows}


def recent_rates(session: Session, run_id: str, window_s: float) -> dict[str, float]:
    """Return each model's verdicts per second over the last seconds."""
    rows = session.execute(
        select(RunModelRow.model, func.count())
        .join(VerdictRow, VerdictRow.run_model_id == RunModelRow.id)
        .where(
            RunModelRow.run_id == run_id,
            VerdictRow.stored_at > func.now() - func.make_interval(0, 0, 0, 0, 0, 0, window_s),
        )
        .group_by(RunModelRow.model)
    )
    return {model: number / window_s for model, number in rows}
