"""Aggregating: count the verdicts once, apply the opinions, append snapshots.

Only models whose verdicts have changed are counted, and only their pairs compared; everything else
is taken from the last snapshot. A pair is compared on the samples that both models have scored.
Policies are measured among the models of a snapshot, and not stored.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from decimal import Decimal
from itertools import combinations
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.metric import ModelMetrics
from aegish_dist.core.run import ModelOfRun, Run
from aegish_dist.core.tally import Cell, Latency, ModelTally, in_order
from aegish_dist.db.answers import read_answers
from aegish_dist.db.counting import (
    count_models,
    find_snapshot,
    is_unchanged,
    joint_identity,
    save_snapshot,
)
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.findings.leaderboard import snapshot_document
from aegish_dist.findings.provenance import out_of_fold
from aegish_dist.findings.snapshot import PairP, Snapshot, VerdictSet
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import POLICY_PREFIX
from aegish_dist.opinions.suspicion import Guard, Guards
from aegish_dist.pipeline.opinions import overlaps_of, overlay_of
from aegish_dist.pipeline.runs import no_verdict
from aegish_dist.statistics.metrics import METRICS_VERSION, measure
from aegish_dist.statistics.paired_difference import PairedAnswers, ScoredColumns
from aegish_dist.telemetry.tracing import span

ONE_VIEW: IsolationLevel = "REPEATABLE READ"
"""Isolation level of a transaction all of whose counts are of the same moment."""


def aggregate(
    engine: Engine,
    run_id: str,
    opinions: Sequence[Opinion],
    *,
    recount: bool = False,
    within: Session | None = None,
) -> list[Snapshot]:
    """Append one snapshot per opinion, all of the same counts.

    A model whose verdicts are those of the last snapshot keeps its entry of then, which counting
    again would only repeat.

    Args:
        within: A transaction of the caller, of isolation level `ONE_VIEW`; None for one of its own.
    """
    own = transaction(engine, isolation_level=ONE_VIEW) if within is None else nullcontext(within)
    with span("aggregate", run_id), own as session:
        run = load_run(session, run_id)
        scored = [_begin(session, run, each, recount=recount) for each in opinions]
        overlays = list(dict.fromkeys(each.overlay for each in scored))
        identities: dict[str, VerdictSet] = {}
        for counted in count_models(session, run, _known(scored), overlays):
            identities[counted.spec.id] = counted.identity
            for each in scored if counted.tallies else ():
                tally = counted.tallies[overlays.index(each.overlay)]
                each.models.append(measure(tally, each.opinion.rule))
        if not any(each.verdicts for each in identities.values()):
            raise no_verdict(run_id)
        if any(each.models for each in scored):
            sides = [ModelOfRun(run.run_id, spec.id) for spec in run.models]
            answers = [read_answers(session, sides, [run], {run_id: each}) for each in overlays]
            for each in scored:
                each.pair_p = _pairs(run, each, answers[overlays.index(each.overlay)])
        with span("snapshot", run_id):
            return [_save(session, run_id, each, identities) for each in scored]


class _Scored(Struct):
    """The verdicts of a run under an opinion, while they are counted."""

    opinion: Opinion
    overlay: OverlayInRun
    earlier: Snapshot | None
    """The last snapshot whose entries the same verdicts would give again; None: there is none."""
    pair_p: PairP
    models: list[ModelMetrics] = field(default_factory=list)


def _begin(session: Session, run: Run, opinion: Opinion, *, recount: bool) -> _Scored:
    overlay = overlay_of(session, run, opinion)
    # Targets of an opinion change no entry, so they are not compared.
    parts = {part: made for part, made in opinion.provenance.items() if part != "targets"}
    earlier = None if recount else _made_alike(session, run, overlay, parts)
    return _Scored(opinion, overlay, earlier, earlier.pair_p if earlier else {})


def _save(
    session: Session, run_id: str, scored: _Scored, identities: Mapping[str, VerdictSet]
) -> Snapshot:
    joint = joint_identity(identities)
    return save_snapshot(
        session,
        run_id=run_id,
        opinion=scored.opinion,
        metrics_version=METRICS_VERSION,
        parser_versions=joint.parser_versions,
        verdicts=joint.verdicts,
        verdicts_hash=joint.verdicts_hash,
        code_version=__version__,
        document=snapshot_document(scored.models, scored.earlier, scored.pair_p),
        identities=identities,
        pair_p=scored.pair_p,
    )


def _pairs(run: Run, scored: _Scored, answers: PairedAnswers[ModelOfRun]) -> PairP:
    """Return p by pair of models; pairs neither of which has changed keep theirs."""
    columns = ScoredColumns(answers, scored.opinion.rule)
    changed = {each.tally.model for each in scored.models}
    return {
        (a, b): scored.pair_p[a, b]
        if (a, b) in scored.pair_p and changed.isdisjoint((a, b))
        else columns.p_of_scores(ModelOfRun(run.run_id, a), ModelOfRun(run.run_id, b))
        for a, b in combinations([spec.id for spec in run.models], 2)
    }


def _made_alike(
    session: Session, run: Run, overlay: OverlayInRun, made_under: Mapping[str, Any]
) -> Snapshot | None:
    """Return the newest snapshot made so, if the same verdicts give the same entries again."""
    snapshot = find_snapshot(session, run.run_id, made_under=made_under)
    if snapshot is None or snapshot.code_version != __version__:
        return None
    if snapshot.metrics_version != METRICS_VERSION:
        return None
    if run.imported:  # it plans nothing: its verdicts are all there is to compare
        return snapshot
    counted = {entry.model: entry.counts.get("planned") for entry in snapshot.entries}
    planned = {spec.id: sum(overlay.planned(run, spec.id).values()) for spec in run.models}
    return snapshot if counted == planned else None


def _known(scored: Sequence[_Scored]) -> dict[str, VerdictSet]:
    """Return, by model, the verdicts for which the last snapshot of every opinion has an entry."""
    first, *others = [each.earlier.identities if each.earlier else {} for each in scored]
    return {
        model: identity
        for model, identity in first.items()
        if all(other.get(model) == identity for other in others)
    }


def current_snapshot(engine: Engine, run_id: str, opinion: Opinion) -> Snapshot:
    """Return the newest snapshot under an opinion; a new one if verdicts or code have changed."""
    return current_snapshots(engine, run_id, [opinion])[0]


def current_snapshots(engine: Engine, run_id: str, opinions: Sequence[Opinion]) -> list[Snapshot]:
    """Return the same for several opinions, all of one set of verdicts.

    Where one has no current snapshot, the verdicts are counted once for all of them.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        stored = [
            _made_alike(session, run, overlay_of(session, run, each), each.provenance)
            for each in opinions
        ]
        snapshots = [each for each in stored if each is not None]
        known = [each.identities for each in snapshots]
        is_same = bool(known) and known.count(known[0]) == len(opinions)
        if is_same and is_unchanged(session, run, known[0]):
            return snapshots
    return aggregate(engine, run_id, opinions)


