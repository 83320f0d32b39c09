"""When and why calls to the models of a run failed."""

from collections.abc import Sequence

from sqlalchemy import Engine

from aegish_dist.core.failures import TimedFailures
from aegish_dist.db.engine import transaction
from aegish_dist.db.failures import failures_by_time
from aegish_dist.db.runs import load_run
from aegish_dist.pipeline.verdicts import require_name


def failure_times(engine: Engine, run_id: str, models: Sequence[str] = ()) -> list[TimedFailures]:
    """Return failed attempts and unanswered verdicts of a run by minute, all generations.

    Attempts of items without a verdict are not stored, so they are not in it.

    Args:
        models: Models of the run; all when empty.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        known = [spec.id for spec in run.models]
        for model in models:
            require_name(run, "model", model, known)
        return failures_by_time(session, run_id, models or known, width_s=60)
