"""Rates over samples, with standard errors and intervals.

Sources: Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640 (stderr, clusters); Korn &
Graubard 1998, Survey Methodology 24:193 (intervals of proportions by an effective sample size).
`docs/statistics.md` has every formula, and how often the intervals cover the truth.
"""

import math
from collections import defaultdict
from collections.abc import Iterable

from aegish_dist.core.estimates import Dependence, Estimate, combine
from aegish_dist.core.intervals import proportion_interval
from aegish_dist.core.sampled_mean import Observation, SampledMean, unbiased
from aegish_dist.core.scoring import Composite

__all__ = ["Observation", "SampledMean", "estimate", "macro_rate", "rate", "score"]


def rate(observations: Iterable[Observation]) -> Estimate:
    """Estimate the mean over samples (micro average).

    With p the mean of the n values y: `stderr = sqrt(sum (y - p)^2 / (n (n - 1)))`, which for
    binary y is `sqrt(p (1 - p) / (n - 1))`. Over G clusters
    `stderr_clustered = sqrt(G / (G - 1) sum_g (sum_{i in g} (y_i - p))^2) / n` (Miller 2024, with
    the usual factor for few clusters). Unequal weights make p a ratio of sums and weigh every
    residual (Cochran 1977, "Sampling Techniques", ch. 6).

    The interval is `proportion_interval` with `SampledMean.effective_samples` samples: n of them
    where samples are independent and have one epoch, more with several epochs, fewer where the
    samples of a cluster resemble each other.

    Returns:
        The estimate; value and interval are None without samples, stderr with fewer than two
        samples, stderr_clustered with fewer than two clusters.
    """
    samples = list(observations)
    return estimate(SampledMean([samples]) if samples else None)


def macro_rate(observations: Iterable[Observation]) -> Estimate:
    """Estimate the mean of the rates of the categories that have samples (macro average).

    With K categories, `stderr = sqrt(sum_k stderr_k^2) / K`, None if a category has one sample
    only. Clusters span categories: `u_g = sum_{i in g} (y_i - p_k(i)) / (K n_k(i))` and
    `stderr_clustered = sqrt(G / (G - 1) sum_g u_g^2)`. The interval is as in `rate`; rates that
    differ from category to category do not widen it.

    Returns:
        The estimate; undefined parts as in `rate`. Samples without a category are left out.
    """
    by_category: defaultdict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        if observation.category is not None:
            by_category[observation.category].append(observation)
    return estimate(SampledMean(by_category.values()) if by_category else None)


def score(
    composite: Composite, detection: SampledMean | None, acceptance: SampledMean | None
) -> Estimate:
    """Estimate the score of two rates whose samples share clusters.

    `stderr` takes the rates as independent, as the reference benchmark does. `stderr_clustered` has
    one sum per cluster over both sides. The interval is MOVER with the correlation that the shared
    clusters give the rates; see `combine`.

    Args:
        detection: Mean over the malicious samples; None without any.
        acceptance: Mean over the harmless samples; None without any.
    """
    if detection is None or acceptance is None:
        return combine(composite, estimate(detection), estimate(acceptance))
    sums = detection.residuals, acceptance.residuals
    shared = len(sums[0].named.keys() & sums[1].named.keys())
    dependence = Dependence(
        clusters=detection.clusters + acceptance.clusters - shared,
        squares=(sums[0].squares, sums[1].squares),
        products=sums[0].products(sums[1]),
        correlation=detection.correlation(acceptance),
    )
    return combine(composite, estimate(detection), estimate(acceptance), dependence)


def estimate(mean: SampledMean | None) -> Estimate:
    """Return a mean with its uncertainty; undefined where there is none."""
    if mean is None:
        return Estimate(clusters=0)
    clustered = unbiased(mean.residuals.squares, mean.clusters)
    interval = proportion_interval(mean.value, mean.effective_samples)
    return Estimate(
        value=mean.value,
        stderr=mean.stderr,
        stderr_clustered=None if clustered is None else math.sqrt(clustered),
        ci_low=interval.low,
        ci_high=interval.high,
        n=mean.samples,
        clusters=mean.clusters,
    )
