"""Auditing: which commands of a run deserve a second look, and which labels."""

from dataclasses import dataclass

from sqlalchemy import Engine

from aegish_dist.core.audit import Audit, audit
from aegish_dist.core.judged import JudgedSample
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.db.sample_findings import judged_samples
from aegish_dist.errors import ReportError


@dataclass(frozen=True, slots=True)
class AuditedRun:
    """A run and what its audit found."""

    run: Run
    """The run."""
    opinion: Opinion
    """Under which answers were judged."""
    audit: Audit
    """Its lists."""


def audit_run(engine: Engine, run_id: str, opinion: Opinion, top: int) -> AuditedRun:
    """Look for commands of a run that deserve a second look.

    Args:
        engine: The store.
        run_id: A full run id.
        opinion: Which answers are right, and which labels are corrected already.
        top: Length of each list, at least 1.

    Raises:
        ReportError: The run has no verdict yet.
    """
    run, samples = verdicts_by_sample(engine, run_id)
    models = [spec.id for spec in run.models]
    return AuditedRun(run, opinion, audit(samples, models, opinion.rule, top))


def verdicts_by_sample(engine: Engine, run_id: str) -> tuple[Run, list[JudgedSample]]:
    """Return a run, and each of its samples with what all models said about it.

    Args:
        engine: The store.
        run_id: A full run id.

    Raises:
        ReportError: The run has no verdict yet.
    """
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        samples = judged_samples(session, run)
    if not any(sample.findings for sample in samples):
        raise ReportError(
            f"run {run_id} has no verdict yet: `aegish-dist status --run-id {run_id}` "
            "shows how far it is"
        )
    return run, samples
