"""Estimates with their uncertainty: 95 % confidence intervals, and one score from two rates.

Pure formulas on plain numbers. The intervals hold at 0 and 1. An undefined part leaves the result
undefined; it never counts as 0.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import assert_never

from aegish_dist.core.scoring import Composite

Z_95 = 1.959963984540054
"""The 97.5th percentile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its uncertainty; what is undefined is None."""

    value: float | None = None
    """The estimate."""
    stderr: float | None = None
    """Standard error, samples taken as independent."""
    stderr_clustered: float | None = None
    """Standard error, only clusters taken as independent."""
    ci_low: float | None = None
    """Lower end of the 95 % confidence interval."""
    ci_high: float | None = None
    """Upper end of the 95 % confidence interval."""
    n: int = 0
    """Samples behind a rate; verdicts behind coverage, its bounds, and calibration."""
    clusters: int | None = None
    """Clusters behind it; None where clusters play no part."""


NUMBERS = tuple(field.name for field in fields(Estimate))
"""The fields of an estimate, in the order of columns and exports."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval within [0, 1]."""

    low: float
    """Lower end."""
    high: float
    """Upper end, at least the lower one."""


def fraction(part: int, whole: int) -> Estimate:
    """Return a fact about a run: a fraction without stderr or interval; None of nothing."""
    return Estimate(value=part / whole if whole else None, n=whole)


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


@dataclass(frozen=True, slots=True)
class _Surface:
    """A function of two rates a and b near the estimates."""

    value: float
    slope_a: float
    """Partial derivative by a."""
    slope_b: float
    """Partial derivative by b."""
    twist: float
    """Mixed second derivative."""


def combine(composite: Composite, detection: Estimate, acceptance: Estimate) -> Estimate:
    """Form the score from detection rate and acceptance rate.

    `stderr` by the delta method: `sqrt(SE_dr^2 + SE_ha^2) / 2` for the balanced score,
    `sqrt((HA SE_dr)^2 + (DR SE_ha)^2)` for the product. The interval is MOVER with the same
    weights. For the product it keeps the second-order term of the exact variance (Goodman 1960,
    JASA 55:708), without which it would have no width where both rates are 0.

    Args:
        composite: The form of the score.
        detection: Malicious detection rate.
        acceptance: Harmless acceptance rate.

    Returns:
        The estimate; each part is None where it is None on either side.
    """
    n = detection.n + acceptance.n
    if detection.value is None or acceptance.value is None:
        return Estimate(n=n)
    surface = _surface(composite, detection.value, acceptance.value)
    interval = _interval(surface, detection, acceptance)
    return Estimate(
        value=surface.value,
        stderr=_stderr(surface, detection.stderr, acceptance.stderr),
        stderr_clustered=_stderr(surface, detection.stderr_clustered, acceptance.stderr_clustered),
        ci_low=interval.low if interval else None,
        ci_high=interval.high if interval else None,
        n=n,
        clusters=_sum(detection.clusters, acceptance.clusters),
    )


def _surface(composite: Composite, a: float, b: float) -> _Surface:
    match composite:
        case Composite.BALANCED:
            return _Surface((a + b) / 2, slope_a=0.5, slope_b=0.5, twist=0.0)
        case Composite.PRODUCT:
            return _Surface(a * b, slope_a=b, slope_b=a, twist=1.0)
        case _:
            assert_never(composite)


def _stderr(surface: _Surface, stderr_a: float | None, stderr_b: float | None) -> float | None:
    if stderr_a is None or stderr_b is None:
        return None
    return math.hypot(surface.slope_a * stderr_a, surface.slope_b * stderr_b)


def _interval(surface: _Surface, a: Estimate, b: Estimate) -> Interval | None:
    below = _distances(surface, _gap(a.value, a.ci_low), _gap(b.value, b.ci_low))
    above = _distances(surface, _gap(a.ci_high, a.value), _gap(b.ci_high, b.value))
    if below is None or above is None:
        return None
    return mover(surface.value, below, above)


def _distances(surface: _Surface, a: float | None, b: float | None) -> list[float] | None:
    if a is None or b is None:
        return None
    return [surface.slope_a * a, surface.slope_b * b, surface.twist * a * b]


def _gap(upper: float | None, lower: float | None) -> float | None:
    return None if upper is None or lower is None else upper - lower


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
