"""How far a run is, and why and when its calls failed.

Only attempts of items that got a verdict are in the store; those of a model that is parked from its
first call on are in the workers' log.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from msgspec import Struct
from sqlalchemy.orm import Session

from aegish_dist.core.failures import TimedFailures
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.run import Run
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.status import FailedCalls
from aegish_dist.db.counting import PerModel, prepare_counting
from aegish_dist.db.engine import execute
from aegish_dist.db.missing import unanswered_retries
from aegish_dist.db.tables import error_class_of, outcome_of


def unanswered_by_model(session: Session, run: Run) -> Mapping[str, Mapping[ErrorClass, int]]:
    """Return how many verdicts of each model have no answer, and why.

    Returns:
        By model, of each item the newest verdict; a reason that did not occur is absent.
    """
    models = PerModel.of(session, run)
    prepare_counting(session)
    found: dict[str, Counter[ErrorClass]] = {model: Counter() for model in models.keys}
    for model, reasons in found.items():
        for row in models.newest(session, "count_unanswered", model):
            error_class = error_class_of(row.code)
            if error_class is not None:
                reasons[error_class] += row.verdicts
    return found


def failed_kinds(
    session: Session, run_id: str, lately_s: float = 0.0, messages: int = 1_000
) -> tuple[FailedCalls, ...]:
    """Return failed calls of a run whose items have their verdicts, by model, reason and status.

    Args:
        messages: Of so many kinds that occurred last, the provider's words are read.
    """
    found = execute(session, "failed_kinds", run=run_id, lately_s=lately_s, messages=messages)
    return tuple(
        FailedCalls(
            at=row.last_at,
            model=row.model,
            error_class=ErrorClass(row.error_class),
            status=row.status,
            message=mask_key_shapes(row.message or ""),
            calls=row.calls,
            calls_lately=row.lately,
        )
        for row in found
    )


def failure_span(session: Session, run_id: str) -> timedelta:
    """Return the time from the first failure of a run to the last; 0 where none has a time."""
    row = execute(session, "failure_span", run=run_id).one()
    return timedelta() if row.first_at is None else row.last_at - row.first_at


def failures_by_time(
    session: Session, run_id: str, models: Sequence[str], width_s: int
) -> list[TimedFailures]:
    """Return failed attempts and unanswered verdicts by stretch of time, model and reason.

    Args:
        width_s: Seconds of a stretch; they begin at multiples of it, in UTC.
    """
    values = {"run": run_id, "models": list(models), "width_s": width_s}
    return [
        TimedFailures(
            **row
            | {
                "error_class": ErrorClass(row["error_class"]),
                "statuses": tuple(row["statuses"]),
                "message": mask_key_shapes(row["message"] or ""),
            }
        )
        for row in map(dict, execute(session, "failures_by_time", **values).mappings())
    ]


class Progress(Struct, frozen=True):
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
        newest = models.newest(session, "count_progress", model, **window)
        replaced = models.superseded(session, "count_progress", model, **window)
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
