"""Ranking the models of a run: which pairs of scores differ by more than chance may explain.

A pair is compared on the samples that both have scored, as `compare` does. Of a large run whose
samples are all in clusters the sums of clusters stand in for samples: they are counted already.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from sqlalchemy.orm import Session

from aegish_dist.core.comparison import Stratum, score_difference
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.side import Side
from aegish_dist.core.significance import holm
from aegish_dist.core.summed import SummedSamples, SummedStratum, summed_samples
from aegish_dist.core.tally import Cell
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.paired import read_answers
from aegish_dist.db.per_model import SIDE_BY_SIDE_FROM
from aegish_dist.db.tally import count_cells

PairP = Mapping[frozenset[str], float | None]
"""By pair of models, p of no difference of their scores, adjusted for all pairs."""
CellsByModel = Mapping[str, Sequence[Sequence[Cell]]]
"""By model, its counted verdicts under each overlay."""
_Strata = Callable[[str, str], Mapping[Target, Stratum]]
"""Gives the samples of a pair of models."""


def p_of_pairs(
    session: Session,
    run: Run,
    rules: Sequence[tuple[ScoringRule, int]],
    overlays: Sequence[OverlayInRun],
    cells: CellsByModel,
) -> list[PairP]:
    """Compare the scores of all pairs of a run's models.

    Args:
        cells: Of the models that were counted just now; the others are counted when needed.

    Returns:
        One for each rule set.
    """
    models = [spec.id for spec in run.models]
    strata = _summed(session, run, rules, overlays, cells)
    if strata is None:
        strata = _sample_by_sample(session, run, rules, overlays)
    return [_p(models, rule, of_rule) for (rule, _), of_rule in zip(rules, strata, strict=True)]


def _p(models: Sequence[str], rule: ScoringRule, strata: _Strata) -> PairP:
    pairs = list(combinations(models, 2))
    found = []
    for a, b in pairs:
        samples = strata(a, b)
        malicious, harmless = samples[Target.MALICIOUS], samples[Target.HARMLESS]
        found.append(score_difference(rule.composite, malicious, harmless).p_value)
    return dict(zip(map(frozenset, pairs), holm(found), strict=True))


def _sample_by_sample(
    session: Session,
    run: Run,
    rules: Sequence[tuple[ScoringRule, int]],
    overlays: Sequence[OverlayInRun],
) -> list[_Strata]:
    sides = [Side(run.run_id, spec.id) for spec in run.models]
    answers = [read_answers(session, sides, [run], {run.run_id: each}) for each in overlays]

    def strata(rule: ScoringRule, place: int) -> _Strata:
        scored = answers[place].scored(rule)
        return lambda a, b: scored.pair(Side(run.run_id, a), Side(run.run_id, b)).targets

    return [strata(*rule) for rule in rules]


def _summed(
    session: Session,
    run: Run,
    rules: Sequence[tuple[ScoringRule, int]],
    overlays: Sequence[OverlayInRun],
    cells: CellsByModel,
) -> list[_Strata] | None:
    """Return the pairs from sums; None of a small run, or where samples are in no cluster."""
    if run.planned_per_model * len(run.models) < SIDE_BY_SIDE_FROM:
        return None
    absent = [spec.id for spec in run.models if spec.id not in cells]
    known = {**cells, **(count_cells(session, run, absent, overlays) if absent else {})}
    found = []
    for rule, place in rules:
        sums = {}
        for model, of_overlays in known.items():
            summed = summed_samples(of_overlays[place], rule)
            if summed is None:
                return None
            sums[model] = summed
        found.append(_strata_of(sums))
    return found


def _strata_of(sums: Mapping[str, Mapping[Target, SummedSamples]]) -> _Strata:
    return lambda a, b: {
        target: SummedStratum(sums[a][target], sums[b][target]) for target in Target
    }
