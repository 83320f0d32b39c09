"""Distribution functions and quantiles, and p values adjusted for their number.

Accurate to about 1e-11 up to parameters of 1e7; importing scipy takes longer than most commands.
`inference` has Student's t of arrays, so that nothing here needs numpy.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from aegish_dist.core.columns import Floats
from collections.abc import Mapping
from operator import itemgetter

from msgspec.structs import replace

from aegish_dist.core.metric import Difference

Number = TypeVar("Number", float, "Floats")

_TINY = 1e-300  # keeps Lentz's method from dividing by 0
SETTLED = 1e-16  # a factor this close to 1 ends a continued fraction
_HALF_LOG_2_PI = math.log(2 * math.pi) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by Lentz's method.

    Continued fraction of DLMF 8.17.22; 8.17.4 mirrors it to the side where it converges fast.
    """
    return _beta_cdf(x, 1 - x, a, b)


def _beta_cdf(x: float, y: float, a: float, b: float) -> float:
    """Return `beta_cdf` from x and y = 1 - x, which keeps its digits where x is close to 1."""
    if x <= 0:
        return 0.0
    if y <= 0:
        return 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta_cdf(y, x, b, a)
    return _beta_front(x, y, a, b) * _beta_fraction(x, a, b) / a


def _beta_front(x: float, y: float, a: float, b: float) -> float:
    """Return x^a y^b / B(a, b) without differences of large logarithms (Loader 2000)."""
    n = a + b
    exponent = (
        stirling_error(n)
        - stirling_error(a)
        - stirling_error(b)
        - _deviance(a, n * x)
        - _deviance(b, n * y)
    )
    return math.sqrt(a * b / (2 * math.pi * n)) * math.exp(exponent)


def stirling_error(z: float) -> float:
    """Return log Gamma(z + 1) minus Stirling's formula."""
    if z < 25:
        stirling_power = (z + 0.5) * math.log(z)
        return math.lgamma(z + 1) - stirling_power + z - _HALF_LOG_2_PI

    # The series of DLMF 5.11.1, by Horner's rule in w = 1 / z^2:
    # 1 / (12 z) - 1 / (360 z^3) + 1 / (1260 z^5) - 1 / (1680 z^7) + 1 / (1188 z^9)
    w = 1 / (z * z)
    return (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680 - w / 1188)))) / z


def _deviance(a: float, mean: float) -> float:
    """Return a log(a / mean) + mean - a, which is small where a is close to the mean."""
    gap = a - mean
    if abs(gap) >= 0.1 * (a + mean):
        return a * math.log(a / mean) - gap

    # gap v + 2 a (v^3 / 3 + v^5 / 5 + v^7 / 7 + ...), until a term changes nothing (Loader 2000)
    v = gap / (a + mean)
    term = 2 * a * v
    power = 1
    total = math.nan
    grown = gap * v
    while grown != total:
        total = grown
        term = term * v * v
        power += 2
        grown = total + term / power
    return total


def _beta_fraction(x: float, a: float, b: float) -> float:
    fraction = math.nan
    for fraction, gap in beta_convergents(x, a, b):  # noqa: B007  the last is the result
        if abs(gap) < SETTLED:
            break
    return fraction


def beta_convergents(x: Number, a: Number, b: Number) -> Iterator[tuple[Number, Number]]:
    """Yield convergents of the fraction of DLMF 8.17.22, of numbers or of arrays.

    Each comes with its last factor minus 1; once that is below `SETTLED`, it is the result.
    """
    c: Number = x * 0 + 1  # 1 of the kind of x, a number or an array
    d: Number = 1 / (1 - (a + b) * x / (a + 1) + _TINY)
    fraction = d

    for m in range(1, 100_000):
        # DLMF 8.17.23 has the coefficients d_2m and d_2m+1.
        place = a + 2 * m
        even = m * (b - m) * x / ((place - 1) * place)
        odd = -(a + m) * (a + b + m) * x / (place * (place + 1))

        for coefficient in (even, odd):
            d = 1 / (1 + coefficient * d + _TINY)
            c = 1 + coefficient / c + _TINY
            fraction = fraction * d * c
        yield fraction, d * c - 1


