"""A mean over samples that come in clusters, its standard error and its interval.

A mean is the unweighted mean of the means of strata: one stratum for a micro average, one for each
category for a macro average. Sums go through `math.fsum`, so no result depends on the order of
input. Sources: Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640 (stderr, clusters); Korn
& Graubard 1998, Survey Methodology 24:193 (intervals of proportions by an effective sample size).
`docs/explanation/statistics.md` has every formula, and how often the intervals cover the truth.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from aegish_dist.core.columns import AskedSamples, Ints, alike
from aegish_dist.core.metric import Estimate
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics.distributions import t_quantile
from aegish_dist.statistics.rates import (
    Dependence,
    Interval,
    combine,
    mean_interval,
    proportion_interval,
)

PSEUDO_SAMPLES = 2.0  # samples that the assumption about the variance of a mean counts as

ASSUMED_ICC = 0.3  # the assumed correlation of two samples of a cluster


class Observation(Struct, frozen=True):
    """Samples that no rate can tell apart."""

    category: str | None  # None: in no macro average
    cluster: str | None  # None: each of the samples is a cluster of its own
    value: float  # mean over the epochs of each such sample, in [0, 1]
    samples: int
    weight: int = 1  # of each sample: 1, or its epochs where every verdict counts alike


def observed(
    samples: AskedSamples, right: Ints, epochs: Ints, *, by_epoch: bool = False
) -> list[Observation]:
    """Return samples with the share of their epochs that is right; those without any are left out.

    Args:
        by_epoch: Whether a sample weighs as much as its epochs; else all weigh alike.
    """
    # A sample without a cluster has a number beyond those of the names: all of them become None.
    names: list[str | None] = [*samples.cluster_names, None]
    cluster = np.minimum(samples.cluster, len(names) - 1)
    known = np.flatnonzero(epochs > 0)

    # Samples that agree in all three become one observation.
    one_of_each, numbers = alike(cluster[known], right[known], epochs[known])
    kinds = [column[known[one_of_each]].tolist() for column in (cluster, right, epochs)]
    observations = []
    for kind, number in zip(zip(*kinds, strict=True), numbers.tolist(), strict=True):
        place, hits, n = kind
        weight = n if by_epoch else 1
        observations.append(Observation(None, names[place], hits / n, number, weight))
    return observations


def sum_of_known(parts: Sequence[float | None]) -> float | None:
    """Return a sum; None if a part is undefined."""
    defined = [part for part in parts if part is not None]
    return math.fsum(defined) if len(defined) == len(parts) else None


def count_clusters(numbers: Iterable[tuple[str | None, int]]) -> int:
    """Count clusters by name and number; a named one in several strata counts once."""
    names = set()
    unnamed = 0
    for name, number in numbers:
        if name is None:
            unnamed += number
        else:
            names.add(name)
    return len(names) + unnamed


def with_assumption(variance: float, n: float, cluster: float) -> float:
    """Add to the variance of a mean of n samples what is assumed about it.

    Args:
        cluster: Size of the cluster of a mean sample.
    """
    design_effect = 1 + ASSUMED_ICC * (cluster - 1)
    return variance + PSEUDO_SAMPLES * design_effect / n**2


def effective_samples(value: float, n: float, variance: float) -> float:
    """Return how many independent binary samples tell as much, at least 1; see `SampledMean`."""
    return max(1.0, (value * (1 - value) + PSEUDO_SAMPLES / n) / variance)


class PerCluster(Struct, frozen=True):
    named: Mapping[str, float]
    squares_alone: float  # sum of squares over the unnamed clusters of one sample

    @property
    def squares(self) -> float:
        return math.fsum([self.squares_alone, *(value * value for value in self.named.values())])

    def products(self, other: "PerCluster") -> float:
        """Return the sum of products over the clusters that both have."""
        both = self.named.keys() & other.named.keys()
        return math.fsum(self.named[name] * other.named[name] for name in both)


class _Part(NamedTuple):
    """Samples of one cluster that are alike, or all of one cluster in a stratum."""

    cluster: str | None
    share: float  # weight, in (0, 1]
    residual: float  # from the mean of the stratum
    number: int = 1  # how many parts are like this one


class _Stratum(Struct, frozen=True):
    """Samples whose mean has the same weight as the means of the other strata."""

    mean: float
    samples: int
    share: float
    by_sample: Sequence[_Part]
    by_cluster: Sequence[_Part]  # samples without a cluster are a cluster each

    @classmethod
    def of(cls, observations: Sequence[Observation], share: float) -> "_Stratum":
        """Return a stratum whose mean has this share in the mean of all strata."""
        weight = sum(seen.samples * seen.weight for seen in observations)
        total = math.fsum(seen.samples * seen.weight * seen.value for seen in observations)
        mean = total / weight

        by_sample = []
        for seen in observations:
            share_of_sample = share * seen.weight / weight
            residual = share_of_sample * (seen.value - mean)
            by_sample.append(_Part(seen.cluster, share_of_sample, residual, seen.samples))
        samples = sum(seen.samples for seen in observations)
        return cls(mean, samples, share, by_sample, _joined(by_sample))

    @property
    def variance(self) -> float | None:
        """Squared standard error of the stratum's part of the mean, for independent samples."""
        squares = math.fsum([part.number * part.residual**2 for part in self.by_sample])
        return unbiased(squares, self.samples)


