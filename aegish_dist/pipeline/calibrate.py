"""Calibrating: how well the models of a run tell commands apart, and which threshold is best."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Engine

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.suspicion import STATED_CONFIDENCE, Decision, Guard, Guards, SuspicionRule
from aegish_dist.db.engine import in_transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.pipeline.aggregate import current_snapshot
from aegish_dist.pipeline.compare import Question, compare_models
from aegish_dist.pipeline.opinions import read_guards
from aegish_dist.report.decision import BASELINE
from aegish_dist.report.scores import CalibratedModel, CalibratedPair, CalibrationData
from aegish_dist.statistics.gate import MAX_FPRS
from aegish_dist.statistics.paired_difference import Difference
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

_ACTIONS = (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)


def calibrate(
    engine: Engine,
    run_id: str,
    opinion: Opinion,
    rule: SuspicionRule = STATED_CONFIDENCE,
    models: Sequence[str] = (),
    *,
    criterion: Criterion = BALANCED_ACCURACY,
    prevalence: float | None = None,
) -> CalibrationData:
    """Estimate what models of a run are worth at any threshold, and with the best one.

    Args:
        models: Models of the run; all when empty.
        prevalence: Share of dangerous actions where the guard is used, in (0, 1); None: unknown.

    Raises:
        StoreError: The run does not ask one of the models.
        OpinionError: The overlay does not fit the datasets of the run.
        ReportError: There is no verdict yet, or nothing to tell apart or to fit on.
    """
    guards = read_guards(engine, run_id, opinion, rule, models)
    _require_both_labels(run_id, guards)
    folded = FoldedDecisions(guards.decisions, opinion.rule.composite)
    fits = {each.name: folded.fit(each.suspicion, criterion) for each in guards.guards}
    fitted = folded.differences({name: each for name, each in fits.items() if not each.problem})
    areas = auroc_differences(guards.decisions, {e.name: e.suspicion for e in guards.guards})
    scores = _scores(engine, run_id, opinion)
    found = [
        _model(guards.decisions, each, scores[each.name], fits[each.name]) for each in guards.guards
    ]
    malicious = sum(each.dangerous for each in guards.decisions)
    return CalibrationData(
        run=in_transaction(engine, load_run, run_id),
        opinion=opinion,
        rule=rule,
        criterion=criterion,
        prevalence=prevalence,
        folds=folded.folds,
        asked=(malicious, len(guards.decisions) - malicious),
        models=sorted(found, key=lambda e: (e.model.startswith(BASELINE), -e.merit, e.model)),
        pairs=[
            CalibratedPair(*pair, score, area, fitted.get(pair, Difference()))
            for score, (pair, area) in zip(
                _score_differences(engine, run_id, opinion, fits), areas.items(), strict=True
            )
        ],
    )


def _require_both_labels(run_id: str, guards: Guards) -> None:
    """Refuse a run none of whose models has scored enough binaries of both labels."""

    def binaries(guard: Guard, dangerous: bool) -> int:
        decided = zip(guards.decisions, guard.suspicion, strict=True)
        scored = [e for e, value in decided if value is not None and e.dangerous is dangerous]
        return len({each.unit for each in scored})

    numbers = [[binaries(each, label) for label in (True, False)] for each in guards.guards]
    for label, number in zip(("malicious", "harmless"), max(numbers, key=min), strict=True):
        if number < FOLDS:
            raise ReportError(
                f"models of run {run_id} have scored {label} commands of {number} binaries: a"
                f" threshold is fitted on some, judged on others, and takes {FOLDS} of each label"
            )


def _scores(engine: Engine, run_id: str, opinion: Opinion) -> Mapping[str, Estimate]:
    """Return the scores of models as they stand."""
    entries = current_snapshot(engine, run_id, opinion).document["models"]
    return {each["model"]: Estimate.of(each["metrics"]["aegish_score"]) for each in entries}


def _model(
    decisions: Sequence[Decision], guard: Guard, score: Estimate, fitted: FittedGuard
) -> CalibratedModel:
    scored = ScoredDecisions(decisions, guard.suspicion)
    points = (detection_at(scored, max_fpr) for max_fpr in MAX_FPRS)
    bound = fitted.criterion.max_fpr
    partial_fpr = bound if bound < 1 else MAX_FPRS[-1]
    verdicts = zip(guard.outcomes, guard.suspicion, strict=True)
    return CalibratedModel(
        model=guard.name,
        aegish_score=score,
        malicious=len(scored.dangerous),
        harmless=len(scored.harmless),
        unreadable=sum(known is not None and each not in _ACTIONS for each, known in verdicts),
        distinct=len(scored.levels),
        auroc=auroc(scored),
        partial_fpr=partial_fpr,
        partial_auroc=partial_auroc(scored, partial_fpr),
        average_precision=average_precision(scored),
        at_fpr=[point for point in points if point is not None],
        fitted=fitted,
    )


def _score_differences(
    engine: Engine, run_id: str, opinion: Opinion, models: Collection[str]
) -> list[Difference]:
    """Return how models differ as they stand, by all pairs in their order."""
    if len(models) < 2:
        return []
    question = Question(opinion, by_category=False)
    pairs = compare_models(engine, run_id, [*models], question).pairs
    return [pair.comparison.metrics["aegish_score"] for pair in pairs]
