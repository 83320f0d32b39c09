"""Calibrating: how well the models of a run tell commands apart, and which threshold is best."""

from collections.abc import Sequence
from itertools import combinations

from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.opinion import Opinion, Snapshot
from aegish_dist.core.scoring import ACTIONS, ScoringRule
from aegish_dist.core.suspicion import OWN_NUMBER, Decision, Guard, Guards, SuspicionRule
from aegish_dist.db.engine import in_transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.pipeline.aggregate import current_snapshot
from aegish_dist.pipeline.opinions import read_guards
from aegish_dist.report.decision import BASELINE
from aegish_dist.report.scores import CalibratedModel, CalibratedPair, CalibrationData
from aegish_dist.statistics.document import with_policies
from aegish_dist.statistics.gate import MAX_FPRS
from aegish_dist.statistics.paired_difference import (
    Difference,
    PairedAnswers,
    ScoredColumns,
    adjusted,
    compare_samples,
)
from aegish_dist.statistics.rates import Estimate
from aegish_dist.statistics.roc import (
    ScoredDecisions,
    auroc,
    auroc_differences,
    average_precision,
    detection_at,
    partial_auroc,
)
from aegish_dist.statistics.thresholds import (
    BALANCED_ACCURACY,
    FOLDS,
    Criterion,
    FittedGuard,
    FoldedDecisions,
)


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
        known: The current snapshot, with the policies. With it, only fitted thresholds are
            compared, and the best one with the best guard as it stands: everything takes three
            times as long.
        guards: As `read_guards` returns them, where they are read already.

    Raises:
        StoreError: The run does not ask one of the models.
        OpinionError: The overlay does not fit the datasets of the run, or a policy its models.
        ReportError: There is no verdict yet, or nothing to tell apart or to fit on.
    """
    guards = guards or read_guards(engine, run_id, opinion, rule, models)
    _require_both_labels(run_id, guards)
    folded = FoldedDecisions(guards.decisions, opinion.rule.composite)
    fits = {each.name: folded.fit(each.suspicion, criterion) for each in guards.guards}
    fitted = folded.differences({name: each for name, each in fits.items() if not each.problem})
    compared = {} if known else {each.name: each.suspicion for each in guards.guards}
    standing = {} if known else _score_differences(guards, opinion.rule)
    differences = standing, auroc_differences(guards.decisions, compared), fitted
    current = known or with_policies(current_snapshot(engine, run_id, opinion), opinion, guards)
    scores = {
        each["model"]: Estimate.of(each["metrics"]["aegish_score"])
        for each in current.document["models"]
    }
    found = [
        _model(guards.decisions, each, scores[each.name], fits[each.name], known is None)
        for each in guards.guards
    ]
    malicious = sum(each.dangerous for each in guards.decisions)
    data = CalibrationData(
        run=in_transaction(engine, load_run, run_id),
        opinion=opinion,
        rule=guards.rule(rule),
        criterion=criterion,
        prevalence=prevalence,
        folds=folded.folds,
        asked=(malicious, len(guards.decisions) - malicious),
        models=sorted(found, key=lambda e: (e.model.startswith(BASELINE), -e.merit, e.model)),
        pairs=[
            CalibratedPair(*pair, *(each.get(pair, Difference()) for each in differences))
            for pair in combinations(fits, 2)
        ],
    )
    if known is None or data.recommended is None:
        return data
    (leader,) = (each for each in guards.guards if each.name == data.leader.model)
    right = (opinion.rule.is_acceptance, opinion.rule.is_detection)  # by `dangerous`
    answers = zip(guards.decisions, leader.findings, leader.suspicion, strict=True)
    rows = (
        (each, stops, stops)
        for each, finding, suspicion in answers
        if finding is not None and suspicion is not None
        for stops in [right[each.dangerous](finding) is each.dangerous]
    )
    two = {"old": folded.judge(criterion, rows), "new": fits[data.recommended.model]}
    return replace(data, gain=folded.differences(two)["old", "new"])


def _require_both_labels(run_id: str, guards: Guards) -> None:
    """Refuse a run none of whose models has scored enough binaries of both labels."""

    def binaries(guard: Guard, dangerous: bool) -> int:
        decided = zip(guards.decisions, guard.suspicion, strict=True)
        return len({e.unit for e, s in decided if s is not None and e.dangerous is dangerous})

    numbers = [[binaries(each, label) for label in (True, False)] for each in guards.guards]
    for label, number in zip(("malicious", "harmless"), max(numbers, key=min), strict=True):
        if number < FOLDS:
            raise ReportError(
                f"models of run {run_id} have scored {label} commands of {number} binaries: a"
                f" threshold is fitted on some, judged on others, and takes {FOLDS} of each label"
            )


def _model(
    decisions: Sequence[Decision], guard: Guard, score: Estimate, fitted: FittedGuard, whole: bool
) -> CalibratedModel:
    scored = ScoredDecisions(decisions, guard.suspicion)
    looked_at = scored if whole else ScoredDecisions((), ())
    bound = fitted.criterion.max_fpr
    partial_fpr = bound if bound < 1 else MAX_FPRS[-1]
    return CalibratedModel(
        model=guard.name,
        aegish_score=score,
        malicious=len(scored.dangerous),
        harmless=len(scored.harmless),
        unreadable=sum(
            number is not None and finding not in ACTIONS
            for finding, number in zip(guard.findings, guard.suspicion, strict=True)
        ),
        distinct=len(scored.levels),
        auroc=auroc(looked_at),
        partial_fpr=partial_fpr,
        partial_auroc=partial_auroc(looked_at, partial_fpr),
        average_precision=average_precision(looked_at),
        at_fpr=[*filter(None, (detection_at(looked_at, max_fpr) for max_fpr in MAX_FPRS))],
        fitted=fitted,
        simulated=guard.simulated,
        own=guard.own,
    )


def _score_differences(guards: Guards, rule: ScoringRule) -> dict[tuple[str, str], Difference]:
    """Return how guards differ as they stand, by pairs."""
    columns = ScoredColumns(PairedAnswers.of(guards, str), rule)
    pairs = [*combinations([each.name for each in guards.guards], 2)]
    compared = [compare_samples(columns.pair(*pair), rule.composite) for pair in pairs]
    scores = (each.metrics["aegish_score"] for each in adjusted(compared))
    return dict(zip(pairs, scores, strict=True))
