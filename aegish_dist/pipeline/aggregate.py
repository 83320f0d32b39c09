"""Aggregating: count the verdicts once, apply the opinions, append snapshots.

Only models whose verdicts have changed are counted, and only their pairs compared; everything else
is taken from the last snapshot. A pair is compared on the samples that both models have scored.
Policies are measured among the models of a snapshot, and not stored.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations

from msgspec import Struct, field
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.columns import RunColumns
from aegish_dist.core.metric import METRICS_VERSION, ModelMetrics
from aegish_dist.core.run import Run
from aegish_dist.db.counting import count_models
from aegish_dist.db.engine import ONE_VIEW, transaction
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import load_run
from aegish_dist.db.snapshots import joint_identity, made_alike, save_snapshot
from aegish_dist.findings.snapshot import PairDifferences, Snapshot, VerdictSet, snapshot_document
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.runs import no_verdict
from aegish_dist.statistics.metrics import measure
from aegish_dist.statistics.paired_difference import PairedScores, scored_values
from aegish_dist.telemetry.tracing import span


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
        count = count_models(session, run, _known(scored), overlays)
        for counted in count.models:
            identities[counted.spec.id] = counted.identity
            for each in scored if counted.tallies else ():
                tally = counted.tallies[overlays.index(each.overlay)]
                each.models.append(measure(tally, each.opinion.rule))
        if not any(each.verdicts for each in identities.values()):
            raise no_verdict(run_id)
        for each in scored:
            if each.models:
                each.pairs = _pairs(run, each, count.columns[overlays.index(each.overlay)])
        with span("snapshot", run_id):
            return [_save(session, run_id, each, identities) for each in scored]


class _Scored(Struct):
    """The verdicts of a run under an opinion, while they are counted."""

    opinion: Opinion
    overlay: OverlayInRun
    earlier: Snapshot | None
    """The last snapshot whose entries the same verdicts would give again; None: there is none."""
    pairs: PairDifferences
    models: list[ModelMetrics] = field(default_factory=list)


def _begin(session: Session, run: Run, opinion: Opinion, *, recount: bool) -> _Scored:
    overlay = overlay_of(session, run, opinion)
    # Targets of an opinion change no entry, so they are not compared.
    parts = {part: made for part, made in opinion.provenance.items() if part != "targets"}
    earlier = None if recount else made_alike(session, run, overlay, parts)
    return _Scored(opinion, overlay, earlier, earlier.pairs if earlier else {})


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
        document=snapshot_document(scored.models, scored.earlier, scored.pairs),
        identities=identities,
        pairs=scored.pairs,
    )


def _pairs(run: Run, scored: _Scored, columns: RunColumns) -> PairDifferences:
    """Compare the scores of models; pairs neither of which has changed keep their difference."""
    changed = {each.tally.model for each in scored.models}
    pairs = list(combinations([spec.id for spec in run.models], 2))
    anew = []
    for pair in pairs:
        if pair not in scored.pairs or not changed.isdisjoint(pair):
            anew.append(pair)
    rule = scored.opinion.rule
    malicious = columns.samples.malicious
    values = {}
    for model, read in columns.guards.items():
        values[model] = scored_values(read.finding, malicious, rule)
    differences = PairedScores(columns.samples, values, rule.composite).scores(anew)
    known = {**scored.pairs, **dict(zip(anew, differences, strict=True))}
    return {pair: known[pair] for pair in pairs}


def _known(scored: Sequence[_Scored]) -> dict[str, VerdictSet]:
    """Return, by model, the verdicts for which the last snapshot of every opinion has an entry."""
    first, *others = [each.earlier.identities if each.earlier else {} for each in scored]
    return {
        model: identity
        for model, identity in first.items()
        if all(other.get(model) == identity for other in others)
    }
