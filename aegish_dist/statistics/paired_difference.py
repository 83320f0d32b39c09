"""The paired difference of two sides on the samples that both have scored: b minus a.

The value of a sample is an integer of 2^-40, so no sum of values depends on their order. Many pairs
are compared at once: arrays have a row for each pair and a column for each sample.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from msgspec.structs import replace

from aegish_dist.core.columns import AskedSamples, Bools, Codes, Floats, Ints, by_finding
from aegish_dist.core.metric import Comparison, Difference, Metric
from aegish_dist.core.sample import TrueLabel
from aegish_dist.opinions.guards import Guards
from aegish_dist.opinions.scoring import Composite, ScoringRule
from aegish_dist.statistics.distributions import holm_adjusted
from aegish_dist.statistics.inference import (
    ClusterSums,
    clustered_variance,
    clusters_of_any,
    fsum_rows,
    mcnemar,
    numbers_or_none,
    paired_test,
)

UNIT = 1 << 40  # the value of a right answer: fine enough for means over epochs
UNSCORED = -1
LARGE_CLUSTER = 0.25  # of a label's samples; beyond, intervals of high rates cover too little
MOST_CELLS = 1_000_000  # of an array; more pairs than fit are compared one group after another

Key = TypeVar("Key")


def epoch_counts(finding: Codes, malicious: Bools, rule: ScoringRule) -> tuple[Ints, Ints]:
    """Return by sample how many of its epochs are right, and how many are scored."""
    scored = by_finding(rule.is_scored)[finding]
    detects = by_finding(rule.is_detection)[finding]
    accepts = by_finding(rule.is_acceptance)[finding]
    right = scored & np.where(malicious[:, None], detects, accepts)
    return right.sum(axis=1), scored.sum(axis=1)


def scored_values(finding: Codes, malicious: Bools, rule: ScoringRule) -> Ints:
    """Return by sample the mean over its scored epochs that are right, as `values_of` does."""
    return values_of(*epoch_counts(finding, malicious, rule))


def values_of(right: Ints, scored: Ints) -> Ints:
    """Return by sample the mean over its scored epochs, in `UNIT`; `UNSCORED` without one."""
    share = right * float(UNIT) / np.maximum(1, scored)
    return np.where(scored > 0, np.rint(share).astype(np.int64), UNSCORED)


class Stratum:
    """Samples of a label, or of one category, cluster after cluster."""

    def __init__(self, cluster: Ints, chosen: Bools) -> None:
        own = np.flatnonzero(chosen)
        self.rows = own[np.argsort(cluster[own], kind="stable")]
        # A cluster's samples are in one piece now: `starts` has the first of each piece.
        self.cluster, self._starts = np.unique(cluster[self.rows], return_index=True)

    def sums(self, column: Ints | Bools) -> Ints:
        """Add up the samples of each cluster, which are in the order of `rows`."""
        if not len(self.rows):
            return np.zeros((len(column), 0), np.int64)
        sums: Ints = np.add.reduceat(column, self._starts, axis=1, dtype=np.int64)
        return sums


class PairedStratum:
    """The values of pairs of sides in a stratum, on the samples that both have scored."""

    def __init__(self, stratum: Stratum, a: Ints, b: Ints) -> None:
        """Take the values of both sides, a row for each pair and a column for each sample."""
        self._stratum = stratum
        a = a[:, stratum.rows]
        b = b[:, stratum.rows]
        self.both = (a >= 0) & (b >= 0)  # `UNSCORED` is negative
        self.a = np.where(self.both, a, 0)
        self.b = np.where(self.both, b, 0)
        self.cluster = stratum.cluster
        self.samples_of_cluster = stratum.sums(self.both)
        self._totals_a = stratum.sums(self.a)
        self._totals_b = stratum.sums(self.b)
        self.samples: Ints = self.both.sum(axis=1)

    @cached_property
    def means(self) -> tuple[Floats, Floats]:
        """Both sides by pair; 0 without a sample."""
        n = np.maximum(1, self.samples)
        mean_a = self._totals_a.sum(axis=1) / UNIT / n
        mean_b = self._totals_b.sum(axis=1) / UNIT / n
        return mean_a, mean_b

    @cached_property
    def binary(self) -> Bools:
        """By pair, whether every sample is either right or wrong on each side."""
        of_a = (self.a == 0) | (self.a == UNIT)
        of_b = (self.b == 0) | (self.b == UNIT)
        return np.asarray((of_a & of_b).all(axis=1))

    @cached_property
    def discordant(self) -> tuple[Ints, Ints]:
        """Samples that only a, or only b, had right; 0 if not binary."""
        a_only = (self.a > self.b).sum(axis=1)
        b_only = (self.b > self.a).sum(axis=1)
        return np.where(self.binary, a_only, 0), np.where(self.binary, b_only, 0)

    @property
    def differing(self) -> Bools:
        """By pair and cluster, whether it differs between the sides."""
        return np.asarray(self._totals_a != self._totals_b)

    def large_clusters(self, pair: int, names: Sequence[str]) -> dict[str, float]:
        """Return the clusters with a large part of the samples of a pair, and that share."""
        samples = int(self.samples[pair])
        of_cluster = self.samples_of_cluster[pair]
        is_large = of_cluster > max(1, LARGE_CLUSTER * samples)
        large = {}
        for place in np.flatnonzero(is_large).tolist():
            name = names[int(self.cluster[place])]
            large[name] = float(of_cluster[place] / samples)
        return large

    def differences(self, weight_a: Floats, weight_b: Floats) -> ClusterSums:
        """Return the sums of `weight_b b - weight_a a` by cluster."""
        of_a = (weight_a / UNIT)[:, None] * self._totals_a
        of_b = (weight_b / UNIT)[:, None] * self._totals_b
        weight = np.maximum(weight_a, weight_b)
        return ClusterSums(self.cluster, self.samples_of_cluster, of_b - of_a, weight)

    def variance(self, weight_a: Floats, weight_b: Floats) -> Floats:
        """Return the variance of the mean of `weight_b b - weight_a a`; NaN for one sample."""
        mean_a, mean_b = self.means
        mean = weight_b * mean_b - weight_a * mean_a
        # In place, as the samples may be millions.
        residuals = weight_b[:, None] * self.b
        residuals -= weight_a[:, None] * self.a
        residuals /= UNIT
        residuals -= mean[:, None]
        residuals[~self.both] = 0
        residuals *= residuals
        squares = fsum_rows(residuals)
        n = self.samples
        freedom = np.maximum(1, n * (n - 1))
        return np.where(n > 1, squares / freedom, np.nan)


_Term = tuple[PairedStratum, Floats, Floats]  # samples of a label, weights of both sides' means


def rate_differences(stratum: PairedStratum) -> list[Difference]:
    """Return the differences of the rate of right answers, with McNemar's p where it applies."""
    one = np.ones(len(stratum.samples))
    differences = _differences(*stratum.means, [(stratum, one, one)], stratum.samples > 0)
    for place, is_binary in enumerate(stratum.binary.tolist()):
        difference = differences[place]
        if is_binary and difference.n:
            p = mcnemar(difference.a_only, difference.b_only)
            differences[place] = replace(difference, mcnemar_p=p)
    return differences


