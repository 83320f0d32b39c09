"""One score from two independent rates.

An undefined side leaves the score undefined; it never counts as 0.
"""

import math
from dataclasses import dataclass
from typing import assert_never

from aegish_dist.core.intervals import Interval, mover
from aegish_dist.core.scoring import Composite
from aegish_dist.core.statistics import Estimate


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
