"""Calibrating: how well the models of a run tell commands apart, and which threshold is best."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.columns import by_finding, has_verdict
from aegish_dist.core.metric import (
    BALANCED_ACCURACY,
    MAX_FPRS,
    Criterion,
    Difference,
    Estimate,
    FittedGuard,
    Metric,
)
from aegish_dist.core.run import Run
from aegish_dist.db.engine import in_transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.findings.fitted import (
    CalibratedModel,
    CalibratedPair,
    CalibrationData,
    in_order,
)
from aegish_dist.findings.snapshot import Snapshot
from aegish_dist.opinions.guards import Guard, Guards
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import ACTIONS, OWN_NUMBER, STATED_CONFIDENCE, SuspicionRule
from aegish_dist.pipeline.guards import overlaps_of, read_guards, with_policies
from aegish_dist.pipeline.snapshots import current_snapshot
from aegish_dist.statistics.distributions import holm_adjusted
from aegish_dist.statistics.paired_difference import paired_scores
from aegish_dist.statistics.roc import (
    ScoredDecisions,
    auroc,
    auroc_differences,
    average_precision,
    detection_at,
    partial_auroc,
)
from aegish_dist.statistics.thresholds import FOLDS, Fit, FoldedDecisions


def calibrate(
    engine: Engine,
    run_id: str,
    opinion: Opinion,
    rule: SuspicionRule = OWN_NUMBER,
    models: Sequence[str] = (),
    *,
    criterion: Criterion = BALANCED_ACCURACY,
    prevalence: float | None = None,
    known: Snapshot | None = None,
    guards: Guards | None = None,
) -> CalibrationData:
    """Estimate what models of a run are worth at any threshold, and with the best one.

    Args:
        models: Models of the run, and policies of the opinion; all when empty.
        prevalence: Share of dangerous actions where the guard is used, in (0, 1); None: unknown.
        known: The current snapshot, with the policies. With it, guards are compared with their
            thresholds alone: everything takes three times as long.
        guards: As `read_guards` returns them, where they are read already.

    Raises:
        StoreError: The run does not ask one of the models.
        OpinionError: The overlay does not fit the datasets of the run, or a policy its models.
        ReportError: There is no verdict yet, or nothing to tell apart or to fit on.
    """
    guards = guards or read_guards(engine, run_id, opinion, rule, models, costs=False)
    _require_both_labels(run_id, guards)
    current = known or with_policies(current_snapshot(engine, run_id, opinion), opinion, guards)
    scores = {entry.model: Estimate.of(entry.metrics[Metric.SCORE]) for entry in current.entries}
    run = in_transaction(engine, load_run, run_id)
    return calibrated(
        run,
        opinion,
        guards,
        scores,
        rule=guards.rule(rule),
        criterion=criterion,
        prevalence=prevalence,
        with_curves=known is None,
    )


def calibrated(
    run: Run,
    opinion: Opinion,
    guards: Guards,
    scores: Mapping[str, Estimate],
    *,
    rule: SuspicionRule = STATED_CONFIDENCE,
    criterion: Criterion = BALANCED_ACCURACY,
    prevalence: float | None = None,
    with_curves: bool = True,
) -> CalibrationData:
    """Return the same from verdicts that are read, and the scores of the guards as they stand.

    Without curves, only fitted thresholds are estimated and compared.
    """
    folded = FoldedDecisions(guards.samples, opinion.rule.composite, epochs=guards.epochs)
    fits = {guard.name: folded.fit(guard.suspicion, criterion) for guard in guards.guards}
    fitted = {name: fit for name, fit in fits.items() if not fit.guard.problem}
    pairs = list(combinations(fits, 2))
    differences: list[Mapping[tuple[str, str], Difference]] = [{}, {}, folded.differences(fitted)]
    if with_curves:
        scores_differ = paired_scores(guards, opinion.rule).scores(pairs)
        differences[0] = holm_adjusted(dict(zip(pairs, scores_differ, strict=True)))
        differences[1] = auroc_differences(guards)
    data = CalibrationData(
        run=run,
        opinion=opinion,
        rule=rule,
        criterion=criterion,
        prevalence=prevalence,
        folds=folded.folds,
        overlaps=overlaps_of(opinion, guards),
        asked=guards.asked,
        models=in_order(
            _model(guards, guard, scores[guard.name], fits[guard.name].guard, whole=with_curves)
            for guard in guards.guards
        ),
        pairs=[
            CalibratedPair(*pair, *(by_pair.get(pair, Difference()) for by_pair in differences))
            for pair in pairs
        ],
    )
    return replace(data, gains=_gains(data, guards, folded, fitted))


_AS_IT_STANDS = ""  # no name of a guard


def _gains(
    data: CalibrationData, guards: Guards, folded: FoldedDecisions, fits: Mapping[str, Fit]
) -> dict[str, Difference]:
    """Return by ranked guard what its fitted threshold gains on the leader without one."""
    if data.leader is None:
        return {}
    leader = next(guard for guard in guards.guards if guard.name == data.leader.model)
    rule = data.opinion.rule
    is_detected = by_finding(rule.is_detection)[leader.finding]
    is_accepted = by_finding(rule.is_acceptance)[leader.finding]
    # A rule set may count an answer as neither, which is wrong on either side.
    stops = np.where(guards.malicious, is_detected, ~is_accepted)
    scored = leader.scored & has_verdict(leader.finding)
    as_it_stands = folded.judge(data.criterion, scored, stops, stops_in_sample=stops)
    ranked = [model.model for model in data.ranked if model.model in fits]
    pairs = [(_AS_IT_STANDS, name) for name in ranked]
    gains = folded.differences({_AS_IT_STANDS: as_it_stands, **fits}, pairs)
    return {name: gain for (_, name), gain in gains.items()}


def _require_both_labels(run_id: str, guards: Guards) -> None:
    """Refuse a run none of whose models has scored enough binaries of both labels."""
    samples = guards.samples
    numbers = []
    for guard in guards.guards:
        scored = guard.scored.any(axis=1)
        sides = (scored & samples.malicious, scored & ~samples.malicious)
        numbers.append([len(np.unique(samples.cluster[side])) for side in sides])
    for label, number in zip(("malicious", "harmless"), max(numbers, key=min), strict=True):
        if number < FOLDS:
            raise ReportError(
                f"models of run {run_id} have scored {label} commands of {number} binaries: a"
                f" threshold is fitted on some, judged on others, and takes {FOLDS} of each label"
            )


def _model(
    guards: Guards, guard: Guard, score: Estimate, fitted: FittedGuard, *, whole: bool
) -> CalibratedModel:
    scored = ScoredDecisions(guards.samples, guard.suspicion)
    looked_at = scored
    if not whole:
        looked_at = ScoredDecisions(guards.samples, np.full_like(guard.suspicion, np.nan))
    bound = fitted.criterion.max_fpr
    partial_fpr = bound if bound < 1 else MAX_FPRS[-1]
    states_action = by_finding(ACTIONS.__contains__)[guard.finding]
    points = [detection_at(looked_at, max_fpr) for max_fpr in MAX_FPRS]
    return CalibratedModel(
        model=guard.name,
        aegish_score=score,
        malicious=len(scored.dangerous),
        harmless=len(scored.harmless),
        unreadable=int((guard.scored & ~states_action).sum()),
        distinct=len(scored.levels),
        auroc=auroc(looked_at),
        partial_fpr=partial_fpr,
        partial_auroc=partial_auroc(looked_at, partial_fpr),
        average_precision=average_precision(looked_at),
        at_fpr=[point for point in points if point is not None],
        fitted=fitted,
        simulated=guard.simulated,
        own=guard.own,
    )
