"""Rates over samples, with standard errors and intervals.

Sources: Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640 (stderr, clusters); Wilson 1927
(`estimates.wilson`); Kish 1965, "Survey Sampling" (design effect, effective sample size).

A micro rate is the macro rate of one category, so both are computed by the same lines. Sums go
through `math.fsum`, which rounds once: no result depends on the order of its input.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aegish_dist.core.estimates import Estimate, wilson


@dataclass(frozen=True, slots=True)
class Observation:
    """Samples that agree in everything a rate can see."""

    category: str | None
    """None: in no category, and so in no macro average."""
    cluster: str | None
    """None: each of the samples is a cluster of its own."""
    value: float
    """Mean over the epochs of each such sample, in [0, 1]."""
    samples: int
    """How many samples, at least 1."""
    weight: int = 1
    """Weight of each sample: 1, or its epochs where every verdict is to count alike."""


def rate(observations: Iterable[Observation]) -> Estimate:
    """Estimate the mean over samples (micro average).

    With p the mean of the n values y: `stderr = sqrt(sum (y - p)^2 / (n (n - 1)))`, which for
    binary y is `sqrt(p (1 - p) / (n - 1))`. Over G clusters
    `stderr_clustered = sqrt(G / (G - 1) sum_g (sum_{i in g} (y_i - p))^2) / n` (Miller 2024, with
    the usual factor for few clusters). Unequal weights make p a ratio of sums and weigh every
    residual (Cochran 1977, "Sampling Techniques", ch. 6).

    The interval is Wilson's with n / max(deff, 1) samples. The design effect deff sets the
    clustered variance against the binomial one, p (1 - p) / (n - 1). With one epoch that is
    `stderr_clustered^2 / stderr^2`. Averages of epochs vary less than binary values: set against
    their own small stderr, a harmless correlation would blow the interval up.

    Returns:
        The estimate; value and interval are None without samples, stderr with fewer than two
        samples, stderr_clustered with fewer than two clusters.
    """
    samples = list(observations)
    return _mean_of([_Stratum.of(samples)] if samples else [])


def macro_rate(observations: Iterable[Observation]) -> Estimate:
    """Estimate the mean of the rates of the categories that have samples (macro average).

    With K categories, `stderr = sqrt(sum_k stderr_k^2) / K`, None if a category has one sample
    only. Clusters span categories: `u_g = sum_{i in g} (y_i - p_k(i)) / (K n_k(i))` and
    `stderr_clustered = sqrt(G / (G - 1) sum_g u_g^2)`. The interval is Wilson's as in `rate`, with
    n = K^2 / sum_k (1 / n_k), the sample size that gives the macro average of equal rates its
    variance. In simulations of 8 categories and 60 to 230 clusters it covered the truth in 94 to
    97 % of runs where the answers about a binary are independent; where they are alike, with few
    clusters, in as few as 79 %. MOVER over the categories' Wilson intervals was wider, and yet went
    down to 89 % in the first case: their shifts towards 1/2 do not add in quadrature.

    Returns:
        The estimate; undefined parts as in `rate`. Samples without a category are left out.
    """
    by_category: defaultdict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        if observation.category is not None:
            by_category[observation.category].append(observation)
    return _mean_of([_Stratum.of(samples) for samples in by_category.values()])


@dataclass(frozen=True, slots=True)
class _Residual:
    """The contribution of each of some samples to the mean of its stratum, less its share."""

    cluster: str | None
    value: float
    samples: int


@dataclass(frozen=True, slots=True)
class _Stratum:
    """Samples whose mean enters an estimate with the same weight as other strata."""

    n: int
    mean: float
    residuals: tuple[_Residual, ...]

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> "_Stratum":
        total = sum(seen.samples * seen.weight for seen in observations)
        mean = math.fsum(seen.samples * seen.weight * seen.value for seen in observations) / total
        residuals = (
            _Residual(seen.cluster, seen.weight * (seen.value - mean) / total, seen.samples)
            for seen in observations
        )
        return cls(sum(seen.samples for seen in observations), mean, tuple(residuals))

    def variance(self) -> float | None:
        """Squared standard error of the mean."""
        squares = math.fsum(part.samples * part.value**2 for part in self.residuals)
        return _unbiased(squares, self.n)


def _mean_of(strata: Sequence[_Stratum]) -> Estimate:
    """Estimate the unweighted mean of the strata's means."""
    if not strata:
        return Estimate(clusters=0)
    k = len(strata)
    n = sum(stratum.n for stratum in strata)
    value = math.fsum(stratum.mean for stratum in strata) / k
    squares = _cluster_squares(strata)
    clustered = _unbiased(math.fsum(squares.per_cluster) / k**2, squares.clusters)
    interval = wilson(value, _effective_n(strata, value, clustered))
    return Estimate(
        value=value,
        stderr=_stratified_stderr(strata),
        stderr_clustered=None if clustered is None else math.sqrt(clustered),
        ci_low=interval.low,
        ci_high=interval.high,
        n=n,
        clusters=squares.clusters,
    )


@dataclass(frozen=True, slots=True)
class _ClusterSquares:
    """Squared sums of residuals; clusters of a single sample may share an entry."""

    per_cluster: tuple[float, ...]
    clusters: int


def _cluster_squares(strata: Sequence[_Stratum]) -> _ClusterSquares:
    residuals = [part for stratum in strata for part in stratum.residuals]
    named: defaultdict[str, list[float]] = defaultdict(list)
    alone = [part for part in residuals if part.cluster is None]
    for part in residuals:
        if part.cluster is not None:
            named[part.cluster].append(part.samples * part.value)
    squares = [part.samples * part.value**2 for part in alone]
    squares += [math.fsum(parts) ** 2 for parts in named.values()]
    return _ClusterSquares(tuple(squares), len(named) + sum(part.samples for part in alone))


def _effective_n(strata: Sequence[_Stratum], value: float, clustered: float | None) -> float:
    """Independent binary samples that would tell as much about the mean of the strata."""
    n = len(strata) ** 2 / math.fsum(1 / stratum.n for stratum in strata)
    spread = value * (1 - value)
    if clustered is None or spread == 0:
        return n
    return n / max(clustered * (n - 1) / spread, 1.0)


def _stratified_stderr(strata: Sequence[_Stratum]) -> float | None:
    variances = [variance for stratum in strata if (variance := stratum.variance()) is not None]
    if len(variances) < len(strata):
        return None
    return math.sqrt(math.fsum(variances)) / len(strata)


def _unbiased(squares: float, units: int) -> float | None:
    """Correct a sum of squared residuals for the mean they were taken from."""
    return None if units < 2 else squares * units / (units - 1)
