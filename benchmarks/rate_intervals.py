"""`aegish_dist.statistics.means` for many runs over the same samples at once, in numpy.

`tests/property/test_interval_coverage.py` holds it to the product.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import betaincinv

from aegish_dist.core.sample import TrueLabel
from aegish_dist.statistics.distributions import t_quantile
from aegish_dist.statistics.means import ASSUMED_ICC, PSEUDO_SAMPLES
from aegish_dist.statistics.rates import Z_95

Numbers = NDArray[np.float64]


class Place(NamedTuple):
    """Of one sample."""

    target: TrueLabel
    category: str | None
    binary: int


class Means:
    """`SampledMean` of many runs over the same samples, all with one weight, at once."""

    def __init__(self, strata: list[NDArray[np.int64]], binary: NDArray[np.int64], values: Numbers):
        """Compute as the product does; a test compares the two.

        Args:
            binary: Of each sample, from 0.
        """
        self.strata, self.binary, self.values = strata, binary, values
        k = len(strata)
        means = [values[:, stratum].mean(axis=1) for stratum in strata]
        self.value = sum(means) / k
        share = np.zeros(values.shape[1])
        for stratum in strata:
            share[stratum] = 1 / (k * len(stratum))
        self.n = 1 / (share**2).sum()
        self.clusters = 1 / (np.bincount(binary, weights=share) ** 2).sum()
        left_out = np.zeros((len(values), binary.max() + 1))
        independent = np.zeros(len(values))
        for stratum, mean in zip(strata, means, strict=True):
            pseudo = 1 / (len(stratum) + 1) if k > 1 else 0.0
            centre = (1 - pseudo) * mean + pseudo * self.value
            moved = (values[:, stratum] - centre[:, None]) * share[stratum] * (1 - 1 / self.n)
            left = (1 - pseudo) / len(stratum)
            independent += (moved**2).sum(axis=1) / (1 - left) ** 2
            sizes = np.bincount(binary[stratum], minlength=left_out.shape[1])
            one_hot = csr_array(
                (np.ones(len(stratum)), (binary[stratum], np.arange(len(stratum)))),
                shape=(left_out.shape[1], len(stratum)),
            )
            remains = 1 - sizes * left
            # A single cluster leaves nothing, and then its sum is not used.
            left_out += (one_hot @ moved.T).T / np.where(remains > 1e-9, remains, np.inf)
        self.left_out = left_out
        added = np.maximum(0.0, (left_out**2).sum(axis=1) - independent)
        clusters, samples = max(1.0, self.clusters - 1), max(1.0, self.n - 1)
        ratio = t_quantile(0.975, min(clusters, samples)) / t_quantile(0.975, samples)
        assumed = PSEUDO_SAMPLES * (1 + ASSUMED_ICC * (self.n / self.clusters - 1)) / self.n**2
        self.variance = independent + added * ratio**2 + assumed
        spread = self.value * (1 - self.value)
        self.rates = np.array(
            [
                (len(stratum) * mean + self.value) / (len(stratum) + 1)
                for stratum, mean in zip(strata, means, strict=True)
            ]
        ).T
        sizes = np.array([len(stratum) for stratum in strata])
        binary_variance = (self.rates * (1 - self.rates) / sizes).sum(axis=1) / k**2
        effect = self.variance / (binary_variance + PSEUDO_SAMPLES / self.n**2)
        self.sizes = sizes / effect[:, None]
        effective = np.maximum(1.0, (spread + PSEUDO_SAMPLES / self.n) / self.variance)
        one_cluster = len(set(binary[np.concatenate(strata)])) < 2
        self.effective = np.ones_like(effective) if one_cluster else effective
        self.stratified = k > 1 and not one_cluster

    def interval(self) -> tuple[Numbers, Numbers]:
        if self.stratified:
            return bounds_of_mean(self.value, self.rates, self.sizes)
        return bounds(self.value, self.effective)


def bounds(p: Numbers, n: Numbers) -> tuple[Numbers, Numbers]:
    """Return `proportion_interval` of many."""
    scale = 1 + Z_95**2 / n
    centre = (p + Z_95**2 / (2 * n)) / scale
    half = Z_95 / scale * np.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n * n))
    low = np.maximum(0.0, np.minimum(p, centre - half))
    high = np.minimum(1.0, np.maximum(p, centre + half))
    right, wrong = np.maximum(p * n, 1e-12), np.maximum(n - p * n, 1e-12)
    low = np.minimum(low, np.where(p > 0, betaincinv(right, wrong + 1, 0.05), 0.0))
    high = np.maximum(high, np.where(p < 1, 1 - betaincinv(wrong, right + 1, 0.05), 1.0))
    return low, high


def bounds_of_mean(value: Numbers, p: Numbers, n: Numbers) -> tuple[Numbers, Numbers]:
    """Return `mean_interval` of many; p and n are runs x categories."""
    variance = (p * (1 - p) / n).sum(axis=1) / p.shape[1] ** 2
    whole = np.where(variance > 0, value * (1 - value) / np.where(variance > 0, variance, 1), 0.0)

    def end(value: Numbers, p: Numbers) -> Numbers:
        low = np.maximum(0.0, value - reach_down(p, n))
        right, wrong = value * whole, np.maximum(whole - value * whole, 0)
        exact = betaincinv(np.maximum(right, 1e-12), wrong + 1, 0.05)
        return np.asarray(np.where((right > 0) & (right < 11), np.minimum(low, exact), low))

    return end(value, p), 1 - end(1 - value, 1 - p)


def reach_down(p: Numbers, n: Numbers) -> Numbers:
    """Return how far the lower end of the score interval lies below the mean, by bisection."""
    low, high = np.zeros(len(p)), np.full(len(p), np.inf)
    x = np.ones(len(p))
    for _ in range(80):
        q = likeliest(p, n, x[:, None])
        beyond = x**2 * (q * (1 - q) / n).sum(axis=1) > Z_95**2
        low, high = np.where(beyond, low, x), np.where(beyond, x, high)
        x = np.where(np.isinf(high), 4 * x, (low + np.where(np.isinf(high), 0, high)) / 2)
    return np.where(p.any(axis=1), (p - likeliest(p, n, low[:, None])).mean(axis=1), 0.0)


def likeliest(p: Numbers, n: Numbers, x: Numbers) -> Numbers:
    """Solve `n (p - q) = x q (1 - q)` for the smaller q."""
    root = np.sqrt((n - x) ** 2 + 4 * x * n * (1 - p))
    return np.asarray(np.minimum(p, 2 * p * n / (n + x + root)), dtype=np.float64)


def intervals(metric: str, places: list[Place], values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the lower and the upper ends of runs over the same samples."""
    binary = np.array([place.binary for place in places])
    sides = [
        np.array([i for i, place in enumerate(places) if place.target is target])
        for target in (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)
    ]
    if metric in {"micro", "macro"}:
        strata = [sides[0]]
        if metric == "macro":
            categories = {place.category for place in places if place.category is not None}
            strata = [
                np.array([i for i in sides[0] if places[i].category == name])
                for name in sorted(categories)
            ]
        return Means(strata, binary, values).interval()
    detection, acceptance = (Means([side], binary, values) for side in sides)
    correlation = (detection.left_out * acceptance.left_out).sum(axis=1) / np.sqrt(
        detection.variance * acceptance.variance
    )
    product = metric == "product"
    value = (
        detection.value * acceptance.value if product else (detection.value + acceptance.value) / 2
    )
    slopes = (acceptance.value, detection.value) if product else (0.5, 0.5)
    ends = [bounds(mean.value, mean.effective) for mean in (detection, acceptance)]

    def added(end: int) -> Numbers:
        a, b = abs(detection.value - ends[0][end]), abs(acceptance.value - ends[1][end])
        x, y = slopes[0] * a, slopes[1] * b
        squares = x**2 + y**2 + product * (a * b) ** 2 + 2 * correlation * x * y
        return np.asarray(np.sqrt(np.maximum(0.0, squares)), dtype=np.float64)

    return np.maximum(0.0, value - added(0)), np.minimum(1.0, value + added(1))
