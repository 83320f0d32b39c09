"""95 % confidence intervals within [0, 1], from numbers that are known already.

Pure formulas. No interval is without width at 0 or 1.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from aegish_dist.core.distributions import beta_cdf, beta_quantile

Z_95 = 1.959963984540054
"""The 97.5th percentile of the standard normal distribution."""

_ONE_SIDED = 0.05
_FEW = 11.0
"""From 10.2 events on, Wilson's bound lies beyond the exact one-sided one, for any n."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval within [0, 1]."""

    low: float
    high: float
    """Upper end, at least the lower one."""


def wilson(p: float, n: float) -> Interval:
    """Return the score interval of a proportion (Wilson 1927, JASA 22:209).

    Args:
        p: Observed proportion, in [0, 1].
        n: Effective number of observations, > 0; need not be whole.

    Returns:
        An interval of positive width that contains p.
    """
    z2 = Z_95 * Z_95
    scale = 1 + z2 / n
    centre = (p + z2 / (2 * n)) / scale
    half = Z_95 / scale * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # At 0 and 1 the bound equals p; rounding must not push it past.
    return Interval(max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half)))


def proportion_interval(p: float, n: float) -> Interval:
    """Return Wilson's interval, mended where successes or failures are few.

    With one to ten successes Wilson's lower bound is too high: it misses up to 15 % of runs. There
    the exact one-sided 95 % bound of Clopper and Pearson replaces it, and likewise the upper bound
    where failures are few (Brown, Cai & DasGupta 2001, Statistical Science 16:101, section 4.1.1,
    with the binomial in place of its Poisson limit, and for numbers that need not be whole).

    Args:
        p: Observed proportion, in [0, 1].
        n: Effective number of observations, > 0; need not be whole.

    Returns:
        An interval of positive width that contains p.
    """
    plain = wilson(p, n)
    return Interval(
        _mended(plain.low, p * n, n - p * n), 1 - _mended(1 - plain.high, n - p * n, p * n)
    )


def _mended(low: float, successes: float, failures: float) -> float:
    if not 0 < successes < _FEW or beta_cdf(low, successes, failures + 1) <= _ONE_SIDED:
        return low
    return beta_quantile(_ONE_SIDED, successes, failures + 1)


def mover(
    value: float, below: Iterable[float], above: Iterable[float], correlation: float = 0.0
) -> Interval:
    """Return the interval of a function of estimates, from their own intervals.

    The method of variance estimates recovery: at each end the distances of the parts, weighted by
    the partial derivatives of the function, add in quadrature, as standard errors do (Zou & Donner
    2008, Statistics in Medicine 27:1693). Unlike value +- z x stderr it keeps the asymmetry of the
    parts.

    Args:
        value: The function at the estimates, in [0, 1].
        below: Weighted distances from each estimate down to its lower bound.
        above: Weighted distances from each estimate up to its upper bound.
        correlation: Of the first two parts, in [-1, 1].

    Returns:
        An interval that contains the value, clipped to [0, 1].
    """
    return Interval(
        max(0.0, value - _added(list(below), correlation)),
        min(1.0, value + _added(list(above), correlation)),
    )


def wald(value: float, stderr: float) -> Interval:
    """Return value +- z x stderr, clipped to [0, 1]."""
    return mover(value, [Z_95 * stderr], [Z_95 * stderr])


def _added(distances: list[float], correlation: float) -> float:
    squares = [distance * distance for distance in distances]
    if correlation:
        squares.append(2 * correlation * distances[0] * distances[1])
    return math.sqrt(max(0.0, math.fsum(squares)))
