"""Cluster-robust variance of a sum of means, and the test of a paired difference; McNemar.

Clusters, not samples, are independent. The test was chosen by simulation:
docs/explanation/differences.md has the tables. Arrays have a row for each estimate: hundreds of
pairs are compared at once. Sums of fractions are `fsum`, and logarithms and powers are those of
`math`, so they depend on no processor.
"""

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from msgspec import Struct

from aegish_dist.core.columns import Bools, Floats, Ints
from aegish_dist.core.metric import LEVEL
from aegish_dist.statistics.distributions import (
    SETTLED,
    beta_cdf,
    beta_convergents,
    stirling_error,
    t_quantile,
)

_exp = np.vectorize(math.exp, otypes=[float])
_log = np.vectorize(math.log, otypes=[float])
_stirling_errors = np.vectorize(stirling_error, otypes=[float])


def _beta_fractions(x: Floats, a: Floats, b: Floats) -> Floats:
    """Return `_beta_fraction` of each."""
    fractions = np.zeros_like(x)
    unsettled = np.ones(len(x), bool)
    for convergents, gaps in beta_convergents(x, a, b):
        fractions[unsettled] = convergents[unsettled]
        unsettled &= np.abs(gaps) >= SETTLED
        if not unsettled.any():
            break
    return fractions


def t_two_sided_each(t: Floats, df: Floats, errors: Floats) -> Floats:
    """Return `t_two_sided` of each t.

    Args:
        errors: The `beta_errors` of `df`, which take long and are needed several times.
    """
    # Beyond these bounds the square of t is no number any more; the tails are 1 and 0 there.
    return _tails(np.clip(np.abs(t), 1e-150, 1e150), df, errors)[0]


def beta_errors(df: Floats) -> Floats:
    """Return the errors of Stirling's formula in B(df / 2, 1 / 2)."""
    errors: Floats = _stirling_errors((df + 1) / 2) - _stirling_errors(df / 2)
    return errors - stirling_error(0.5)


