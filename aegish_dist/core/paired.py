"""Two sides on the same samples: what each cluster adds to a difference, and to its uncertainty.

Values are counted in integers of 2^-60, so that no sum depends on the order of its input.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from aegish_dist.core.clustered import ClusterSum, ClusterSums
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.tally import Findings

UNIT = 1 << 60
"""The value of a right answer: fine enough for means over epochs."""


@dataclass(frozen=True, slots=True)
class PairedCell:
    """Samples of one kind that came out alike on both sides."""

    target: Target
    category: str | None
    """None for harmless samples."""
    cluster: str | None
    """None: each of the samples is a cluster of its own."""
    a: Findings
    """Findings of the baseline; empty where it has no verdict."""
    b: Findings
    """Findings of the candidate; empty where it has no verdict."""
    samples: int
    """How many, at least 1."""


@dataclass(slots=True)
class PairedStratum:
    """Samples of one label, or of one category, that the rule scores on both sides."""

    kinds: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Samples by their values on the sides, in 2^-60."""
    unclustered: Counter[tuple[int, int]] = field(default_factory=Counter)
    clusters: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By cluster: samples, sum of the baseline, sum of the candidate."""

    @property
    def samples(self) -> int:
        """Samples scored on both sides."""
        return self.kinds.total()

    @property
    def binary(self) -> bool:
        """Whether every sample is either right or wrong on either side."""
        return all(a in (0, UNIT) and b in (0, UNIT) for a, b in self.kinds)

    @property
    def a_only(self) -> int:
        """Samples that only the baseline had right; 0 where values are not binary."""
        return self.kinds[UNIT, 0] if self.binary else 0

    @property
    def b_only(self) -> int:
        """Samples that only the candidate had right; 0 where values are not binary."""
        return self.kinds[0, UNIT] if self.binary else 0

    @property
    def a(self) -> float:
        """Mean of the baseline."""
        return sum(a * samples for (a, _), samples in self.kinds.items()) / UNIT / self.samples

    @property
    def b(self) -> float:
        """Mean of the candidate."""
        return sum(b * samples for (_, b), samples in self.kinds.items()) / UNIT / self.samples

    def add(self, cell: PairedCell, a: int, b: int) -> None:
        """Count the samples of a cell.

        Args:
            a: The value of each sample on the baseline, in 2^-60.
        """
        self.kinds[a, b] += cell.samples
        if cell.cluster is None:
            self.unclustered[a, b] += cell.samples
            return
        samples, of_a, of_b = self.clusters.get(cell.cluster, (0, 0, 0))
        self.clusters[cell.cluster] = (
            samples + cell.samples,
            of_a + cell.samples * a,
            of_b + cell.samples * b,
        )

    @property
    def differing(self) -> set[str]:
        """Clusters whose sums differ between the sides."""
        return {cluster for cluster, (_, a, b) in self.clusters.items() if a != b}

    @property
    def differing_alone(self) -> int:
        """Samples without a cluster whose values differ."""
        return sum(samples for (a, b), samples in self.unclustered.items() if a != b)

    def differences(self, weight_a: float, weight_b: float) -> ClusterSums:
        """Return the sums of `weight_b b - weight_a a` by cluster."""
        a, b = weight_a / UNIT, weight_b / UNIT
        named = [
            ClusterSum(cluster, samples, b * total_b - a * total_a)
            for cluster, (samples, total_a, total_b) in self.clusters.items()
        ]
        alone = [
            ClusterSum(None, 1, b * value_b - a * value_a, clusters)
            for (value_a, value_b), clusters in self.unclustered.items()
        ]
        return ClusterSums((*named, *alone), max(weight_a, weight_b))

    def variance(self, weight_a: float, weight_b: float) -> float | None:
        """Return the variance of the mean of `weight_b b - weight_a a`; None of one sample."""
        n = self.samples
        if n < 2:
            return None
        mean = weight_b * self.b - weight_a * self.a
        squares = math.fsum(
            samples * ((weight_b * b - weight_a * a) / UNIT - mean) ** 2
            for (a, b), samples in self.kinds.items()
        )
        return squares / (n * (n - 1))


@dataclass(frozen=True, slots=True)
class PairedSamples:
    """All samples that the rule scores on both sides."""

    targets: Mapping[Target, PairedStratum]
    categories: Mapping[str, PairedStratum]


def paired_samples(cells: Iterable[PairedCell], rule: ScoringRule) -> PairedSamples:
    """Score the samples of both sides and keep those that have a scored epoch on each.

    Args:
        cells: What both sides answered; any order.
    """
    targets = {target: PairedStratum() for target in Target}
    categories: defaultdict[str, PairedStratum] = defaultdict(PairedStratum)
    values: dict[tuple[Target, Findings], int | None] = {}
    for cell in cells:
        for findings in (cell.a, cell.b):
            if (cell.target, findings) not in values:
                values[cell.target, findings] = value_of(cell.target, findings, rule)
        a, b = values[cell.target, cell.a], values[cell.target, cell.b]
        if a is None or b is None:
            continue
        targets[cell.target].add(cell, a, b)
        if cell.category is not None and cell.target is Target.MALICIOUS:
            categories[cell.category].add(cell, a, b)
    return PairedSamples(targets, dict(sorted(categories.items())))


def value_of(target: Target, findings: Findings, rule: ScoringRule) -> int | None:
    """Return the mean over the scored epochs of a sample, in 2^-60; None without one."""
    right, scored = rule.count_right(target, findings)
    return round(right * UNIT / scored) if scored else None