def beta_quantile(p: float, a: float, b: float) -> float:
    """Return x with I_x(a, b) = p.

    Newton's method for log I of log x, which is nearly a line towards 0; by bisection where a step
    would leave the bounds found so far.
    """
    if p <= 0:
        return 0.0
    if p >= 1:
        return 1.0

    log_scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    low = 0.0
    high = 1.0
    x = a / (a + b)  # the mean of the distribution
    for _ in range(200):
        probability = beta_cdf(x, a, b)
        if probability < p:
            low = x
        else:
            high = x

        # The derivative of I by log x: x times the density.
        slope = math.exp(log_scale + a * math.log(x) + (b - 1) * math.log1p(-x))
        step = math.inf  # of log x
        if probability and slope:
            step = probability * math.log(p / probability) / slope
        if abs(step) < 1e-14:
            return x

        new = x * math.exp(step) if abs(step) < 1 else math.inf
        if not low < new < high:
            new = (low + high) / 2
        if new in (low, high):  # no number is left between them
            return new
        x = new
    return x


def t_two_sided(t: float, df: float) -> float:
    """Return the probability that Student's t is at least |t| away from 0; df > 0."""
    whole = df + t * t
    if math.isinf(whole):
        return 0.0
    # I_x(df / 2, 1 / 2) at x = df / (df + t^2)
    return _beta_cdf(df / whole, t * t / whole, df / 2, 0.5)


@lru_cache(maxsize=1024)
def t_quantile(p: float, df: float) -> float:
    """Return the quantile of Student's t at p.

    Newton's method from the expansion of Cornish and Fisher (Abramowitz & Stegun 26.7.5); by
    bisection for few degrees of freedom, where that may start beyond the root.
    """
    if p == 0.5:
        return 0.0
    tail = min(p, 1 - p)
    t = _t_by_newton(tail, df) if df > 2 else _t_by_bisection(2 * tail, df)
    # Student's t is symmetric around 0.
    return math.copysign(t, p - 0.5)


def _t_by_newton(tail: float, df: float) -> float:
    """Return t > 0 with this probability beyond it."""
    z = -NormalDist().inv_cdf(tail)
    first_order = (z**3 + z) / (4 * df)
    second_order = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    t = z + first_order + second_order
    for _ in range(30):
        whole = df + t * t
        front = _beta_front(df / whole, t * t / whole, df / 2, 0.5)
        density = front / t  # of Student's t
        excess = t_two_sided(t, df) / 2 - tail
        step = excess / density
        t += step
        if abs(step) < 1e-9 * t:  # each step squares the error
            break
    return t


def _t_by_bisection(tails: float, df: float) -> float:
    """Return t > 0 with this probability beyond t and beyond -t together."""
    # Solved for df / (df + t^2) or for its complement t^2 / (df + t^2), whichever is the smaller:
    # near 1 either would lose digits.
    x = beta_quantile(tails, df / 2, 0.5)
    if x < 0.5:
        return math.sqrt(df * (1 - x) / x)
    y = beta_quantile(1 - tails, 0.5, df / 2)
    return math.sqrt(df * y / (1 - y))


Test = TypeVar("Test")


def holm(p_values: Mapping[Test, float | None]) -> dict[Test, float | None]:
    """Return the p values adjusted for their number (Holm 1979, Scand. J. Statistics 6:65).

    None stays None and is not counted as a test.
    """
    defined = [(test, p) for test, p in p_values.items() if p is not None]
    defined.sort(key=itemgetter(1))
    adjusted = dict[Test, float | None](p_values)
    tests_left = len(defined)
    largest = 0.0  # an adjusted p is never below that of a test with a smaller p
    for test, p in defined:
        largest = max(largest, min(1.0, tests_left * p))
        adjusted[test] = largest
        tests_left -= 1
    return adjusted


def holm_adjusted(differences: Mapping[Test, Difference]) -> dict[Test, Difference]:
    """Return the differences with Holm's p over all of them."""
    adjusted = holm({test: difference.p_value for test, difference in differences.items()})
    return {
        test: replace(difference, p_adjusted=adjusted[test])
        for test, difference in differences.items()
    }
