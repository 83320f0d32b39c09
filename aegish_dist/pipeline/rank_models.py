"""Ranking the models of a run: which pairs of scores differ by more than chance may explain.

A pair is compared on the samples that both have scored, as `compare` does.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from sqlalchemy.orm import Session

from aegish_dist.core.comparison import score_difference
from aegish_dist.core.paired_columns import PairedAnswers
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.side import ModelOfRun
from aegish_dist.core.significance import holm
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.paired import read_answers

PairP = Mapping[frozenset[str], float | None]
"""By pair of models, p of no difference of their scores, adjusted for all pairs."""


def p_of_pairs(
    session: Session,
    run: Run,
    rules: Sequence[tuple[ScoringRule, int]],
    overlays: Sequence[OverlayInRun],
) -> list[PairP]:
    """Compare the scores of all pairs of a run's models.

    Args:
        rules: Each with the place of its overlay.

    Returns:
        One for each rule set.
    """
    sides = [ModelOfRun(run.run_id, spec.id) for spec in run.models]
    answers = [read_answers(session, sides, [run], {run.run_id: each}) for each in overlays]
    return [_p(sides, rule, answers[place]) for rule, place in rules]


def _p(sides: Sequence[ModelOfRun], rule: ScoringRule, answers: PairedAnswers[ModelOfRun]) -> PairP:
    scored, pairs = answers.scored(rule), list(combinations(sides, 2))
    found = []
    for pair in pairs:
        samples = scored.pair(*pair).targets
        malicious, harmless = samples[Target.MALICIOUS], samples[Target.HARMLESS]
        found.append(score_difference(rule.composite, malicious, harmless).p_value)
    names = [frozenset((a.model, b.model)) for a, b in pairs]
    return dict(zip(names, holm(found), strict=True))