def _tails(t: Floats, df: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Return the probability of both tails, and the front of its beta function.

    Args:
        errors: The `beta_errors` of `df`.
    """
    # I_x(a, b) with a = df / 2 and b = 1 / 2, or beyond (a + 1) / (a + b + 2) mirrored, as in
    # `_beta_cdf`.
    whole = df + t * t
    x = df / whole
    y = t * t / whole
    mirrored = x > (df / 2 + 1) / (df / 2 + 2.5)
    half = np.full_like(df, 0.5)
    p = np.where(mirrored, y, x)
    a, b = np.where(mirrored, (half, df / 2), (df / 2, half))

    front = _t_front(x, y, df, errors)
    tail = front * _beta_fractions(p, a, b) / a
    return np.where(mirrored, 1 - tail, tail), front


def _t_front(x: Floats, y: Floats, df: Floats, errors: Floats) -> Floats:
    """Return `_beta_front` of x and y with the parameters df / 2 and 1 / 2."""
    n = (df + 1) / 2  # the sum of the parameters
    exponent = errors - _deviances(df / 2, n * x) - _deviances(np.full_like(df, 0.5), n * y)
    front: Floats = np.sqrt(df / (8 * math.pi * n)) * _exp(exponent)
    return front


def _deviances(a: Floats, mean: Floats) -> Floats:
    """Return `_deviance` of each."""
    gap = a - mean
    v = gap / (a + mean)
    far = np.abs(v) >= 0.1
    deviances: Floats = a * _log(a / mean) - gap

    # The series of `_deviance`, until no term changes anything.
    v = v[~far]
    total = gap[~far] * v
    term = 2 * a[~far] * v
    power = 1
    last = total + np.nan
    while (last != total).any():
        power += 2
        last = total
        term = term * v * v
        total = last + term / power
    deviances[~far] = total
    return deviances


def t_quantile_each(p: float, df: Floats, errors: Floats) -> Floats:
    """Return `t_quantile` at p > 0.5 for each number of degrees of freedom.

    Args:
        errors: The `beta_errors` of `df`.
    """
    # One by one where Newton's method may start beyond the root; the others follow below.
    quantiles = np.array([t_quantile(p, each) if each <= 2 else 0.0 for each in df.tolist()])
    large = df > 2
    if large.any():
        quantiles[large] = _t_each_by_newton(1 - p, df[large], errors[large])
    return quantiles


def _t_each_by_newton(tail: float, df: Floats, errors: Floats) -> Floats:
    """Return `_t_by_newton` of each."""
    z = -NormalDist().inv_cdf(tail)
    t = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    moving = np.ones(len(df), bool)
    for _ in range(30):
        both_tails, front = _tails(t[moving], df[moving], errors[moving])
        step = (both_tails / 2 - tail) * t[moving] / front  # the density is front / t
        t[moving] += step
        moving[moving] = np.abs(step) >= 1e-9 * t[moving]
        if not moving.any():
            break
    return t


def fsum_rows(values: Floats) -> Floats:
    """Return the sum of each row, rounded once.

    Values are cut into parts that add up without rounding in any order, as for the reproducible
    sums of Demmel & Nguyen 2013, ARITH 21:163. Only the sums of these parts are added one by one.
    """
    sums_of_parts = [[0.0] * len(values)]
    rest = values
    while rest.any():
        most = np.abs(rest).sum(axis=1).max()
        if not 1e-250 < most < 1e250:  # NaN, or too large or too small to be cut
            return np.array([math.fsum(row.tolist()) for row in values])
        # Multiples of this power of 2 have sums within the 53 bits of a number.
        unit = np.ldexp(1.0, np.frexp(most)[1] - 52)
        part = np.rint(rest / unit) * unit
        sums_of_parts.append(part.sum(axis=1).tolist())
        rest = rest - part
    return np.array([math.fsum(sums) for sums in zip(*sums_of_parts, strict=True)])


def sums_by_place(place: Ints, parts: Floats) -> Floats:
    """Add up the parts of each place, the smallest first, in whatever order they come."""
    adds = np.flatnonzero(parts)  # most samples of a large run add nothing
    order = adds[np.lexsort((parts[adds], place[adds]))]
    places = place.max(initial=-1) + 1
    return np.bincount(place[order], weights=parts[order], minlength=places).astype(float)


def or_none(value: float) -> float | None:
    """Return a number of an array; None for NaN, which stands for undefined there."""
    return None if math.isnan(value) else float(value)


def numbers_or_none(column: Floats | Ints) -> list[Any]:
    """Return the numbers of an array; None for NaN."""
    numbers: list[Any] = np.where(np.isnan(column), None, column).tolist()  # type: ignore[call-overload]
    return numbers


class ClusterSums(Struct, frozen=True, eq=False, dict=True):
    """One stratum of several estimates. Its mean is one term of each.

    Arrays have a row for each estimate and a column for each cluster; those of an estimate without
    samples of a cluster are 0 there.
    """

    cluster: Ints  # by column; the same number in all strata, no two equal
    samples: Ints
    totals: Floats  # sums of the values, times the weight of the stratum
    weight: Floats  # by row, of the mean in the estimate

    @cached_property
    def n(self) -> Ints:
        """Samples by row, at least 1, so that one may divide by it."""
        samples: Ints = self.samples.sum(axis=1)
        return np.maximum(1, samples)

    @cached_property
    def clusters(self) -> Ints:
        clusters: Ints = (self.samples > 0).sum(axis=1, dtype=np.int64)
        return clusters

    @cached_property
    def mean(self) -> Floats:
        return fsum_rows(self.totals) / self.n

    @cached_property
    def joint_size(self) -> Floats:
        """Samples of a cluster that differ together: sum d^2 / sum |d|; 1 if no sample differs."""
        size = fsum_rows(np.abs(self.totals))
        squares = fsum_rows(self.totals**2)
        differs = size > 0
        weight = np.where(differs, self.weight, 1.0)
        return np.where(differs, squares / np.where(differs, size * weight, 1.0), 1.0)


def clusters_of_any(strata: Sequence[tuple[Ints, Bools]]) -> Ints:
    """Count by row the clusters that are marked in any stratum."""
    # Rows x clusters of all strata, in which each stratum marks its own.
    cluster = np.unique(np.concatenate([numbers for numbers, _ in strata]))
    marked = np.zeros((len(strata[0][1]), len(cluster)), bool)
    for numbers, marks in strata:
        marked[:, np.searchsorted(cluster, numbers)] |= marks
    clusters: Ints = marked.sum(axis=1)
    return clusters


class ClusteredVariance(Struct, frozen=True, eq=False):
    """Variance of estimates, only clusters taken as independent; NaN where it is undefined."""

    sandwich: Floats
    """`G / (G - 1) sum_g u_g^2`, with u_g the sum of a cluster's residuals over n (CR1 of a mean;
    Miller 2024, arXiv 2411.00640)."""
    reduced: Floats
    """Without the bias of few or unequal clusters: CR2 of Bell & McCaffrey 2002, Survey Methodology
    28:169."""
    third: Floats  # sum of the cubes of the terms whose squares `reduced` adds up
    df: Floats
    clusters: Ints

    @property
    def defined(self) -> Bools:
        return ~np.isnan(self.sandwich)


def clustered_variance(strata: Sequence[ClusterSums]) -> ClusteredVariance:
    """Return the variance of the sum over strata of their weighted means.

    CR2 multiplies the residuals of a cluster by (I - H_gg)^(-1/2). Samples are regressed on one
    indicator per stratum, so H_gg holds a block 1/N_k for each stratum k, and a cluster's residual
    sum is multiplied by a_gk = 1 / sqrt(1 - n_gk / N_k), stratum by stratum, before the strata are
    added up: `sum_g (sum_k a_gk r_gk / N_k)^2`. The degrees of freedom are (tr W)^2 / tr W^2 with
    W_gh = p_g . p_h under independent samples of equal variance (Pustejovsky & Tipton 2018, JBES
    36:672): with w_k the weight and x_gk = a_gk n_gk / N_k,
    `W_gg = sum_k w_k^2 n_gk / N_k^2` and `W_gh = -sum_k w_k^2 x_gk x_hk / N_k`. G equal clusters of
    a single stratum have G - 1.

    Undefined where a stratum has fewer than two clusters.
    """
    # Rows x clusters of all strata: the terms of the sandwich, and those of CR2.
    cluster = np.unique(np.concatenate([stratum.cluster for stratum in strata]))
    shape = (len(strata[0].weight), len(cluster))
    raw = np.zeros(shape)
    mended = np.zeros(shape)
    has_samples = np.zeros(shape, bool)
    for stratum in strata:
        columns = np.searchsorted(cluster, stratum.cluster)
        n = stratum.n[:, None]
        residual = (stratum.totals - stratum.samples * stratum.mean[:, None]) / n
        # 1 - n_gk / N_k; a stratum of a single cluster is undefined, and must not divide by 0.
        left = np.where(stratum.samples < n, 1 - stratum.samples / n, 1.0)
        raw[:, columns] += residual
        mended[:, columns] += residual / np.sqrt(left)
        has_samples[:, columns] |= stratum.samples > 0

    clusters = np.count_nonzero(has_samples, axis=1)
    undefined = np.any([stratum.clusters < 2 for stratum in strata], axis=0)
    correction = clusters / np.maximum(1, clusters - 1)
    return ClusteredVariance(
        sandwich=np.where(undefined, np.nan, fsum_rows(raw**2) * correction),
        reduced=fsum_rows(mended**2),
        third=fsum_rows(mended * mended * mended),
        df=_degrees_of_freedom(strata, cluster, undefined),
        clusters=clusters,
    )


def _degrees_of_freedom(strata: Sequence[ClusterSums], cluster: Ints, undefined: Bools) -> Floats:
    """Return the degrees of freedom by row; 1 where the variance is undefined."""
    columns = [np.searchsorted(cluster, stratum.cluster) for stratum in strata]
    # Pairs of a comparison often have clusters of the same sizes, and so the same result.
    df_of_sizes: dict[bytes, float] = {}
    df = np.ones(len(undefined))
    sizes = np.hstack([np.column_stack([stratum.samples, stratum.weight]) for stratum in strata])
    for row in np.flatnonzero(~undefined).tolist():
        key = sizes[row].tobytes()
        if key not in df_of_sizes:
            samples_of_cluster = np.zeros((len(strata), len(cluster)))
            for place, stratum in enumerate(strata):
                samples_of_cluster[place, columns[place]] = stratum.samples[row]
            weights = np.array([stratum.weight[row] for stratum in strata])
            df_of_sizes[key] = _satterthwaite(samples_of_cluster, weights)
        df[row] = df_of_sizes[key]
    return df


def _satterthwaite(samples: Floats, weights: Floats) -> float:
    """Return the degrees of freedom from the samples of clusters (columns) in strata (rows)."""
    weight = weights[:, None]
    n = samples.sum(axis=1, keepdims=True)
    shares = samples / n
    diagonal = (weight**2 * shares / n).sum(axis=0)  # W_gg
    trace = math.fsum(diagonal)
    if not trace:  # both rates of a product are 0, so nothing varies to first order
        return float(np.count_nonzero(shares.any(axis=0)) - 1)

    x = weight * shares / np.sqrt((1 - shares) * n)  # x_gk, times w_k / sqrt(N_k)
    # sum over g != h of W_gh^2 = sum over k, l of (sum_g x_gk x_gl)^2 - sum_g (x_gk x_gl)^2
    products = x[:, None] * x[None]
    off = math.fsum(math.fsum(of_two) ** 2 for row in products for of_two in row)
    own = math.fsum((products**2).ravel())
    return trace**2 / (math.fsum(diagonal**2) + off - own)


@lru_cache(maxsize=4096)
def mcnemar(a_only: int, b_only: int) -> float:
    """Return the exact two-sided p of McNemar's test, from the discordant samples."""
    fewer = min(a_only, b_only)
    n = a_only + b_only
    at_most_so_few = beta_cdf(0.5, n - fewer, fewer + 1) if n else 1.0  # of n fair coins
    return min(1.0, 2 * at_most_so_few)


