"""Two models' scores set against each other from what each adds to a cluster, without their pairs.

Where every scored sample is in a cluster, the clustered variance of a difference needs no joint
counts: a cluster adds the difference of two sums. So models of millions of verdicts are ranked from
counts that are there already.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from aegish_dist.core.clustered import ClusterSum, ClusterSums
from aegish_dist.core.paired import UNIT, value_of
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.tally import Cell

_NOTHING = (0, 0)


@dataclass(frozen=True, slots=True)
class SummedSamples:
    """The scored samples of one label on one side."""

    clusters: Mapping[str, tuple[int, int]]
    """By cluster: samples, and the sum of their values in 2^-60."""
    samples: int
    total: int
    """Sum of all values in 2^-60."""


def summed_samples(
    cells: Iterable[Cell], rule: ScoringRule
) -> Mapping[Target, SummedSamples] | None:
    """Sum up the scored samples of a model by label and cluster.

    Returns:
        None where a sample is in no cluster: its pairs have to be counted.
    """
    worth = cache(lambda target, findings: value_of(target, findings, rule))
    clusters: dict[Target, dict[str, tuple[int, int]]] = {target: {} for target in Target}
    for cell in cells:
        value = worth(cell.target, cell.findings)
        if value is None:
            continue
        if cell.cluster is None:
            return None
        of_label = clusters[cell.target]
        samples, total = of_label.get(cell.cluster, _NOTHING)
        of_label[cell.cluster] = samples + cell.samples, total + cell.samples * value
    return {target: _added_up(of_label) for target, of_label in clusters.items()}


def _added_up(clusters: Mapping[str, tuple[int, int]]) -> SummedSamples:
    samples = sum(samples for samples, _ in clusters.values())
    return SummedSamples(clusters, samples, sum(total for _, total in clusters.values()))


@dataclass(frozen=True, slots=True)
class SummedStratum:
    """The samples of one label on two sides, as `comparison.Stratum`.

    Where both have scored the same samples it is what the pairs would give. Otherwise each side has
    the mean of its own samples, and a cluster adds the difference of its parts of both: the
    linearised difference of two means (Woodruff 1971, JASA 66:411).
    """

    of_a: SummedSamples
    of_b: SummedSamples

    @property
    def samples(self) -> int:
        """Samples of the side that has fewer; 0 where either has none."""
        return min(self.of_a.samples, self.of_b.samples)

    @property
    def a(self) -> float:
        """Mean of the baseline."""
        return self.of_a.total / UNIT / self.of_a.samples

    @property
    def b(self) -> float:
        """Mean of the candidate."""
        return self.of_b.total / UNIT / self.of_b.samples

    @property
    def a_only(self) -> int:
        """Unknown, and of no part in a p value: 0."""
        return 0

    @property
    def b_only(self) -> int:
        """Unknown likewise."""
        return 0

    @property
    def differing(self) -> set[str]:
        """Clusters whose means differ between the sides."""
        of_a, of_b = self.of_a.clusters, self.of_b.clusters
        both = of_a.keys() & of_b.keys()
        return {
            name for name in both if of_a[name][1] * of_b[name][0] != of_b[name][1] * of_a[name][0]
        }

    @property
    def differing_alone(self) -> int:
        """All samples are in clusters: 0."""
        return 0

    def differences(self, weight_a: float, weight_b: float) -> ClusterSums:
        """Return the sums of `weight_b b - weight_a a` by cluster."""
        weight = max(weight_a, weight_b)
        if self._same_samples:
            a, b = weight_a / UNIT, weight_b / UNIT
            sums = [
                ClusterSum(name, samples, b * self.of_b.clusters[name][1] - a * total)
                for name, (samples, total) in self.of_a.clusters.items()
            ]
            return ClusterSums(tuple(sums), weight)
        sizes = {
            name: max(side.clusters.get(name, _NOTHING)[0] for side in (self.of_a, self.of_b))
            for name in self.of_a.clusters.keys() | self.of_b.clusters.keys()
        }
        n = sum(sizes.values())
        a, b = weight_a * n / self.of_a.samples, weight_b * n / self.of_b.samples
        mean = weight_b * self.b - weight_a * self.a
        parts = {
            name: b * _residual(self.of_b, name, self.b) - a * _residual(self.of_a, name, self.a)
            for name in sizes
        }
        sums = [ClusterSum(name, size, size * mean + parts[name]) for name, size in sizes.items()]
        return ClusterSums(tuple(sums), weight)

    @property
    def _same_samples(self) -> bool:
        of_a, of_b = self.of_a.clusters, self.of_b.clusters
        return of_a.keys() == of_b.keys() and all(
            samples == of_b[name][0] for name, (samples, _) in of_a.items()
        )

    def variance(self, weight_a: float, weight_b: float) -> None:
        """Samples taken as independent, their pairs would have to be known."""


def _residual(side: SummedSamples, cluster: str, mean: float) -> float:
    samples, total = side.clusters.get(cluster, _NOTHING)
    return total / UNIT - samples * mean
