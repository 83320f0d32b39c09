"""Aggregating: count the verdicts once, apply the rules, append snapshots."""

from collections.abc import Sequence

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.metrics import measure
from aegish_dist.core.scoring import RULES, ScoringRule, rule_named
from aegish_dist.core.snapshot import snapshot_parts
from aegish_dist.core.tally import ModelTally
from aegish_dist.db.engine import connection_errors_in_one_line
from aegish_dist.db.snapshots import Snapshot, find_snapshot, save_snapshot
from aegish_dist.db.tally import VerdictSet, identify_verdicts, tally
from aegish_dist.errors import ReportError

ALL = "all"


def rules_named(scoring: str) -> Sequence[ScoringRule]:
    """Return the rule sets that a name or `all` stands for."""
    return list(RULES.values()) if scoring == ALL else [rule_named(scoring)]


def aggregate(engine: Engine, run_id: str, rules: Sequence[ScoringRule]) -> list[Snapshot]:
    """Append one snapshot per rule set, all of the same counts.

    Args:
        engine: The store.
        run_id: A full run id.
        rules: The opinions to apply.

    Raises:
        ReportError: The run has no verdict yet.
    """
    repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
    with connection_errors_in_one_line(), Session(repeatable) as session, session.begin():
        identity = identify_verdicts(session, run_id)
        if identity.verdicts == 0:
            raise ReportError(
                f"run {run_id} has no verdict yet: `aegish-dist status --run-id {run_id}` "
                "shows how far it is"
            )
        counted = tally(session, run_id)
        return [_append(session, run_id, rule, identity, counted) for rule in rules]


def _append(
    session: Session,
    run_id: str,
    rule: ScoringRule,
    identity: VerdictSet,
    counted: Sequence[ModelTally],
) -> Snapshot:
    return save_snapshot(
        session,
        run_id=run_id,
        scoring=rule.name,
        scoring_version=rule.version,
        parser_versions=identity.parser_versions,
        verdicts=identity.verdicts,
        verdicts_hash=identity.verdicts_hash,
        code_version=__version__,
        document=snapshot_parts(measure(each, rule) for each in counted),
    )


def current_snapshot(engine: Engine, run_id: str, rule: ScoringRule) -> Snapshot:
    """Return the newest snapshot under a rule, made anew if verdicts or the rule have changed."""
    with connection_errors_in_one_line(), Session(engine) as session:
        found = find_snapshot(session, run_id, scoring=rule.name)
        identity = identify_verdicts(session, run_id)
    fresh = (identity.verdicts_hash, rule.version, __version__)
    if found and fresh == (found.verdicts_hash, found.scoring_version, found.code_version):
        return found
    return aggregate(engine, run_id, [rule])[0]


def snapshot_numbered(engine: Engine, run_id: str, snapshot_id: int) -> Snapshot:
    """Return a stored snapshot of a run.

    Raises:
        ReportError: The run has no such snapshot.
    """
    with connection_errors_in_one_line(), Session(engine) as session:
        found = find_snapshot(session, run_id, snapshot_id=snapshot_id)
    if found is None:
        raise ReportError(f"run {run_id} has no snapshot {snapshot_id}")
    return found
