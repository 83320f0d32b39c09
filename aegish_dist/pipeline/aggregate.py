"""Aggregating: count the verdicts once, apply the opinions, append snapshots.

Only models whose verdicts have changed are counted, and only their pairs compared; everything else
is taken from the last snapshot. A pair is compared on the samples that both models have scored.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations

from sqlalchemy import Engine
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.opinion import Opinion, PairP, Snapshot, VerdictSet
from aegish_dist.core.run import ModelOfRun, Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.db.answers import read_answers
from aegish_dist.db.counting import (
    count_models,
    find_snapshot,
    is_unchanged,
    joint_identity,
    save_snapshot,
)
from aegish_dist.db.engine import transaction
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.statistics.document import snapshot_document
from aegish_dist.statistics.inference import holm
from aegish_dist.statistics.metrics import METRICS_VERSION, ModelMetrics, measure
from aegish_dist.statistics.paired_difference import PairedAnswers, score_difference
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

    Raises:
        OpinionError: An overlay does not fit the datasets of the run.
    """
    own = transaction(engine, isolation_level=ONE_VIEW) if within is None else nullcontext(within)
    with span("aggregate", run_id), own as session:
        run = load_run(session, run_id)
        overlays = [overlay_of(session, run, each) for each in opinions]
        earlier = [
            None if recount else _earlier(session, run, opinion, overlay)
            for opinion, overlay in zip(opinions, overlays, strict=True)
        ]
        identities: dict[str, VerdictSet] = {}
        measured: list[list[ModelMetrics]] = [[] for _ in opinions]
        distinct = list(dict.fromkeys(overlays))
        places = [distinct.index(overlay) for overlay in overlays]
        for each in count_models(session, run, _known(earlier), distinct):
            identities[each.spec.id] = each.identity
            if each.tallies:
                for place, opinion, models in zip(places, opinions, measured, strict=True):
                    models.append(measure(each.tallies[place], opinion.rule))
        joint = joint_identity(identities)
        if not joint.verdicts:
            raise ReportError(
                f"run {run_id} has no verdict yet: `aegish-dist status --run-id {run_id}` "
                "shows how far it is"
            )
        pairs = [{} if before is None else before.pair_p for before in earlier]
        changed = {each.model for models in measured for each in models}
        if changed:
            kept = [
                {pair: p for pair, p in found.items() if changed.isdisjoint(pair)}
                for found in pairs
            ]
            sides = [ModelOfRun(run.run_id, spec.id) for spec in run.models]
            answers = [
                read_answers(session, sides, [run], {run_id: overlay}) for overlay in distinct
            ]
            pairs = [
                _pairs(run, opinion.rule, answers[place], unchanged)
                for opinion, place, unchanged in zip(opinions, places, kept, strict=True)
            ]
        with span("snapshot", run_id):
            return [
                save_snapshot(
                    session,
                    run_id=run_id,
                    opinion=opinion,
                    metrics_version=METRICS_VERSION,
                    parser_versions=joint.parser_versions,
                    verdicts=joint.verdicts,
                    verdicts_hash=joint.verdicts_hash,
                    code_version=__version__,
                    document=snapshot_document(
                        models,
                        before,
                        dict(zip(map(frozenset, found), holm([*found.values()]), strict=True)),
                    ),
                    identities=identities,
                    pair_p=found,
                )
                for opinion, models, before, found in zip(
                    opinions, measured, earlier, pairs, strict=True
                )
            ]


def _pairs(run: Run, rule: ScoringRule, answers: PairedAnswers[ModelOfRun], kept: PairP) -> PairP:
    """Return p of no difference of the scores by pair of models, not yet adjusted for the pairs.

    Args:
        kept: Of pairs neither of which has changed.
    """
    found, scored = {}, answers.scored(rule)
    for pair in combinations([spec.id for spec in run.models], 2):
        if pair in kept:
            found[pair] = kept[pair]
            continue
        samples = scored.pair(*(ModelOfRun(run.run_id, model) for model in pair)).targets
        malicious, harmless = samples[TrueLabel.MALICIOUS], samples[TrueLabel.HARMLESS]
        found[pair] = score_difference(rule.composite, malicious, harmless).p_value
    return found


