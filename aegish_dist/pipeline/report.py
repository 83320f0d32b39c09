"""Reporting: a run and one of its snapshots, gathered for rendering."""

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.scoring import ScoringRule
from aegish_dist.db.engine import connection_errors_in_one_line
from aegish_dist.db.runs import load_run
from aegish_dist.pipeline.aggregate import current_snapshot, snapshot_numbered
from aegish_dist.render.data import ReportData


def report_data(
    engine: Engine, run_id: str, rule: ScoringRule, snapshot_id: int | None = None
) -> ReportData:
    """Gather what a report shows.

    Args:
        engine: The store.
        run_id: A full run id.
        rule: The rule set, unless a snapshot is named.
        snapshot_id: A stored snapshot; the current verdicts when None.

    Raises:
        ReportError: The run has no verdict yet, or no such snapshot.
    """
    snapshot = (
        current_snapshot(engine, run_id, rule)
        if snapshot_id is None
        else snapshot_numbered(engine, run_id, snapshot_id)
    )
    with connection_errors_in_one_line(), Session(engine) as session:
        run = load_run(session, run_id)
    return ReportData(
        run=run,
        snapshot_id=snapshot.snapshot_id,
        scoring=snapshot.scoring,
        scoring_version=snapshot.scoring_version,
        verdicts=snapshot.verdicts,
        created_at=snapshot.created_at,
        document=snapshot.document,
    )
