"""Auditing: which commands of a run deserve a second look, and which labels."""

from pathlib import Path

from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.audit import DOUBTFUL_FROM, Audit, AuditKind
from aegish_dist.core.columns import RunColumns, sample_answers
from aegish_dist.core.run import Run
from aegish_dist.core.text import JsonObject
from aegish_dist.db.columns import read_columns
from aegish_dist.db.counting import count_models
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.files import replacing_text, require_new
from aegish_dist.findings.snapshot import overlay_effect, snapshot_document
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.opinion_files import render_overlay
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.runs import no_verdict
from aegish_dist.statistics.label_audit import audit, draft_overlay
from aegish_dist.statistics.metrics import measure


def audit_run(engine: Engine, run_id: str, opinion: Opinion, top: int) -> Audit:
    """Look for commands of a run that deserve a second look, for lists of at least 1.

    The opinion says which answers are right, and which labels are corrected already.
    """
    run, columns = read_run(engine, run_id, opinion)
    samples = sample_answers(columns)
    return audit(samples, [spec.id for spec in run.models], opinion.rule, top)


def write_overlay(
    engine: Engine, run_id: str, opinion: Opinion, found: Audit, path: Path, *, author: str
) -> tuple[int, list[JsonObject]]:
    """Write the doubtful labels as an overlay; return how many, and the effect on every score.

    The opinion is that of the audit. The file has to be new, or there is an OutputError: it may
    hold what a person has decided.
    """
    require_new(path)
    overlay = draft_overlay(found, opinion.overlay, f"audit-{run_id}", author)
    with replacing_text(path) as stream:
        stream.write(_DRAFT + render_overlay(overlay))
    turned = sum(
        each.p_other_label >= DOUBTFUL_FROM for each in found.found[AuditKind.DOUBTFUL_LABELS]
    )
    corrected = replace(opinion, overlay=overlay)
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        overlays = [overlay_of(session, run, each) for each in (opinion, corrected)]
        counted = count_models(session, run, {}, overlays).models
    # Counted under both overlays, without storing a snapshot.
    documents = (
        snapshot_document(measure(each.tallies[place], corrected.rule) for each in counted)
        for place in range(len(overlays))
    )
    return turned, overlay_effect(*documents)


_DRAFT = """\
# A draft: read each command, keep a change only where the label is wrong, set the category of what
# becomes malicious, and give your own name as the author.
"""


def read_run(engine: Engine, run_id: str, opinion: Opinion) -> tuple[Run, RunColumns]:
    """Return a run, and what all its models said about its commands.

    Raises:
        ReportError: There is no verdict yet.
    """
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        models = [spec.id for spec in run.models]
        overlay = overlay_of(session, run, opinion)
        columns = read_columns(session, run, models, overlay, numbers=(), texts=True)
    if not any(read.answered.any() for read in columns.guards.values()):
        raise no_verdict(run_id)
    return run, columns