def _earlier(
    session: Session, run: Run, opinion: Opinion, overlay: OverlayInRun
) -> Snapshot | None:
    """Find the last snapshot whose entries the same verdicts would give again.

    Targets of an opinion change no entry, so they are not compared.
    """
    parts = {part: made for part, made in opinion.provenance.items() if part != "targets"}
    found = find_snapshot(session, run.run_id, made_under=parts)
    return found if found is not None and _made_alike(found, run, overlay) else None


def _made_alike(snapshot: Snapshot, run: Run, overlay: OverlayInRun) -> bool:
    """Whether code and plan are the same: then the same verdicts give the same entry."""
    if (snapshot.metrics_version, snapshot.code_version) != (METRICS_VERSION, __version__):
        return False
    if run.imported:  # it plans nothing: its verdicts are all there is to compare
        return True
    entries = snapshot.document["models"]
    planned = {entry["model"]: entry["counts"]["planned"] for entry in entries}
    return planned == {spec.id: sum(overlay.planned(run, spec.id).values()) for spec in run.models}


def _known(earlier: Sequence[Snapshot | None]) -> dict[str, VerdictSet]:
    """Return, by model, the verdicts for which the last snapshot of every opinion has an entry."""
    known = [snapshot.identities for snapshot in earlier if snapshot is not None]
    if not known or len(known) < len(earlier):
        return {}
    first, *others = known
    return {
        model: identity
        for model, identity in first.items()
        if all(other.get(model) == identity for other in others)
    }


def current_snapshot(engine: Engine, run_id: str, opinion: Opinion) -> Snapshot:
    """Return the newest snapshot under an opinion; a new one if verdicts or code have changed.

    Raises:
        OpinionError: The overlay does not fit the datasets of the run.
    """
    return current_snapshots(engine, run_id, [opinion])[0]


def current_snapshots(engine: Engine, run_id: str, opinions: Sequence[Opinion]) -> list[Snapshot]:
    """Return the same for several opinions, all of one set of verdicts.

    Where one has no current snapshot, the verdicts are counted once for all of them.

    Raises:
        OpinionError: An overlay does not fit the datasets of the run.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        stored = [_alike(session, run, opinion) for opinion in opinions]
        current: list[Mapping[str, VerdictSet]] = []
        for each in stored:
            if each is not None and each.identities not in current:
                current += [each.identities] * is_unchanged(session, run, each.identities)
    found = [each for each in stored if each is not None and each.identities in current]
    return found if len(found) == len(opinions) else aggregate(engine, run_id, opinions)


def _alike(session: Session, run: Run, opinion: Opinion) -> Snapshot | None:
    found = find_snapshot(session, run.run_id, made_under=opinion.provenance)
    if found is None or not _made_alike(found, run, overlay_of(session, run, opinion)):
        return None
    return found


def snapshot_numbered(engine: Engine, run_id: str, snapshot_id: int) -> Snapshot:
    """Return a stored snapshot of a run.

    Args:
        snapshot_id: Key of the snapshot, at least 1.
    """
    with transaction(engine) as session:
        found = find_snapshot(session, run_id, snapshot_id=snapshot_id)
    if found is None:
        raise ReportError(f"run {run_id} has no snapshot {snapshot_id}")
    return found


def without_overlay(engine: Engine, snapshot: Snapshot) -> Snapshot | None:
    """Return the snapshot of the same verdicts under the labels of the datasets.

    Returns:
        None when there is no such snapshot.
    """
    if snapshot.opinion is None:
        return None
    parts = {"scoring": snapshot.opinion.provenance["scoring"], "overlay": None}
    with transaction(engine) as session:
        found = find_snapshot(session, snapshot.run_id, made_under=parts)
    same = found is not None and (found.verdicts_hash, found.metrics_version) == (
        snapshot.verdicts_hash,
        snapshot.metrics_version,
    )
    return found if same else None
