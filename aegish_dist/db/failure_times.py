"""Failed calls of a run by time, from the attempts and verdicts that are stored."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.orm import Session

from aegish_dist.core.failure_times import TimedFailures
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.db.statements import statement

_BY_TIME = statement("failures_by_time")
_SPAN = statement("failure_span")


def failure_span(session: Session, run_id: str) -> timedelta:
    """Return the time from the first failure of a run to the last; 0 where none has a time."""
    row = session.execute(_SPAN, {"run": run_id}).one()
    return timedelta() if row.first_at is None else row.last_at - row.first_at


def failures_by_time(
    session: Session, run_id: str, models: Sequence[str], width_s: int
) -> list[TimedFailures]:
    """Return failed attempts and unanswered verdicts by stretch of time, model and reason.

    Args:
        width_s: Seconds of a stretch; they begin at multiples of it, in UTC.
    """
    values = {"run": run_id, "models": list(models), "width_s": width_s}
    rows = session.execute(_BY_TIME, values)
    return [
        TimedFailures(
            time=row.time,
            model=row.model,
            error_class=ErrorClass(row.error_class),
            attempts=row.attempts,
            verdicts=row.verdicts,
            statuses=tuple(row.statuses),
            message=mask_key_shapes(row.message or ""),
            first_at=row.first_at,
            last_at=row.last_at,
        )
        for row in rows
    ]