def snapshot_numbered(engine: Engine, run_id: str, snapshot_id: int) -> Snapshot:
    """Return a stored snapshot of a run by its key, at least 1."""
    found = in_transaction(engine, find_snapshot, run_id, snapshot_id=snapshot_id)
    if found is None:
        raise ReportError(f"run {run_id} has no snapshot {snapshot_id}")
    return found


def without_overlay(engine: Engine, snapshot: Snapshot) -> Snapshot | None:
    """Return the snapshot of the same verdicts under the labels of the datasets, if any."""
    if snapshot.opinion is None:
        return None
    found = in_transaction(
        engine,
        find_snapshot,
        snapshot.run_id,
        made_under={"scoring": snapshot.opinion.provenance["scoring"], "overlay": None},
    )
    wanted = (snapshot.verdicts_hash, snapshot.metrics_version)
    same = found is not None and (found.verdicts_hash, found.metrics_version) == wanted
    return found if same else None


def with_policies(snapshot: Snapshot, opinion: Opinion, guards: Guards) -> Snapshot:
    """Return a snapshot with the policies of an opinion among its models, ranked by score.

    Nothing is stored: the entries follow from the guards, models and policies. A policy that was
    chosen on these commands has no rank, and what is known of it out of fold instead of its numbers
    on them.
    """
    if not opinion.policies:
        return snapshot
    answers = PairedAnswers.of(guards, str)
    columns = ScoredColumns(answers, opinion.rule)
    pair_p = {
        pair: columns.p_of_scores(*pair)
        for pair in combinations([each.name for each in guards.guards], 2)
    }
    overlaps = overlaps_of(opinion, guards)
    known = {}
    for policy in opinion.policies.values():
        known[POLICY_PREFIX + policy.name] = out_of_fold(policy)
    measured = []
    for guard in guards.guards:
        if guard.name in overlaps:
            made = measure(_tally(guards, guard, answers), opinion.rule)
            names = overlaps[guard.name].out_of_fold
            better = {name: known[guard.name][name] for name in names}
            measured.append(replace(made, metrics={**made.metrics, **better}))
    document = snapshot_document(measured, snapshot, pair_p, overlaps)
    return replace(snapshot, document=document, opinion=opinion, pair_p=pair_p)


def _tally(guards: Guards, policy: Guard, answers: PairedAnswers[str]) -> ModelTally:
    """Count what a policy decides; costs and times are unknown unless 95 % of them are known."""
    columns = (policy.cost_usd, policy.latency_ms)
    known = ([each for each in column if each is not None] for column in columns)
    # Those left would mislead: an allowlist costs nothing, guards without a price are unknown.
    costs, times = (each if len(each) >= 0.95 * len(policy.findings) else [] for each in known)
    decided = Counter(zip(answers.kind, answers.answers[policy.name], strict=True))
    cells = []
    for (kind, found), samples in decided.items():
        if found:
            cells.append(Cell(*answers.kinds[kind], answers.findings[found], samples))
    return ModelTally(
        model=policy.name,
        simulated=policy.simulated,
        planned_malicious=sum(each.dangerous for each in guards.decisions),
        planned_harmless=sum(not each.dangerous for each in guards.decisions),
        cells=in_order(cells),
        latency={"service": Latency.of(times)} if times else {},
        cost_usd=sum(map(Decimal, costs), Decimal()) if costs else None,
        priced_verdicts=len(costs),
        untimed=sum(each is not None for each in policy.findings) - len(times),
    )
