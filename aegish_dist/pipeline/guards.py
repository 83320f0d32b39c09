"""Guards: what models of a run said, as columns for scores, thresholds and policies."""

from collections.abc import Sequence

from sqlalchemy import Engine

from aegish_dist.core.guard import Guards
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.suspicion import STATED_CONFIDENCE, SuspicionRule
from aegish_dist.db.answers import read_guard_columns
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.runs import chosen_models, no_verdict


def read_guards(
    engine: Engine,
    run_id: str,
    opinion: Opinion | None = None,
    rule: SuspicionRule = STATED_CONFIDENCE,
    models: Sequence[str] = (),
) -> Guards:
    """Return what models of a run said about each sample in each epoch.

    Args:
        opinion: Which verdicts are scored, and which labels are corrected; None: those of the
            reference benchmark.
        models: Models of the run, in the order of the guards; all when empty.

    Raises:
        StoreError: The run does not ask one of them.
        OpinionError: The overlay does not fit the datasets of the run.
        ReportError: None of them has a verdict yet.
    """
    judged = opinion or Opinion()
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        found = read_guard_columns(
            session,
            run,
            chosen_models(run, models),
            scoring=judged.rule,
            rule=rule,
            overlay=overlay_of(session, run, judged),
        )
    if not any(outcome for guard in found.guards for outcome in guard.outcomes):
        raise no_verdict(run_id)
    return found
