"""Logistic regression in one coefficient, without a library."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = 12
_LONGEST_STEP = 1.0
_CLOSE = 1e-6


def logistic(x: float) -> float:
    """Return 1 / (1 + exp(-x)), for any x."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def log_logistic(x: float) -> float:
    """Return the logarithm of `logistic(x)`, exact where that is near 0 or 1."""
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


@dataclass(frozen=True, slots=True)
class Term:
    """Trials whose log odds of success are offset + slope x coefficient."""

    successes: float
    """How many succeeded; may be a fraction."""
    trials: float
    """How many there were, at least as many."""
    slope: float
    offset: float
    """The part that does not depend on the coefficient."""


def maximise(terms: Sequence[Term], mean: float, sd: float, start: float) -> float:
    """Return the coefficient of the highest posterior probability, by Newton's method.

    Args:
        sd: Standard deviation of that prior, > 0.
    """
    x = start
    for _ in range(_STEPS):
        gradient, curvature = (mean - x) / sd**2, 1 / sd**2
        for term in terms:
            p = logistic(term.offset + term.slope * x)
            gradient += term.slope * (term.successes - term.trials * p)
            curvature += term.slope**2 * term.trials * p * (1 - p)
        step = gradient / curvature
        x += max(-_LONGEST_STEP, min(_LONGEST_STEP, step))
        if abs(step) < _CLOSE:
            break
    return x