def score_differences(
    composite: Composite,
    malicious: PairedStratum,
    harmless: PairedStratum,
    added: Floats | None = None,
) -> list[Difference]:
    """Return the differences of the score; `added` is variance that the samples do not show."""
    defined = (malicious.samples > 0) & (harmless.samples > 0)
    terms = [
        _score_term(composite, malicious, harmless),
        _score_term(composite, harmless, malicious),
    ]
    detection_a, detection_b = malicious.means
    acceptance_a, acceptance_b = harmless.means
    a = composite.score(detection_a, acceptance_a)
    b = composite.score(detection_b, acceptance_b)
    return _differences(a, b, terms, defined, added)


def _score_term(composite: Composite, own: PairedStratum, other: PairedStratum) -> _Term:
    """Return one label's rate with its weights, the derivatives of each side's score by it."""
    if composite is Composite.BALANCED:
        half = np.full(len(own.samples), 0.5)
        return own, half, half
    # The delta method: the weight of a rate is the other rate of its side. A rate of 0 weighs a
    # little, or there would be no width where both are 0.
    least = 1 / (other.samples + 2)
    weight_a, weight_b = (np.maximum(rate, least) for rate in other.means)
    return own, weight_a, weight_b


def _differences(
    a: Floats, b: Floats, terms: Sequence[_Term], defined: Bools, added: Floats | None = None
) -> list[Difference]:
    """Return the difference of each pair; where it is not defined the number of samples alone."""
    paired = [stratum for stratum, *_ in terms]
    strata = [stratum.differences(*weights) for stratum, *weights in terms]
    variance = clustered_variance(strata)
    differing = clusters_of_any([(each.cluster, each.differing) for each in paired])
    tested = paired_test(b - a, strata, variance, differing, added)

    # Labels are independent: what they have is added up.
    independent = np.stack([stratum.variance(*weights) for stratum, *weights in terms]).sum(axis=0)
    samples = np.stack([stratum.samples for stratum in paired]).sum(axis=0)
    a_only = np.stack([stratum.discordant[0] for stratum in paired]).sum(axis=0)
    b_only = np.stack([stratum.discordant[1] for stratum in paired]).sum(axis=0)
    columns: dict[str, Floats | Ints] = {
        "a": a,
        "b": b,
        "difference": b - a,
        "stderr": np.sqrt(independent),
        "stderr_clustered": tested.stderr_clustered,
        "ci_low": tested.ci_low,
        "ci_high": tested.ci_high,
        "p_value": tested.p_value,
        "n": samples,
        "clusters": variance.clusters,
        "mde": tested.mde,
        "a_only": a_only,
        "b_only": b_only,
    }
    # As lists: to take single numbers from arrays would take most of the time.
    rows = zip(*(numbers_or_none(column) for column in columns.values()), strict=True)
    differences = []
    for row, is_defined, n in zip(rows, defined.tolist(), samples.tolist(), strict=True):
        if is_defined:
            differences.append(Difference(**dict(zip(columns, row, strict=True))))
        else:
            differences.append(Difference(n=n))
    return differences


