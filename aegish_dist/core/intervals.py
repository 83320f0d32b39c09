"""95 % confidence intervals that hold at 0 and 1. Pure formulas on plain numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

Z_95 = 1.959963984540054
"""The 97.5th percentile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval within [0, 1]."""

    low: float
    high: float


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


def mover(value: float, below: Iterable[float], above: Iterable[float]) -> Interval:
    """Return the interval of a function of independent estimates, from their own intervals.

    The method of variance estimates recovery: at each end the distances of the parts, weighted by
    the partial derivatives of the function, add in quadrature (Zou & Donner 2008, Statistics in
    Medicine 27:1693). Unlike value +- z x stderr it keeps the asymmetry of the parts.

    Args:
        value: The function at the estimates, in [0, 1].
        below: Weighted distances from each estimate down to its lower bound.
        above: Weighted distances from each estimate up to its upper bound.

    Returns:
        An interval that contains the value, clipped to [0, 1].
    """
    return Interval(
        max(0.0, value - _root_sum_of_squares(below)),
        min(1.0, value + _root_sum_of_squares(above)),
    )


def wald(value: float, stderr: float) -> Interval:
    """Return value +- z x stderr, clipped to [0, 1]."""
    return mover(value, [Z_95 * stderr], [Z_95 * stderr])


def _root_sum_of_squares(distances: Iterable[float]) -> float:
    return math.sqrt(math.fsum(distance * distance for distance in distances))