def _joined(parts: Iterable[_Part]) -> list[_Part]:
    """Join the parts of each named cluster."""
    by_cluster: defaultdict[str | None, list[_Part]] = defaultdict(list)
    for part in parts:
        by_cluster[part.cluster].append(part)
    joined = by_cluster.pop(None, [])
    for cluster, parts_of_it in by_cluster.items():
        share = math.fsum([part.share * part.number for part in parts_of_it])
        residual = math.fsum([part.residual * part.number for part in parts_of_it])
        joined.append(_Part(cluster, share, residual))
    return joined


class SampledMean:
    """The unweighted mean of the means of strata."""

    def __init__(self, strata: Iterable[Sequence[Observation]]) -> None:
        groups = list(strata)
        share = 1 / len(groups)
        self._strata = [_Stratum.of(seen, share) for seen in groups]
        means = [stratum.mean for stratum in self._strata]
        self.value = math.fsum(means) / len(groups)
        self.samples = sum(stratum.samples for stratum in self._strata)

    @cached_property
    def clusters(self) -> int:
        """Number of clusters; a cluster in several strata counts once."""
        parts = chain.from_iterable(stratum.by_cluster for stratum in self._strata)
        return count_clusters((part.cluster, part.number) for part in parts)

    @cached_property
    def stderr(self) -> float | None:
        """Standard error for independent samples; None if a stratum has only one sample."""
        variance = sum_of_known([stratum.variance for stratum in self._strata])
        return None if variance is None else math.sqrt(variance)

    @cached_property
    def residuals(self) -> PerCluster:
        """Residuals of the clusters from the means of their strata."""
        return self._by_cluster(lambda _, part: part.residual)

    @cached_property
    def effective_samples(self) -> float:
        """How many independent binary samples tell as much, at least 1; a single cluster is 1.

        `(p (1 - p) + c / n) / (V + c d / n^2)`, with p the mean and V its variance by the
        jackknife; n = 1 / sum of squared weights (Kish 1965, "Survey Sampling", section 11.7). The
        assumption about V is worth c = `PSEUDO_SAMPLES`; it is the variance of independent samples
        times d = 1 + `ASSUMED_ICC` (m - 1), with m the size of the cluster of a mean sample. Where
        all samples agree nothing else is known of V.
        """
        if self.clusters < 2:
            return 1.0
        return effective_samples(self.value, self._equal_samples, self.assumed_variance)

    @cached_property
    def interval(self) -> Interval:
        """The score interval of the mean of proportions; of one it is `proportion_interval`.

        Each stratum is joined by one sample at the mean of all: seven of seven do not say that no
        eighth fails. The design effect, the ratio of the variance of the mean to that of
        independent binary samples, divides the samples of every stratum.
        """
        if len(self._strata) == 1 or self.clusters < 2:
            return proportion_interval(self.value, self.effective_samples)

        smoothed = []  # each stratum with its mean after one more sample
        for stratum in self._strata:
            total = stratum.samples * stratum.mean + self.value
            smoothed.append((total / (stratum.samples + 1), stratum))

        # The variance of independent binary samples, with what is assumed about it.
        binary = math.fsum([of.share**2 * p * (1 - p) / of.samples for p, of in smoothed])
        independent = binary + PSEUDO_SAMPLES / self._equal_samples**2
        design_effect = self.assumed_variance / independent
        return mean_interval(self.value, [(p, of.samples / design_effect) for p, of in smoothed])

    def correlation(self, other: "SampledMean") -> float:
        """Return the correlation with another mean, which the clusters in both cause."""
        if self.clusters < 2 or other.clusters < 2:
            return 0.0
        shared = self.left_out.products(other.left_out)
        return shared / math.sqrt(self.assumed_variance * other.assumed_variance)

    @cached_property
    def left_out(self) -> PerCluster:
        """How far the mean moves when a cluster is left out (the jackknife).

        If there are several strata, a sample at the mean of all is added to each. Otherwise a
        category with a single cluster would have nothing to be compared with.
        """
        return self._by_cluster(self._move)

    @cached_property
    def assumed_variance(self) -> float:
        """Variance of the mean, including the assumption about it."""
        n = self._equal_samples
        return with_assumption(self._variance, n, n / self._equal_clusters)

    @cached_property
    def _variance(self) -> float:
        """Variance by the jackknife: the variance of independent samples plus the part of clusters.

        The part of clusters is at least 0 and multiplied by the squared ratio of their t quantile
        to the samples' quantile, because few or unequal clusters estimate it badly.
        """
        squares = []
        for stratum in self._strata:
            squares += [part.number * self._move(stratum, part) ** 2 for part in stratum.by_sample]
        independent = math.fsum(squares)
        of_clusters = max(0.0, self.left_out.squares - independent)
        if not of_clusters:
            return independent

        df_samples = max(1.0, self._equal_samples - 1)
        df_clusters = min(df_samples, max(1.0, self._equal_clusters - 1))
        ratio = t_quantile(0.975, df_clusters) / t_quantile(0.975, df_samples)
        return independent + of_clusters * ratio**2

    @cached_property
    def _equal_samples(self) -> float:
        """How many samples of equal weight tell as much: 1 / sum of squared weights."""
        parts = chain.from_iterable(stratum.by_sample for stratum in self._strata)
        return 1 / math.fsum(part.number * part.share**2 for part in parts)

    @cached_property
    def _equal_clusters(self) -> float:
        """How many clusters of equal weight tell as much."""
        return 1 / self._by_cluster(lambda _, part: part.share).squares

    def _move(self, stratum: _Stratum, part: _Part) -> float:
        """Return how far the mean moves without a part, so that n samples vary by p (1 - p) / n."""
        # The share of the one sample that is added to each of several strata, at the mean of all.
        pseudo = 1 / (stratum.samples + 1) if len(self._strata) > 1 else 0.0
        left = 1 - part.share / stratum.share * (1 - pseudo)  # of the stratum, without the part
        moved = part.residual + part.share * pseudo * (stratum.mean - self.value)
        # Without the scale the squares of n samples would add up to n p (1 - p) / (n - 1)^2.
        scale = 1 - 1 / self._equal_samples
        return scale * moved / left

    def _by_cluster(self, measure: Callable[[_Stratum, _Part], float]) -> PerCluster:
        """Measure each cluster in each stratum, and add up by cluster."""
        named: defaultdict[str, list[float]] = defaultdict(list)
        alone: list[float] = []
        for stratum in self._strata:
            for part in stratum.by_cluster:
                measured = measure(stratum, part)
                if part.cluster is None:
                    alone.append(part.number * measured**2)
                else:
                    named[part.cluster].append(measured)
        sums = {name: math.fsum(of_strata) for name, of_strata in named.items()}
        return PerCluster(sums, math.fsum(alone))