_Formula = Callable[[Composite, PairedStratum, PairedStratum], list[Difference]]
DIFFERENCES: Mapping[str, _Formula] = {
    Metric.SCORE: score_differences,
    Metric.DETECTION_RATE: lambda _, malicious, harmless: rate_differences(malicious),
    Metric.ACCEPTANCE_RATE: lambda _, malicious, harmless: rate_differences(harmless),
}
"""The metrics that pairs of guards are compared in, in the order of documents."""


class PairedScores(Generic[Key]):
    """The values of several sides on the same samples, compared pair by pair."""

    def __init__(
        self, samples: AskedSamples, values: Mapping[Key, Ints], composite: Composite
    ) -> None:
        """Take values in the order of the samples, as `values_of` returns them."""
        self._samples = samples
        self._values = values
        self._composite = composite
        self._labels = [
            Stratum(samples.cluster, samples.malicious),
            Stratum(samples.cluster, ~samples.malicious),
        ]

    @cached_property
    def _categories(self) -> dict[str, Stratum]:
        """Malicious samples by category."""
        kinds = self._samples.kinds
        categories = {kind.category for kind in kinds if kind.target is TrueLabel.MALICIOUS}
        strata = {}
        for name in sorted(category for category in categories if category is not None):
            of_category = [k.target is TrueLabel.MALICIOUS and k.category == name for k in kinds]
            # By sample, looked up by the number of its kind.
            chosen = np.array(of_category, bool)[self._samples.kind]
            strata[name] = Stratum(self._samples.cluster, chosen)
        return strata

    def scores(
        self, pairs: Sequence[tuple[Key, Key]], added: Callable[[slice], Floats] | None = None
    ) -> list[Difference]:
        """Return how the scores of pairs differ, p not adjusted.

        Args:
            added: Of pairs from one place to another, variance that the samples do not show.
        """
        differences: list[Difference] = []
        for part, a, b in self._parts(pairs):
            further = None if added is None else added(part)
            malicious, harmless = (PairedStratum(stratum, a, b) for stratum in self._labels)
            del a, b  # of millions of samples the strata are enough
            differences += score_differences(self._composite, malicious, harmless, further)
        return differences

    def compare(
        self, pairs: Sequence[tuple[Key, Key]], *, by_category: bool = False
    ) -> list[Comparison]:
        """Compare pairs, p adjusted for their number, metric by metric."""
        comparisons: list[Comparison] = []
        for _, a, b in self._parts(pairs):
            comparisons += self._compared(a, b, by_category=by_category)
        return _adjusted(comparisons)

    def _parts(self, pairs: Sequence[tuple[Key, Key]]) -> Iterator[tuple[slice, Ints, Ints]]:
        """Yield pairs in groups, with the values of their sides, a row for each pair."""
        samples = max(1, len(self._samples))
        pairs_at_once = max(1, MOST_CELLS // samples)
        for start in range(0, len(pairs), pairs_at_once):
            part = slice(start, start + pairs_at_once)
            sides_a, sides_b = zip(*pairs[part], strict=True)
            yield part, self._rows(sides_a), self._rows(sides_b)

    def _rows(self, sides: Sequence[Key]) -> Ints:
        return np.stack([self._values[side] for side in sides])

    def _compared(self, a: Ints, b: Ints, *, by_category: bool) -> Iterator[Comparison]:
        malicious, harmless = (PairedStratum(stratum, a, b) for stratum in self._labels)
        metrics = {}
        for name, differences in DIFFERENCES.items():
            metrics[name] = differences(self._composite, malicious, harmless)
        of_categories = {}
        if by_category:
            for name, stratum in self._categories.items():
                of_categories[name] = rate_differences(PairedStratum(stratum, a, b))

        names = self._samples.cluster_names
        for pair in range(len(a)):
            categories = {name: of_pairs[pair] for name, of_pairs in of_categories.items()}
            yield Comparison(
                samples=int(malicious.samples[pair] + harmless.samples[pair]),
                metrics={name: of_pairs[pair] for name, of_pairs in metrics.items()},
                categories={name: rate for name, rate in categories.items() if rate.n},
                large_clusters=malicious.large_clusters(pair, names)
                | harmless.large_clusters(pair, names),
            )

    def changed(self, a: Key, b: Key) -> Iterator[tuple[int, TrueLabel, bool]]:
        """Yield the samples that two sides judge differently in most of their scored epochs.

        Yields:
            The place of a sample, its label, and whether `b` has it right. A sample that a side has
            right as often as wrong, or that it leaves unscored, is none of them.
        """
        # In most epochs: the mean is above, or below, a half of `UNIT`.
        right_a, right_b = (2 * self._values[key] > UNIT for key in (a, b))
        wrong_a, wrong_b = (_is_mostly_wrong(self._values[key]) for key in (a, b))
        differ = (right_a & wrong_b) | (wrong_a & right_b)
        for place in np.flatnonzero(differ).tolist():
            target = self._samples.kinds[self._samples.kind[place]].target
            yield place, target, bool(right_b[place])


def paired_scores(guards: Guards, rule: ScoringRule) -> PairedScores[str]:
    """Return the guards of a run as a rule set scores them, by name."""
    values = {}
    for guard in guards.guards:
        values[guard.name] = scored_values(guard.finding, guards.samples.malicious, rule)
    return PairedScores(guards.samples, values, rule.composite)


def _is_mostly_wrong(values: Ints) -> Bools:
    return np.asarray((values != UNSCORED) & (2 * values < UNIT))


def _adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    metrics = _adjusted_by_name([each.metrics for each in comparisons])
    categories = _adjusted_by_name([each.categories for each in comparisons])
    return [
        replace(each, metrics=of_metrics, categories=of_categories)
        for each, of_metrics, of_categories in zip(comparisons, metrics, categories, strict=True)
    ]


def _adjusted_by_name(pairs: Sequence[Mapping[str, Difference]]) -> list[dict[str, Difference]]:
    by_name: defaultdict[str, dict[int, Difference]] = defaultdict(dict)
    for place, pair in enumerate(pairs):
        for name, difference in pair.items():
            by_name[name][place] = difference
    result = [dict(pair) for pair in pairs]
    for name, differences in by_name.items():
        for place, adjusted in holm_adjusted(differences).items():
            result[place][name] = adjusted
    return result
