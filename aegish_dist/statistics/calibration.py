"""Calibration: whether stated confidence matches correctness.

A confidence c is read as the probability that the stated action is correct. Sums are integers, so
everything up to the last division is exact. Verdicts are taken as independent.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction

from msgspec import Struct

from aegish_dist.core.metric import Estimate, ReliabilityBin
from aegish_dist.core.tally import CONFIDENCE_BINS, ConfidenceCell
from aegish_dist.opinions.scoring import ACTIONS, ScoringRule
from aegish_dist.statistics.rates import proportion_interval, wald

UNIT = 1_000_000  # `ConfidenceCell` counts its sums in 1 / UNIT


def brier(cells: Iterable[ConfidenceCell], rule: ScoringRule) -> Estimate:
    """Estimate the mean squared distance of confidence from correctness: `mean((c - o)^2)`.

    o = 1 for a correct verdict, else 0 (Brier 1950, Monthly Weather Review 78:1). 0 is best.
    """
    judged = _judge(cells, rule)
    total = sum(group.squares for group in judged)
    return _mean(judged, total, sum(group.fourth_powers for group in judged))


def expected_calibration_error(cells: Iterable[ConfidenceCell], rule: ScoringRule) -> Estimate:
    """Estimate `sum_b n_b / n |accuracy_b - confidence_b|` over ten equal bins.

    Guo et al. 2017, arXiv 1706.04599. By the delta method, with the sign of each bin's gap taken
    as fixed, `stderr = sqrt((brier - ece^2) / (n - 1))`. Near 0 the error is biased upwards.
    """
    judged = _judge(cells, rule)
    gaps: defaultdict[int, int] = defaultdict(int)
    for group in judged:
        gaps[group.bin] += group.gap
    total = sum(abs(gap) for gap in gaps.values())
    return _mean(judged, total, sum(group.squares for group in judged))


def reliability(cells: Iterable[ConfidenceCell], rule: ScoringRule) -> tuple[ReliabilityBin, ...]:
    """Return ten equal bins, least sure first (DeGroot & Fienberg 1983, The Statistician 32:12)."""
    judged = _judge(cells, rule)
    return tuple(
        _bin(place, [each for each in judged if each.bin == place])
        for place in range(CONFIDENCE_BINS)
    )


def _bin(place: int, judged: Sequence["_Judged"]) -> ReliabilityBin:
    low, high = place / CONFIDENCE_BINS, (place + 1) / CONFIDENCE_BINS
    n = sum(each.verdicts for each in judged)
    if not n:
        return ReliabilityBin(low, high, 0, None, None, None, None)
    correct = sum(each.verdicts for each in judged if each.correct)
    # The gap is that of o - c, so what is left of the correct ones is the sum of c.
    confidence = Fraction(correct * UNIT - sum(each.gap for each in judged), UNIT * n)
    accuracy = correct / n
    interval = proportion_interval(accuracy, n)
    return ReliabilityBin(low, high, n, float(confidence), accuracy, *interval)


class _Judged(Struct, frozen=True):
    """Sums over verdicts with the same correctness o, in units of 1 / UNIT."""

    correct: bool
    bin: int
    verdicts: int
    gap: int
    squares: int
    fourth_powers: int


def _judge(cells: Iterable[ConfidenceCell], rule: ScoringRule) -> list[_Judged]:
    return [
        _judge_cell(cell, rule.is_correct(cell.target, cell.finding))
        for cell in cells
        if cell.finding in ACTIONS and rule.is_scored(cell.finding)
    ]


def _judge_cell(cell: ConfidenceCell, correct: bool) -> _Judged:
    n = cell.verdicts
    if correct:
        return _Judged(True, cell.bin, n, n * UNIT - cell.sum_c, cell.sum_d2, cell.sum_d4)
    return _Judged(False, cell.bin, n, -cell.sum_c, cell.sum_c2, cell.sum_c4)


def _mean(judged: Iterable[_Judged], total: int, total_of_squares: int) -> Estimate:
    """Estimate a mean over verdicts from sums in 1 / UNIT."""
    n = sum(group.verdicts for group in judged)
    if n == 0:
        return Estimate()
    mean = Fraction(total, UNIT * n)
    value = float(mean)
    if n < 2:
        return Estimate(value=value, n=n)
    # The rounding of each verdict's powers can leave a spread just below zero.
    spread = max(Fraction(total_of_squares, UNIT * n) - mean**2, Fraction(0))
    stderr = math.sqrt(spread / (n - 1))
    low, high = wald(value, stderr) if stderr else (None, None)
    return Estimate(value, stderr, ci_low=low, ci_high=high, n=n)