_POWER = 0.8
_MOST_DF = 1e6  # from here on Student's t equals the normal to six digits


class PairedTest(Struct, frozen=True, eq=False):
    """Arrays by pair; NaN where the variance is undefined."""

    stderr_clustered: Floats
    ci_low: Floats
    ci_high: Floats
    p_value: Floats
    mde: Floats  # the difference that is found with a power of 80 %


def paired_test(
    difference: Floats,
    strata: Sequence[ClusterSums],
    variance: ClusteredVariance,
    discordant: Ints,
    added: Floats | None = None,
) -> PairedTest:
    """Test differences whose terms are the means of strata.

    Interval and p are both from `T(x) = (difference - x) / sqrt(V(x))`.

    `V(x) = V + max(0, S (x - difference) / V)`. V is the clustered variance without bias, plus
    two halves of a pseudo-sample per label: only the candidate has one right, only the baseline the
    other (the Wald+2 interval of Agresti & Min 2005, Statistics in Medicine 24:729). Without them a
    run without discordant samples would have no uncertainty. S is the sum of the cubes of the same
    terms, with the pseudo-sample on the side of x alone, because the variance of a rate grows with
    its distance from 0 (Johnson 1978, JASA 73:536). T is taken for Student's t; pseudo-samples add
    degrees of freedom.

    With K `discordant` clusters, a test that exchanges the sides within clusters has no p below
    2^(1 - K). This p has the same bound: five samples in favour of one side are no difference.
    `added` is variance of the difference that the samples do not show.
    """
    # A pseudo-sample's values lie 1 apart unless epochs were averaged. With `joint_size` instead of
    # its root, one in fifteen candidates that were worse by the margin shipped.
    added = np.zeros_like(difference) if added is None else added
    sizes = np.stack(
        [each.weight * np.minimum(1.0, np.sqrt(each.joint_size)) / each.n for each in strata]
    )
    # Each half of a pseudo-sample adds half a square, and that on the side of x half a cube.
    squares = variance.reduced + (sizes**2).sum(axis=0)
    cubes = (sizes * sizes * sizes).sum(axis=0) / 2

    # The degrees of freedom grow by the square of what the variance grows by.
    reduced = np.where(variance.reduced > 0, variance.reduced, np.inf)
    inflated = variance.df * (squares / reduced) ** 2
    df = np.where(variance.reduced > 0, np.minimum(_MOST_DF, inflated), _MOST_DF)

    squares = squares + added
    squares = np.where(variance.defined, squares, 1.0)
    errors = beta_errors(df)
    t = t_quantile_each(1 - LEVEL / 2, df, errors)
    slope_down = np.maximum(0.0, cubes - variance.third) / squares
    slope_up = np.maximum(0.0, cubes + variance.third) / squares
    low = np.maximum(-1.0, difference - _reach(t, squares, slope_down))
    high = np.minimum(1.0, difference + _reach(t, squares, slope_up))

    # T at 0, which lies below a positive difference and above a negative one.
    slope = np.where(difference > 0, slope_down, slope_up)
    at_0 = squares + slope * np.abs(difference)
    p = t_two_sided_each(difference / np.sqrt(at_0), df, errors)

    # Exchanging the sides of few clusters cannot give a small p: then the interval holds 0.
    least = np.where(discordant > 0, np.ldexp(1.0, 1 - discordant), 1.0)
    too_few = least >= LEVEL
    quantiles = t + t_quantile_each(_POWER, df, errors)
    columns = (
        np.sqrt(variance.sandwich + added),
        np.where(too_few, np.minimum(low, 0.0), low),
        np.where(too_few, np.maximum(high, 0.0), high),
        np.maximum(p, least),
        _detectable(quantiles, squares, np.abs(difference), strata),
    )
    return PairedTest(*(np.where(variance.defined, column, np.nan) for column in columns))


def _detectable(
    quantiles: Floats, squares: Floats, difference: Floats, strata: Sequence[ClusterSums]
) -> Floats:
    """Solve `x = quantiles sqrt(V(x))`, with V(x) the variance of a run whose true difference is x.

    A larger difference needs further discordant samples. If V ignored them, runs would find
    differences of this size in only 62 to 78 % of cases.
    """
    # Where no further discordant samples are needed, V is that of the run.
    without_more = quantiles * np.sqrt(squares)
    slopes = [each.weight**2 * each.joint_size / each.n for each in strata]
    slope = np.stack(slopes).sum(axis=0)
    left = np.maximum(0.0, squares - slope * difference)
    reached = np.maximum(difference, _reach(quantiles, left, slope))
    return np.where(without_more <= difference, without_more, reached)


def _reach(t: Floats, squares: Floats, slope: Floats) -> Floats:
    """Solve x = t sqrt(squares + slope x), a quadratic equation with one root above 0."""
    half = t * t * slope / 2
    return half + np.sqrt(half * half + t * t * squares)
