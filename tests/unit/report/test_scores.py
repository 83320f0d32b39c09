"""Thresholds in words that a caller can act on, for each place between two values."""

import math

import pytest

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.suspicion import STATED_CONFIDENCE, SUSPICION_RULES, Level, SuspicionRule
from aegish_dist.report.scores import CalibratedPair, threshold_in_words
from aegish_dist.statistics.paired_difference import Difference

ODD = SuspicionRule(
    "odd",
    1,
    "WARN by confidence; ALLOW never.",
    {Outcome.ALLOW: Level(-9.0), Outcome.WARN: Level(0.0, 2.0), Outcome.BLOCK: Level(1.0)},
)


@pytest.mark.parametrize(
    ("rule", "threshold", "words"),
    [
        (STATED_CONFIDENCE, -math.inf, "block everything"),
        (STATED_CONFIDENCE, -1.0, "block WARN and ALLOW"),
        (STATED_CONFIDENCE, -0.84, "block WARN and ALLOW with confidence up to 0.84"),
        (STATED_CONFIDENCE, 0.0, "block WARN and ALLOW with confidence up to 0"),
        (STATED_CONFIDENCE, 0.5, "block WARN"),
        (STATED_CONFIDENCE, 1.0, "block WARN"),
        (STATED_CONFIDENCE, 1.5, "block nothing but BLOCK"),
        (STATED_CONFIDENCE, 2.9, "block nothing but BLOCK with confidence from 0.9"),
        (STATED_CONFIDENCE, 3.5, "block nothing"),
        (STATED_CONFIDENCE, math.inf, "block nothing"),
        (SUSPICION_RULES["native"], 0.25, "block from a suspicion of 0.25 on"),
        (ODD, 0.5, "block WARN with confidence from 0.25"),
        (ODD, 1.5, "block nothing but WARN with confidence from 0.75"),
        (ODD, -9.0, "block WARN and ALLOW"),
    ],
)
def test_a_threshold_in_words(rule: SuspicionRule, threshold: float, words: str) -> None:
    assert threshold_in_words(rule, threshold) == words


@pytest.mark.parametrize(
    ("score", "auroc", "contradicts"),
    [
        ((0.01, 0.02, 0.01), (-0.02, -0.01, 0.02), True),
        ((-0.02, -0.01, 0.01), (0.01, 0.02, 0.2), True),
        ((0.01, 0.02, 0.01), (0.01, 0.02, 0.01), False),
        ((0.01, 0.02, 0.01), (-0.02, 0.01, 1.0), False),
        ((0.0, 0.02, 1.0), (-0.02, -0.01, 0.01), False),
        ((None, None, None), (-0.02, -0.01, 0.01), False),
    ],
)
def test_a_contradiction_takes_two_intervals_clear_of_zero(
    score: tuple[float | None, ...], auroc: tuple[float | None, ...], contradicts: bool
) -> None:
    of_score, area = (Difference(ci_low=a, ci_high=b, p_adjusted=p) for a, b, p in (score, auroc))
    pair = CalibratedPair("a", "b", of_score, area, Difference())
    assert pair.contradicts is contradicts
    assert pair.p_contradicts == max(1.0 if p is None else p for _, _, p in (score, auroc))
