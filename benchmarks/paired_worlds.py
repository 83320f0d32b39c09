"""Simulated answers of two sides, with the cluster sizes of the bundled data sets."""

from collections import Counter

import numpy as np
from msgspec import Struct
from paired_intervals import Array

from aegish_dist.core.sample import TrueLabel
from aegish_dist.datasets.bundled import bundled_names, load_bundled

RATE = np.array([1.0])
SCORE = np.array([0.5, 0.5])


class World(Struct, frozen=True):
    """Two sides that judge the same samples."""

    sizes: Array
    """Samples by cluster and stratum: of one label, or of both."""
    a: float
    """True rate of the baseline, in every stratum."""
    b: float
    icc: float
    """Correlation of the answers about two samples of a cluster, in [0, 1): the rates of the
    clusters come from a beta distribution, the same rate for both labels."""
    epochs: int
    alike: bool
    """Whether a cluster that is hard for one side is hard for the other."""

    @property
    def difference(self) -> float:
        """The true difference of rate and of score."""
        return self.b - self.a

    def sums(self, generator: np.random.Generator, replications: int) -> Array:
        """Draw differences b - a summed up by replication, cluster and stratum."""
        shape = (replications, len(self.sizes), 1)
        rates_a = beta_rates(generator, self.a, self.icc, shape)
        rates_b = beta_rates(generator, self.b, self.icc, shape)
        if self.alike and self.a > 0:
            # Scaled down from the larger of the two, so that no rate leaves [0, 1].
            rates_b = rates_a * (self.b / self.a)
        answers = (self.sizes * self.epochs).astype(int)
        right = generator.binomial(answers, rates_b) - generator.binomial(answers, rates_a)
        return np.asarray(right / self.epochs)


def beta_rates(
    generator: np.random.Generator, mean: float, icc: float, shape: tuple[int, ...]
) -> Array:
    """Draw the rates of clusters."""
    if icc == 0 or mean in (0, 1):
        return np.full(shape, mean)
    size = 1 / icc - 1
    return generator.beta(mean * size, (1 - mean) * size, shape)


def bundled_sizes() -> Array:
    """Return malicious and harmless samples by binary, of all bundled data sets."""
    counted = Counter(
        (sample.cluster, sample.target)
        for name in bundled_names()
        for sample in load_bundled(name).samples
    )
    names = sorted({str(name) for name, _ in counted})
    return np.array(
        [[counted[name, target] for target in TrueLabel] for name in names], dtype=float
    )


def of_one_label(samples: int, seed: int = 1) -> Array:
    """Draw clusters with sizes of the bundled malicious samples until there are so many samples."""
    pool = bundled_sizes()[:, :1]
    return _until(pool[pool[:, 0] > 0], samples, seed)


def of_both_labels(samples: int, seed: int = 1) -> Array:
    """Draw clusters with sizes of all bundled samples until there are so many, on either label."""
    return _until(bundled_sizes(), samples, seed)


def some_clusters(clusters: int, samples: int | None = None, seed: int = 1) -> Array:
    """Draw so many clusters of malicious samples.

    Args:
        samples: Scale the sizes to about so many samples; None: as they are.
    """
    pool = bundled_sizes()[:, :1]
    sizes = np.random.default_rng(seed).choice(pool[pool[:, 0] > 0], clusters)
    return sizes if samples is None else np.ceil(sizes * samples / sizes.sum())


def _until(pool: Array, samples: int, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    left = np.full(pool.shape[1], float(samples))
    drawn = []
    while left.any():
        drawn.append(np.minimum(generator.choice(pool), left))
        left -= drawn[-1]
    return np.array([each for each in drawn if each.any()])