def unbiased(squares: float, units: int) -> float | None:
    """Correct a sum of squared residuals for the estimated mean behind them."""
    return None if units < 2 else squares * units / (units - 1)


def rate(observations: Iterable[Observation]) -> Estimate:
    """Estimate the mean over samples (micro average).

    With p the mean of the n values y: `stderr = sqrt(sum (y - p)^2 / (n (n - 1)))`, which for
    binary y is `sqrt(p (1 - p) / (n - 1))`. Over G clusters
    `stderr_clustered = sqrt(G / (G - 1) sum_g (sum_{i in g} (y_i - p))^2) / n` (Miller 2024, with
    the usual factor for few clusters). Unequal weights make p a ratio of sums and weigh every
    residual (Cochran 1977, "Sampling Techniques", ch. 6). The interval is `proportion_interval`
    with `SampledMean.effective_samples`.

    Value and interval are None without samples, stderr with fewer than two samples, and
    stderr_clustered with fewer than two clusters.
    """
    samples = list(observations)
    return estimate(SampledMean([samples]) if samples else None)


def macro_rate(observations: Iterable[Observation]) -> Estimate:
    """Estimate the mean of the rates of the categories that have samples (macro average).

    With K categories, `stderr = sqrt(sum_k stderr_k^2) / K`, None if a category has one sample
    only. Clusters span categories: `u_g = sum_{i in g} (y_i - p_k(i)) / (K n_k(i))` and
    `stderr_clustered = sqrt(G / (G - 1) sum_g u_g^2)`. Samples without a category are left out.
    The interval is `mean_interval`.
    """
    by_category: defaultdict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        if observation.category is not None:
            by_category[observation.category].append(observation)
    named = [by_category[name] for name in sorted(by_category)]
    return estimate(SampledMean(named) if named else None)


def score(
    composite: Composite, detection: SampledMean | None, acceptance: SampledMean | None
) -> Estimate:
    """Estimate the score of two rates whose samples share clusters.

    `stderr` assumes independent rates, as the reference benchmark does. `stderr_clustered` has
    one sum per cluster over both sides. The interval is MOVER with their correlation.
    """
    if detection is None or acceptance is None:
        return combine(composite, estimate(detection), estimate(acceptance))
    of_detection = detection.residuals
    of_acceptance = acceptance.residuals
    shared = len(of_detection.named.keys() & of_acceptance.named.keys())
    dependence = Dependence(
        clusters=detection.clusters + acceptance.clusters - shared,
        squares=(of_detection.squares, of_acceptance.squares),
        products=of_detection.products(of_acceptance),
        correlation=detection.correlation(acceptance),
    )
    return combine(composite, estimate(detection), estimate(acceptance), dependence)


def estimate(mean: SampledMean | None) -> Estimate:
    if mean is None:
        return Estimate(clusters=0)
    squares = unbiased(mean.residuals.squares, mean.clusters)
    clustered = None if squares is None else math.sqrt(squares)
    return Estimate(mean.value, mean.stderr, clustered, *mean.interval, mean.samples, mean.clusters)
