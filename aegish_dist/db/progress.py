"""How far a run is, and why and when its calls failed.

Only attempts of items that got a verdict are in the store; those of a model that is parked from its
first call on are in the workers' log.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from msgspec import Struct, convert
from sqlalchemy import RowMapping
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.run import Run
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.status import FailedCalls, TimedFailures, tells_pace
from aegish_dist.core.text import JsonObject
from aegish_dist.db.engine import execute
from aegish_dist.db.runs import PerModel, prepare_counting
from aegish_dist.db.schema import error_class_of, outcome_of


class Progress(Struct, frozen=True):
    outcomes: Mapping[Outcome, int]  # verdicts by outcome, of each item the newest one
    failed: Mapping[Outcome, int]  # those of them whose call brought no answer
    replaced: int  # verdicts that a retry has replaced by newer ones
    # Items whose newest verdict a retry has been asked to replace, and has not yet.
    awaiting_retry: int
    cost_usd: Decimal | None  # sum over all generations; None when no price is known
    rate_per_s: float  # verdicts stored per second over the last seconds, of all generations
    # The same since the first of these: a model may just begin; 0 where they are too few.
    pace_per_s: float


def model_progress(session: Session, run: Run, window_s: float) -> dict[str, Progress]:
    """Return how far each model of a run is, those without a verdict included."""
    models = PerModel.of(session, run)
    retries = execute(session, "count_unanswered_retries", run=run.run_id)
    awaiting = {row.model: row.items for row in retries}
    window = {"window_s": float(window_s)}

    prepare_counting(session)
    found = {}
    for model in models.keys:
        newest = models.newest("count_progress", model, **window)
        replaced = models.superseded("count_progress", model, **window)
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
        outcome = outcome_of(row.code)
        outcomes[outcome] += row.verdicts
        if error_class_of(row.code) is not None:
            failed[outcome] += row.verdicts
    rows = [*newest, *replaced]
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    recent = sum(row.recent for row in rows)
    recent_s = max((row.recent_s or 0.0 for row in rows), default=0.0)
    pace = recent / recent_s if tells_pace(recent, recent_s) else 0.0
    return Progress(
        outcomes=outcomes,
        failed=failed,
        replaced=sum(row.verdicts for row in replaced),
        awaiting_retry=awaiting_retry,
        cost_usd=sum(costs) if costs else None,
        rate_per_s=pace or recent / window_s,
        pace_per_s=pace,
    )


def unanswered_by_model(session: Session, run: Run) -> Mapping[str, Mapping[ErrorClass, int]]:
    """Return by model how many of its newest verdicts have no answer, by reasons that occurred."""
    models = PerModel.of(session, run)
    prepare_counting(session)
    found: dict[str, Counter[ErrorClass]] = {model: Counter() for model in models.keys}
    for model, reasons in found.items():
        for row in models.newest("count_unanswered", model):
            error_class = error_class_of(row.code)
            if error_class is not None:
                reasons[error_class] += row.verdicts
    return found


def failed_kinds(
    session: Session, run_id: str, lately_s: float = 0.0, messages: int = 1_000
) -> tuple[FailedCalls, ...]:
    """Return failed calls of a run whose items have their verdicts, by model, reason and status.

    Args:
        lately_s: Reach of what counts as lately, in seconds before now.
        messages: How many kinds get the provider's words, those that occurred last.
    """
    values = {"run": run_id, "lately_s": lately_s, "messages": messages}
    rows = execute(session, "failed_kinds", **values).mappings()
    return tuple(convert(_masked(row), FailedCalls) for row in rows)


def _masked(row: RowMapping) -> JsonObject:
    return {**row, "message": mask_key_shapes(row["message"] or "")}


def failure_span(session: Session, run_id: str) -> timedelta:
    """Return the time from the first failure of a run to the last; 0 where none has a time."""
    row = execute(session, "failure_span", run=run_id).one()
    return timedelta() if row.first_at is None else row.last_at - row.first_at


def answer_span(session: Session, run: Run) -> tuple[datetime, ...]:
    """Return when the first and the last answer of a run came; nothing where none has a time."""
    keys = list(PerModel.of(session, run).keys.values())
    row = execute(session, "answer_span", models=keys).one()
    if row.first_at is None:
        return ()
    return (row.first_at, row.last_at)


def failures_by_time(
    session: Session, run_id: str, models: Sequence[str], width_s: int
) -> list[TimedFailures]:
    """Return failed attempts and unanswered verdicts by stretch of time, model and reason.

    Args:
        width_s: Seconds of a stretch; they begin at multiples of it, in UTC.
    """
    values = {"run": run_id, "models": list(models), "width_s": width_s}
    rows = execute(session, "failures_by_time", **values).mappings()
    return [convert(_masked(row), TimedFailures) for row in rows]
