"""Estimates with their uncertainty: 95 % intervals within [0, 1], and one score from two rates.

No interval is without width at 0 or 1. An undefined part leaves the result undefined.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from aegish_dist.core.metric import Estimate, Judgement, PerTenThousand
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics.distributions import beta_cdf, beta_quantile

Z_95 = 1.959963984540054  # the 97.5th percentile of the standard normal distribution
Z_80 = 0.8416212335729143  # the 80th

_ONE_SIDED = 0.05
_FEW = 11.0  # from 10.2 events on, Wilson's bound lies beyond the exact one-sided bound


class Interval(NamedTuple):
    """A closed interval within [0, 1]."""

    low: float
    high: float


def wilson(p: float, n: float, z: float = Z_95) -> Interval:
    """Return the score interval of a proportion p for n > 0 (Wilson 1927, JASA 22:209)."""
    z2 = z * z
    scale = 1 + z2 / n
    centre = (p + z2 / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))

    # At 0 and 1 the bound equals p; rounding must not push it past.
    low = min(p, centre - half)
    high = max(p, centre + half)
    return Interval(max(0.0, low), min(1.0, high))


def proportion_interval(p: float, n: float) -> Interval:
    """Return Wilson's interval, corrected where successes or failures are few.

    There Wilson's bound misses up to 15 % of runs. The exact one-sided 95 % bound of Clopper and
    Pearson replaces it (Brown, Cai & DasGupta 2001, Statistical Science 16:101, section 4.1.1, with
    the binomial in place of its Poisson limit, and for numbers that need not be whole).
    """
    plain = wilson(p, n)
    return _with_few_mended(plain.low, 1 - plain.high, p, n)


def mean_interval(value: float, rates: Sequence[tuple[float, float]]) -> Interval:
    """Return the score interval of the unweighted mean of independent proportions p of n > 0.

    A mean m lies in it if `(mean - m)^2 <= z^2 sum_k q_k (1 - q_k) / n_k / K^2`, with q the most
    likely rates whose mean is m. In simulations of such sums it is better than MOVER (Martin
    Andres, Herranz Tejedor & Alvarez Hernandez 2012, J. Statistical Computation and Simulation
    82:123). Few successes or failures are corrected as in `proportion_interval`, with as many
    samples as have the variance of the mean. `value` is the estimate that the interval is moved to,
    where the proportions are smoothed.
    """
    variance = math.fsum([p * (1 - p) / n for p, n in rates]) / len(rates) ** 2
    n = value * (1 - value) / variance if variance else 0.0

    # The upper end is the lower end of the mean of the opposite rates, seen from 1.
    below = _reach_down(rates)
    above = _reach_down([(1 - p, n) for p, n in rates])
    low = max(0.0, value - below)
    gap = max(0.0, 1 - value - above)
    return _with_few_mended(low, gap, value, n)


def _reach_down(rates: Sequence[tuple[float, float]]) -> float:
    """Return the distance of the lower end of the score interval to the mean.

    The likeliest rates have `n_k (p_k - q_k) = x q_k (1 - q_k)` with one Lagrange multiplier x for
    all. Summed up over k, that is `K (mean - m) = x sum_k q_k (1 - q_k) / n_k`. So at the end
    x^2 times the sum is z^2. The Illinois method finds x (Dowell & Jarratt 1971, BIT 11:168).
    """
    if all(p < 1e-100 for p, _ in rates):  # x would leave the range of numbers
        return 0.0

    def excess(x: float) -> float:
        likeliest = [(_likeliest(p, n, x), n) for p, n in rates]
        return x * math.sqrt(sum([q * (1 - q) / n for q, n in likeliest])) - Z_95

    # A bracket: `below` is the excess at `low`, and `above` that at `high`.
    low = 0.0
    below = -Z_95
    x = 1.0
    while (above := excess(x)) < 0:
        low = x
        below = above
        x = 4 * x
    high = x

    last = 0.0
    for _ in range(50):
        x = high - above * (high - low) / (above - below)  # where the secant crosses 0
        at_x = excess(x)
        if abs(at_x) < 1e-11:
            break
        # An end that stays a second time counts half, so that it does not stay for ever.
        if at_x > 0:
            high = x
            above = at_x
            if last > 0:
                below = below / 2
        else:
            low = x
            below = at_x
            if last < 0:
                above = above / 2
        last = at_x
    return math.fsum([p - _likeliest(p, n, x) for p, n in rates]) / len(rates)


def _likeliest(p: float, n: float, x: float) -> float:
    """Solve `n (p - q) = x q (1 - q)` for the smaller q."""
    # The form of the root that does not take a difference of numbers that are nearly equal.
    root = math.sqrt((n - x) ** 2 + 4 * x * n * (1 - p))
    return min(p, 2 * p * n / (n + x + root))


def _with_few_mended(low: float, gap: float, p: float, n: float) -> Interval:
    """Return the interval from `low` to 1 - `gap`, corrected as in `proportion_interval`."""
    successes = p * n
    failures = n - p * n
    return Interval(_mended(low, successes, failures), 1 - _mended(gap, failures, successes))


def _mended(low: float, successes: float, failures: float) -> float:
    """Return the exact bound where successes are few and the lower end lies beyond it."""
    if not 0 < successes < _FEW:
        return low
    if beta_cdf(low, successes, failures + 1) <= _ONE_SIDED:
        return low
    return beta_quantile(_ONE_SIDED, successes, failures + 1)


def mover(
    value: float, below: Sequence[float], above: Sequence[float], correlation: float = 0.0
) -> Interval:
    """Return the interval of a function of estimates, from their own intervals.

    The method of variance estimates recovery: at each end the distances of the parts, weighted by
    the partial derivatives of the function, add in quadrature (Zou & Donner 2008, Statistics in
    Medicine 27:1693), which keeps their asymmetry. `correlation` is between the first two parts.
    """
    return Interval(
        max(0.0, value - _added(below, correlation)),
        min(1.0, value + _added(above, correlation)),
    )


def wald(value: float, stderr: float) -> Interval:
    """Return value +- z x stderr, clipped to [0, 1]."""
    return mover(value, [Z_95 * stderr], [Z_95 * stderr])


def _added(distances: Sequence[float], correlation: float) -> float:
    squares = [distance * distance for distance in distances]
    if correlation:
        squares.append(2 * correlation * distances[0] * distances[1])
    return math.sqrt(max(0.0, math.fsum(squares)))


def judged(estimate: Estimate, least: float, *, by_value: bool = False) -> Judgement:
    """Judge an estimate by its interval, or where it has none, or on demand, by its value."""
    value, low, high = estimate.value, estimate.ci_low, estimate.ci_high
    if by_value or low is None or high is None:
        low = high = value
    if low is None or high is None:
        return Judgement.UNDECIDED
    if low >= least:
        return Judgement.PASS
    return Judgement.FAIL if high < least else Judgement.UNDECIDED


def fraction(part: int, whole: int) -> Estimate:
    """Return a fact: a fraction without stderr or interval; its value is None if `whole` is 0."""
    return Estimate(value=part / whole if whole else None, n=whole)


class Dependence(Struct, frozen=True):
    """How the clusters that lie on both sides of a score tie its two rates."""

    clusters: int  # of both sides, each counted once
    squares: tuple[float, float]  # by rate, sum over clusters of their squared parts
    products: float  # sum over clusters on both sides of the products of their parts
    correlation: float  # in (-1, 1)

    def stderr(self, slope_a: float, slope_b: float) -> float:
        """Return the clustered standard error of a score with these derivatives by its rates."""
        squares_a, squares_b = self.squares
        of_a = slope_a * slope_a * squares_a
        of_b = slope_b * slope_b * squares_b
        shared = 2 * slope_a * slope_b * self.products
        # Rounding can make a sum that cancels negative.
        squares = max(0.0, math.fsum([of_a, of_b, shared]))
        return math.sqrt(squares * self.clusters / (self.clusters - 1))


def combine(
    composite: Composite,
    detection: Estimate,
    acceptance: Estimate,
    dependence: Dependence | None = None,
) -> Estimate:
    """Form the score from detection rate and acceptance rate.

    `stderr` by the delta method: `sqrt(SE_dr^2 + SE_ha^2) / 2` for the balanced score,
    `sqrt((HA SE_dr)^2 + (DR SE_ha)^2)` for the product. With a cluster's residual sums u and v on
    the two sides, and a and b the partial derivatives, `stderr_clustered` is
    `sqrt(G / (G - 1) sum_g (a u_g + b v_g)^2)`. The interval is MOVER with the same derivatives and
    the correlation of the rates. For the product it keeps the second-order term of the exact
    variance (Goodman 1960, JASA 55:708), without which it would have no width where both are 0.
    A part is None if it is None for either rate.
    """
    n = detection.n + acceptance.n
    a = detection.value
    b = acceptance.value
    if a is None or b is None:
        return Estimate(n=n)
    value = composite.score(a, b)
    if dependence is None:
        return Estimate(value=value, n=n)

    balanced = composite is Composite.BALANCED
    slope_a, slope_b = (0.5, 0.5) if balanced else (b, a)
    stderr = clustered = None
    if detection.stderr is not None and acceptance.stderr is not None:
        stderr = math.hypot(slope_a * detection.stderr, slope_b * acceptance.stderr)
    if None not in (detection.stderr_clustered, acceptance.stderr_clustered):
        clustered = dependence.stderr(slope_a, slope_b)

    def distances(of_a: float, of_b: float) -> list[float]:
        # The mixed second derivative of a product is 1.
        return [slope_a * of_a, slope_b * of_b, 0.0 if balanced else of_a * of_b]

    # Rates whose dependence is known have intervals.
    below = distances(a - (detection.ci_low or 0.0), b - (acceptance.ci_low or 0.0))
    above = distances((detection.ci_high or 0.0) - a, (acceptance.ci_high or 0.0) - b)
    interval = mover(value, below, above, dependence.correlation)
    return Estimate(value, stderr, clustered, *interval, n, dependence.clusters)


def scaled(rate: Estimate, factor: float, offset: float = 0.0) -> Estimate:
    """Return `offset + factor rate`; a negative factor turns the interval round."""
    value, *ends = (offset + factor * number for number in numbers_of(rate))
    stderrs = (rate.stderr, rate.stderr_clustered)
    plain, clustered = (stderr and abs(factor) * stderr for stderr in stderrs)
    return Estimate(value, plain, clustered, min(ends), max(ends), rate.n, rate.clusters)


def numbers_of(defined: Estimate) -> tuple[float, float, float]:
    """Return value and interval, which are defined."""
    return defined.value or 0.0, defined.ci_low or 0.0, defined.ci_high or 0.0


def per_10000(detection_rate: Estimate, fpr: Estimate, prevalence: float) -> PerTenThousand:
    """Return what to expect at a prevalence in [0, 1].

    With d and f the rates, alarms are `P d + (1 - P) f` of all actions, misses `P (1 - d)`, and
    precision has the odds `P d / ((1 - P) f)`. A threshold that moves raises or lowers both rates,
    so alarms add up their stderrs and bounds. In precision such errors cancel: it takes the rates
    as independent, by the delta method on its log odds and by MOVER on `log d - log f`; where a
    number in it is 0, precision is bounded by what it is at a bound of each rate.
    """
    if detection_rate.stderr_clustered is None or fpr.stderr_clustered is None:
        return PerTenThousand()
    dangerous = 10_000 * prevalence
    harmless = 10_000 * (1 - prevalence)
    right = scaled(detection_rate, dangerous)  # of 10,000 actions, those rightly stopped
    wrong = scaled(fpr, harmless)
    a, a_low, a_high = numbers_of(right)
    b, b_low, b_high = numbers_of(wrong)
    errors = right.stderr_clustered or 0.0, wrong.stderr_clustered or 0.0
    alarms = Estimate(a + b, None, sum(errors), a_low + b_low, a_high + b_high)
    misses = scaled(detection_rate, -dangerous, dangerous)
    if not a + b:
        return PerTenThousand(alarms, misses)

    def bound(a_end: float, b_end: float, sign: int) -> float:
        if not a_end:
            return 0.0
        if not (a and b and b_end):
            return a_end / (a_end + b_end)
        # MOVER on log a - log b: the two distances add in quadrature.
        distance = math.hypot(math.log(a_end / a), math.log(b_end / b))
        return a / (a + b * math.exp(-sign * distance))

    value = a / (a + b)
    stderr = None
    if a and b:
        # The derivative of p by its log odds is p (1 - p).
        stderr = value * (1 - value) * math.hypot(errors[0] / a, errors[1] / b)
    ends = bound(a_low, b_high, -1), bound(a_high, b_low, 1)
    return PerTenThousand(alarms, misses, Estimate(value, None, stderr, *ends))
