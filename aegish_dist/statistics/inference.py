"""Cluster-robust variance of a sum of means, and the test of a paired difference; McNemar, Holm.

Clusters, not samples, are independent. The test was chosen by simulation:
docs/explanation/differences.md has the tables.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.metric import LEVEL, Difference
from aegish_dist.statistics.distributions import beta_cdf, t_quantile, t_two_sided

Test = TypeVar("Test")


class ClusterSum(NamedTuple):
    """Samples of one cluster in one stratum, or of several such clusters with equal sums."""

    cluster: str | None  # same name in all strata; None: in this stratum alone
    samples: int
    total: float  # sum of their values, times the weight of the stratum
    clusters: int = 1  # how many unnamed clusters have these sums


class ClusterSums(Struct, frozen=True, dict=True):
    """A stratum by clusters. The mean of a stratum is one term of the estimate."""

    sums: tuple[ClusterSum, ...]  # in any order; each name at most once
    weight: float = 1.0  # of the mean in the estimate; each `total` includes it

    @cached_property
    def samples(self) -> int:
        return sum([each.samples * each.clusters for each in self.sums])

    @cached_property
    def clusters(self) -> int:
        return sum([each.clusters for each in self.sums])

    @cached_property
    def mean(self) -> float:
        return math.fsum([each.total * each.clusters for each in self.sums]) / self.samples

    @cached_property
    def joint_size(self) -> float:
        """Samples of a cluster that differ together: sum d^2 / sum |d|; 1 if no sample differs."""
        sums = [(abs(each.total) / self.weight, each.clusters) for each in self.sums]
        size = math.fsum([total * number for total, number in sums])
        squares = math.fsum([total * total * number for total, number in sums])
        return squares / size if size else 1.0


def sum_of_known(parts: Sequence[float | None]) -> float | None:
    """Return a sum; None if a part is undefined."""
    known = [part for part in parts if part is not None]
    return math.fsum(known) if len(known) == len(parts) else None


def count_clusters(numbers: Iterable[tuple[str | None, int]]) -> int:
    """Count clusters by name and number; a named one in several strata counts once."""
    names, unnamed = set(), 0
    for name, number in numbers:
        if name is None:
            unnamed += number
        else:
            names.add(name)
    return len(names) + unnamed


class ClusteredVariance(Struct, frozen=True):
    """Variance of an estimate, only clusters taken as independent."""

    sandwich: float
    """`G / (G - 1) sum_g u_g^2`, with u_g the sum of a cluster's residuals over n (CR1 of a mean;
    Miller 2024, arXiv 2411.00640)."""
    reduced: float
    """Without the bias of few or unequal clusters: CR2 of Bell & McCaffrey 2002, Survey Methodology
    28:169."""
    third: float  # sum of the cubes of the terms whose squares `reduced` adds up
    df: float
    clusters: int


def clustered_variance(strata: Sequence[ClusterSums]) -> ClusteredVariance | None:
    """Return the variance of the sum over strata of their weighted means.

    CR2 multiplies the residuals of a cluster by (I - H_gg)^(-1/2). Samples are regressed on one
    indicator per stratum, so H_gg holds a block 1/N_k for each stratum k, and a cluster's residual
    sum is multiplied by a_gk = 1 / sqrt(1 - n_gk / N_k), stratum by stratum, before the strata are
    added up: `sum_g (sum_k a_gk r_gk / N_k)^2`. The degrees of freedom are (tr W)^2 / tr W^2 with
    W_gh = p_g . p_h under independent samples of equal variance (Pustejovsky & Tipton 2018, JBES
    36:672): with w_k the weight and x_gk = a_gk n_gk / N_k,
    `W_gg = sum_k w_k^2 n_gk / N_k^2` and `W_gh = -sum_k w_k^2 x_gk x_hk / N_k`. G equal clusters of
    a single stratum have G - 1.

    Returns None if a stratum has fewer than two clusters.
    """
    if any(stratum.clusters < 2 for stratum in strata):
        return None
    units = _residuals(strata)
    clusters = sum([number for _, _, number in units])
    squares = math.fsum([number * raw * raw for raw, _, number in units])
    return ClusteredVariance(
        sandwich=squares * clusters / (clusters - 1),
        reduced=math.fsum([number * mended * mended for _, mended, number in units]),
        third=math.fsum([number * mended**3 for _, mended, number in units]),
        df=_degrees_of_freedom(tuple(_shape(stratum, len(strata) > 1) for stratum in strata)),
        clusters=clusters,
    )


_Unit = tuple[float, float, int]
"""Sum of residuals, that sum corrected as in CR2, how many clusters are alike."""


def _residuals(strata: Iterable[ClusterSums]) -> Collection[_Unit]:
    """Add up the residuals that a cluster has in the strata."""
    units: dict[str | int, _Unit] = {}
    for stratum in strata:
        n, mean = stratum.samples, stratum.mean
        for cluster, samples, total, number in stratum.sums:
            residual = (total - samples * mean) / n
            factor = 1 / math.sqrt(1 - samples / n)
            key = len(units) if cluster is None else cluster  # unnamed clusters stay apart
            raw, mended, _ = units.get(key, (0.0, 0.0, number))
            units[key] = (raw + residual, mended + residual * factor, number)
    return units.values()


_Shape = tuple[float, tuple[tuple[str | None, int, int], ...]]
"""Weight, and by cluster: name, samples, how many are alike. Pairs of a comparison often share
one."""


def _shape(stratum: ClusterSums, named: bool) -> _Shape:
    """Return the shape of a stratum; names are dropped if it is the only one."""
    if named:
        clusters = tuple((cluster, samples, number) for cluster, samples, _, number in stratum.sums)
        return stratum.weight, clusters
    sizes: Counter[int] = Counter()
    for _, samples, _, number in stratum.sums:
        sizes[samples] += number
    return stratum.weight, tuple((None, size, number) for size, number in sorted(sizes.items()))


class _Leverage(NamedTuple):
    stratum: int
    diagonal: float  # w_k^2 n_gk / N_k^2
    x: float  # `w_k a_gk n_gk / (N_k sqrt(N_k)) ^ (1/2)`: its products are W off the diagonal
    clusters: int


@lru_cache(maxsize=64)
def _degrees_of_freedom(strata: tuple[_Shape, ...]) -> float:
    groups = _leverages(strata)
    traces = [(sum(part.diagonal for part in group), group[0].clusters) for group in groups]
    trace = math.fsum(diagonal * number for diagonal, number in traces)
    if not trace:  # both rates of a product are 0, so nothing varies to first order
        return float(sum(number for _, number in traces) - 1)
    on = math.fsum(diagonal**2 * number for diagonal, number in traces)
    # sum over g != h of W_gh^2 = sum over k, l of (sum_g x_gk x_gl)^2 - sum_g (x_gk x_gl)^2
    products: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    own: list[float] = []
    for group in groups:
        for left in group:
            for right in group:
                product = left.x * right.x
                products[left.stratum, right.stratum].append(left.clusters * product)
                own.append(left.clusters * product**2)
    off = math.fsum(math.fsum(each) ** 2 for each in products.values()) - math.fsum(own)
    return trace**2 / (on + off)


def _leverages(strata: Iterable[_Shape]) -> list[list[_Leverage]]:
    groups: defaultdict[str | int, list[_Leverage]] = defaultdict(list)
    for stratum, (weight, clusters) in enumerate(strata):
        n = sum(samples * number for _, samples, number in clusters)
        for cluster, samples, number in clusters:
            share = samples / n
            diagonal = weight**2 * share / n
            x = weight * share / math.sqrt((1 - share) * n)
            key = len(groups) if cluster is None else cluster  # unnamed clusters stay apart
            groups[key].append(_Leverage(stratum, diagonal, x, number))
    return list(groups.values())


def mcnemar(a_only: int, b_only: int) -> float:
    """Return the exact two-sided p of McNemar's test, from the discordant samples."""
    fewer, n = min(a_only, b_only), a_only + b_only
    at_most_so_few = beta_cdf(0.5, n - fewer, fewer + 1) if n else 1.0  # of n fair coins
    return min(1.0, 2 * at_most_so_few)


