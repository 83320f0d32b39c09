"""Aggregating: count the verdicts once, apply the rules, append snapshots."""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.metrics import METRICS_VERSION, ModelMetrics, measure
from aegish_dist.core.run import Run
from aegish_dist.core.scoring import RULES, ScoringRule, rule_named
from aegish_dist.core.snapshot import Snapshot, VerdictSet, snapshot_document
from aegish_dist.db.engine import transaction
from aegish_dist.db.identity import is_unchanged, joint_identity
from aegish_dist.db.runs import load_run
from aegish_dist.db.snapshots import find_snapshot, save_snapshot
from aegish_dist.db.tally import count_models
from aegish_dist.errors import ReportError

ALL = "all"


def rules_named(scoring: str) -> Sequence[ScoringRule]:
    """Return the rule sets that a name or `all` stands for."""
    return list(RULES.values()) if scoring == ALL else [rule_named(scoring)]


def aggregate(
    engine: Engine, run_id: str, rules: Sequence[ScoringRule], *, recount: bool = False
) -> list[Snapshot]:
    """Append one snapshot per rule set, all of the same counts.

    A model whose verdicts are those of the last snapshot keeps its entry of then, which counting
    again would only repeat.

    Args:
        engine: The store.
        run_id: A full run id.
        rules: The opinions to apply.
        recount: Count every model again all the same.

    Raises:
        ReportError: The run has no verdict yet.
    """
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        earlier = {} if recount else _earlier(session, run, rules)
        known = _known(earlier.values(), len(rules))
        identities: dict[str, VerdictSet] = {}
        measured: dict[str, list[ModelMetrics]] = {rule.name: [] for rule in rules}
        for each in count_models(session, run, known):
            identities[each.spec.id] = each.identity
            if each.tally is not None:
                for rule in rules:
                    measured[rule.name].append(measure(each.tally, rule))
        joint = joint_identity(identities)
        if not joint.verdicts:
            raise ReportError(
                f"run {run_id} has no verdict yet: `aegish-dist status --run-id {run_id}` "
                "shows how far it is"
            )
        return [
            save_snapshot(
                session,
                run_id=run_id,
                scoring=rule.name,
                scoring_version=rule.version,
                metrics_version=METRICS_VERSION,
                parser_versions=joint.parser_versions,
                verdicts=joint.verdicts,
                verdicts_hash=joint.verdicts_hash,
                code_version=__version__,
                document=snapshot_document(measured[rule.name], earlier.get(rule.name)),
                identities=identities,
            )
            for rule in rules
        ]


def _earlier(session: Session, run: Run, rules: Iterable[ScoringRule]) -> dict[str, Snapshot]:
    """Find the last snapshot under each rule, where it was made as one would be made now."""
    found = {rule.name: find_snapshot(session, run.run_id, scoring=rule.name) for rule in rules}
    return {
        rule.name: snapshot
        for rule in rules
        if (snapshot := found[rule.name]) is not None and _made_alike(snapshot, run, rule)
    }


def _made_alike(snapshot: Snapshot, run: Run, rule: ScoringRule) -> bool:
    """Whether rule, code and plan are the same: then the same verdicts give the same entry."""
    entries = snapshot.document["models"]
    planned = {entry["model"]: entry["counts"]["planned"] for entry in entries}
    versions = (snapshot.scoring_version, snapshot.metrics_version, snapshot.code_version)
    now = (rule.version, METRICS_VERSION, __version__)
    return versions == now and planned == {spec.id: run.planned(spec.id) for spec in run.models}


def _known(earlier: Collection[Snapshot], rules: int) -> dict[str, VerdictSet]:
    """Return the verdicts whose entry is there under every rule."""
    if len(earlier) < rules:
        return {}
    first, *others = (snapshot.identities for snapshot in earlier)
    return {
        model: identity
        for model, identity in first.items()
        if all(other.get(model) == identity for other in others)
    }


def current_snapshot(engine: Engine, run_id: str, rule: ScoringRule) -> Snapshot:
    """Return the newest snapshot under a rule; a new one if verdicts or the rule have changed.

    Args:
        engine: The store.
        run_id: A full run id.
        rule: The opinion to apply.

    Raises:
        ReportError: The run has no verdict yet.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        found = find_snapshot(session, run_id, scoring=rule.name)
        if (
            found is not None
            and _made_alike(found, run, rule)
            and is_unchanged(session, run, found.identities)
        ):
            return found
    return aggregate(engine, run_id, [rule])[0]


def snapshot_numbered(engine: Engine, run_id: str, snapshot_id: int) -> Snapshot:
    """Return a stored snapshot of a run.

    Args:
        engine: The store.
        run_id: A full run id.
        snapshot_id: Key of the snapshot, at least 1.

    Raises:
        ReportError: The run has no such snapshot.
    """
    with transaction(engine) as session:
        found = find_snapshot(session, run_id, snapshot_id=snapshot_id)
    if found is None:
        raise ReportError(f"run {run_id} has no snapshot {snapshot_id}")
    return found