def holm(p_values: Mapping[Test, float | None]) -> dict[Test, float | None]:
    """Return the p values adjusted for their number (Holm 1979, Scand. J. Statistics 6:65).

    None stays None and is not counted as a test.
    """
    known = [(test, p) for test, p in p_values.items() if p is not None]
    known.sort(key=itemgetter(1))
    adjusted = dict[Test, float | None](p_values)
    largest = 0.0
    for rank, (test, p) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[test] = largest
    return adjusted


_POWER = 0.8
_MOST_DF = 1e6  # from here on Student's t equals the normal to six digits


def paired_test(
    found: Difference,
    strata: Sequence[ClusterSums],
    variance: ClusteredVariance,
    discordant: int,
    added: float = 0.0,
) -> Difference:
    """Return a known difference with its clustered stderr, interval, p and `mde`.

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
    difference = found.difference or 0.0
    sizes = [
        stratum.weight * min(1.0, math.sqrt(stratum.joint_size)) / stratum.samples
        for stratum in strata
    ]
    squares = variance.reduced + math.fsum(size**2 for size in sizes)
    cubes = math.fsum(size**3 for size in sizes) / 2
    df = _MOST_DF
    if variance.reduced > 0:
        df = min(df, variance.df * (squares / variance.reduced) ** 2)
    squares += added
    t = t_quantile(1 - LEVEL / 2, df)
    slope_down = max(0.0, cubes - variance.third) / squares
    slope_up = max(0.0, cubes + variance.third) / squares
    low = max(-1.0, difference - _reach(t, squares, slope_down))
    high = min(1.0, difference + _reach(t, squares, slope_up))
    slope = slope_down if difference > 0 else slope_up
    p = t_two_sided(difference / math.sqrt(squares + slope * abs(difference)), df)
    least = 2.0 ** (1 - discordant) if discordant else 1.0
    if least >= LEVEL:
        low, high = min(low, 0.0), max(high, 0.0)
    return replace(
        found,
        stderr_clustered=math.sqrt(variance.sandwich + added),
        ci_low=low,
        ci_high=high,
        p_value=max(p, least),
        clusters=variance.clusters,
        mde=_detectable(t + t_quantile(_POWER, df), squares, abs(difference), strata),
    )


def _detectable(
    quantiles: float, squares: float, difference: float, strata: Sequence[ClusterSums]
) -> float:
    """Solve `x = quantiles sqrt(V(x))`, with V(x) the variance of a run whose true difference is x.

    A larger difference needs further discordant samples. If V ignored them, runs would find
    differences of this size in only 62 to 78 % of cases.
    """
    found = quantiles * math.sqrt(squares)
    if found <= difference:
        return found
    slope = math.fsum(each.weight**2 * each.joint_size / each.samples for each in strata)
    return max(difference, _reach(quantiles, max(0.0, squares - slope * difference), slope))


def _reach(t: float, squares: float, slope: float) -> float:
    """Solve x = t sqrt(squares + slope x)."""
    half = t * t * slope / 2
    return half + math.sqrt(half * half + t * t * squares)
