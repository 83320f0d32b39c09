"""The paired difference of two sides on the samples that both have scored: b minus a.

Values are integers of 2^-60, so no sum depends on the order of its input.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter, or_
from typing import Generic, NamedTuple, Self, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from aegish_dist.core.metric import COMPARED, Comparison, Difference
from aegish_dist.core.outcome import OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.opinions.scoring import Composite, ScoringRule
from aegish_dist.opinions.suspicion import Guards
from aegish_dist.statistics.inference import (
    ClusterSum,
    ClusterSums,
    clustered_variance,
    count_clusters,
    holm,
    mcnemar,
    paired_test,
    sum_of_known,
)

UNIT = 1 << 60  # the value of a right answer: fine enough for means over epochs
LARGE_CLUSTER = 0.25  # of a label's samples; beyond, intervals of high rates cover too little

Key = TypeVar("Key")
_Group = tuple[TrueLabel, str | None]  # a label, and a category of its samples; None: all


class SampleKind(NamedTuple):
    """Samples that no metric tells apart."""

    target: TrueLabel
    category: str | None  # None for harmless samples
    cluster: str | None  # None: each of the samples is a cluster of its own


class PairedAnswers(Struct, Generic[Key], frozen=True):
    """The answers of several sides about the same samples, in columns of one order."""

    kinds: Sequence[SampleKind]
    kind: Sequence[int]  # by sample, its place in `kinds`
    findings: Sequence[OutcomeDetails]  # of samples; the first entry, empty: no verdict
    answers: Mapping[Key, Sequence[int]]  # by side and sample, its place in `findings`
    keys: Mapping[Key, Mapping[int, int]] = field(default_factory=dict)
    """By side and place of a sample, its key in the store; empty if not asked for."""

    @classmethod
    def of(cls, guards: Guards, side: Callable[[str], Key]) -> Self:
        """Return what models and policies answered; `side` makes a key of a name."""
        epochs = guards.decisions[-1].epoch
        kinds, findings = dict[SampleKind, int](), dict[OutcomeDetails, int]({(): 0})
        about = (
            SampleKind(list(TrueLabel)[not each.dangerous], each.category, each.cluster)
            for each in guards.decisions[::epochs]
        )
        kind = [kinds.setdefault(each, len(kinds)) for each in about]
        answers = {}
        for guard in guards.guards:
            column = answers[side(guard.name)] = list[int]()
            for row in zip(*[iter(guard.findings)] * epochs, strict=True):
                counts = Counter(finding for finding in row if finding is not None)
                column.append(findings.setdefault(tuple(sorted(counts.items())), len(findings)))
        keys = dict(enumerate(guards.keys))
        return cls([*kinds], kind, [*findings], answers, dict.fromkeys(answers, keys))

    def answered(self, a: Key, b: Key) -> int:
        """Return how many samples at least one of two sides has a verdict about."""
        return sum(map(bool, map(or_, self.answers[a], self.answers[b])))


class PairedStratum(Struct):
    """Samples of one label, or of one category, that the rule scores on both sides."""

    kinds: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Number of samples by their values on both sides, in units of 2^-60."""
    unclustered: Counter[tuple[int, int]] = field(default_factory=Counter)
    clusters: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By cluster: samples, sum of the baseline, sum of the candidate."""

    def add(self, cluster: str | None, value_a: int, value_b: int, samples: int) -> None:
        self.kinds[value_a, value_b] += samples
        if cluster is None:
            self.unclustered[value_a, value_b] += samples
            return
        known, sum_a, sum_b = self.clusters.get(cluster, (0, 0, 0))
        sums = sum_a + samples * value_a, sum_b + samples * value_b
        self.clusters[cluster] = (known + samples, *sums)

    @property
    def samples(self) -> int:
        return self.kinds.total()

    @property
    def binary(self) -> bool:
        """Whether every sample is either right or wrong on each side."""
        return all(a in (0, UNIT) and b in (0, UNIT) for a, b in self.kinds)

    @property
    def large_clusters(self) -> dict[str, float]:
        """Clusters with a large part of the samples, and that share."""
        large = {}
        for cluster, (samples, *_) in sorted(self.clusters.items()):
            if samples > max(1, LARGE_CLUSTER * self.samples):
                large[cluster] = samples / self.samples
        return large

    @property
    def discordant(self) -> tuple[int, int]:
        """Samples that only the baseline, or only the candidate, had right; 0 if not binary."""
        return (self.kinds[UNIT, 0], self.kinds[0, UNIT]) if self.binary else (0, 0)

    def differing(self) -> Iterator[tuple[str | None, int]]:
        """Yield by name and number the clusters that differ between the sides."""
        for cluster, (_, of_a, of_b) in self.clusters.items():
            if of_a != of_b:
                yield cluster, 1
        for (of_a, of_b), samples in self.unclustered.items():
            if of_a != of_b:
                yield None, samples

    @property
    def means(self) -> tuple[float, float]:
        a = sum(of_a * samples for (of_a, _), samples in self.kinds.items())
        b = sum(of_b * samples for (_, of_b), samples in self.kinds.items())
        return a / UNIT / self.samples, b / UNIT / self.samples

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
        """Return the variance of the mean of `weight_b b - weight_a a`; None for one sample."""
        n = self.samples
        if n < 2:
            return None
        a, b = self.means
        mean = weight_b * b - weight_a * a
        squares = math.fsum(
            samples * ((weight_b * b - weight_a * a) / UNIT - mean) ** 2
            for (a, b), samples in self.kinds.items()
        )
        return squares / (n * (n - 1))


PairedSamples = Mapping[_Group, PairedStratum]
"""The samples that a rule set scores on both of two sides, by label, and by category if asked."""


def _groups(kind: SampleKind, *, by_category: bool) -> tuple[_Group, ...]:
    """Return the groups that samples of a kind belong to: its label, and its category."""
    of_label, of_category = (kind.target, None), (kind.target, kind.category)
    apart = by_category and kind.target is TrueLabel.MALICIOUS and kind.category is not None
    return (of_label, of_category) if apart else (of_label,)


class ScoredColumns(Generic[Key]):
    """The values of several sides under a rule set."""

    def __init__(
        self, answers: PairedAnswers[Key], rule: ScoringRule, *, by_category: bool = False
    ) -> None:
        self._answers, self._composite = answers, rule.composite
        self._groups = [_groups(kind, by_category=by_category) for kind in answers.kinds]
        worth = {
            target: [_value(target, each, rule) for each in answers.findings]
            for target in TrueLabel
        }
        self._worth = [worth[kind.target] for kind in answers.kinds]
        """By kind and place of the findings."""

    def p_of_scores(self, a: Key, b: Key) -> float | None:
        """Return p of no difference of the scores, not adjusted for other pairs."""
        samples = self.pair(a, b)
        return score_difference(
            self._composite, samples[TrueLabel.MALICIOUS, None], samples[TrueLabel.HARMLESS, None]
        ).p_value

    def changed(self, a: Key, b: Key) -> Iterator[tuple[int, TrueLabel, bool]]:
        """Yield the samples that two sides judge differently in most of their scored epochs.

        Yields:
            The place of a sample, its label, and whether `b` has it right. A sample that a side has
            right as often as wrong, or that it leaves unscored, is none of them.
        """
        for place, (kind, way_a, way_b) in enumerate(self._ways(a, b)):
            worth = self._worth[kind]
            judged = _is_mostly_right(worth[way_a]), _is_mostly_right(worth[way_b])
            if judged in ((True, False), (False, True)):
                yield place, self._answers.kinds[kind].target, judged == (False, True)

    def pair(self, a: Key, b: Key) -> PairedSamples:
        """Return the samples that are scored on two sides, in groups; a category may be absent."""
        strata = defaultdict[_Group, PairedStratum](PairedStratum)
        for target in TrueLabel:
            strata[target, None] = PairedStratum()
        for (kind, way_a, way_b), samples in Counter(self._ways(a, b)).items():
            value_a, value_b = self._worth[kind][way_a], self._worth[kind][way_b]
            if value_a is not None and value_b is not None:
                cluster = self._answers.kinds[kind].cluster
                for group in self._groups[kind]:
                    strata[group].add(cluster, value_a, value_b, samples)
        return strata

    def _ways(self, a: Key, b: Key) -> Iterator[tuple[int, int, int]]:
        """Pair up by sample its kind, and the places of what two sides have found."""
        columns = self._answers.answers
        return zip(self._answers.kind, columns[a], columns[b], strict=True)


def _is_mostly_right(value: int | None) -> bool | None:
    """Return whether a sample is right in most of its scored epochs; None if in half or none."""
    if value is None or 2 * value == UNIT:
        return None
    return 2 * value > UNIT


def _value(target: TrueLabel, findings: OutcomeDetails, rule: ScoringRule) -> int | None:
    """Return the mean over the scored epochs of a sample, in 2^-60; None without one."""
    count = rule.count_right(target, findings)
    return in_units(count.right, count.scored) if count.scored else None


def in_units(right: int, scored: int) -> int:
    """Return the share of scored epochs that are right, in 2^-60."""
    return round(right * UNIT / scored)


def compare_samples(scored: PairedSamples, composite: Composite) -> Comparison:
    """Compare two sides on samples that are scored on both; `adjusted` sets `p_adjusted`."""
    malicious, harmless = (scored[target, None] for target in TrueLabel)
    named = [(name, s) for (_, name), s in scored.items() if name is not None and s.kinds]
    differences = (
        score_difference(composite, malicious, harmless),
        *map(rate_difference, (malicious, harmless)),
    )
    return Comparison(
        samples=malicious.samples + harmless.samples,
        metrics=dict(zip(COMPARED, differences, strict=True)),
        categories={
            name: rate_difference(stratum) for name, stratum in sorted(named, key=itemgetter(0))
        },
        large_clusters=malicious.large_clusters | harmless.large_clusters,
    )


_Term = tuple[PairedStratum, float, float]  # samples of a label, weights of both sides' means


def rate_difference(stratum: PairedStratum) -> Difference:
    if not stratum.samples:
        return Difference()
    found = _difference(*stratum.means, (stratum, 1.0, 1.0))
    return replace(found, mcnemar_p=mcnemar(*stratum.discordant)) if stratum.binary else found


def score_difference(
    composite: Composite, malicious: PairedStratum, harmless: PairedStratum, added: float = 0.0
) -> Difference:
    """Return the difference of the score; `added` is variance that the samples do not show."""
    if not (malicious.samples and harmless.samples):
        return Difference(n=malicious.samples + harmless.samples)
    a, b = map(composite.score, malicious.means, harmless.means)
    if composite is Composite.BALANCED:
        return _difference(a, b, (malicious, 0.5, 0.5), (harmless, 0.5, 0.5), added=added)

    # The delta method: the weight of a rate is the other rate of its side. A rate of 0 weighs a
    # little, or there would be no width where both are 0.
    def term(own: PairedStratum, other: PairedStratum) -> _Term:
        weight_a, weight_b = (max(rate, 1 / (other.samples + 2)) for rate in other.means)
        return own, weight_a, weight_b

    return _difference(a, b, term(malicious, harmless), term(harmless, malicious), added=added)


def _difference(a: float, b: float, *terms: _Term, added: float = 0.0) -> Difference:
    paired = [stratum for stratum, *_ in terms]
    strata = [stratum.differences(*weights) for stratum, *weights in terms]
    variance = clustered_variance(strata)
    independent = sum_of_known([stratum.variance(*weights) for stratum, *weights in terms])
    sums = chain.from_iterable(stratum.sums for stratum in strata)
    found = Difference(
        a=a,
        b=b,
        difference=b - a,
        stderr=None if independent is None else math.sqrt(independent),
        n=sum(stratum.samples for stratum in paired),
        clusters=count_clusters((each.cluster, each.clusters) for each in sums),
        a_only=sum(stratum.discordant[0] for stratum in paired),
        b_only=sum(stratum.discordant[1] for stratum in paired),
    )
    if variance is None:
        return found
    discordant = count_clusters(chain.from_iterable(stratum.differing() for stratum in paired))
    return paired_test(found, strata, variance, discordant, added)


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with Holm's p over all pairs, metric by metric, in their order."""
    metrics = _adjusted([each.metrics for each in comparisons])
    categories = _adjusted([each.categories for each in comparisons])
    return [
        replace(each, metrics=of_metrics, categories=of_categories)
        for each, of_metrics, of_categories in zip(comparisons, metrics, categories, strict=True)
    ]


def _adjusted(pairs: Sequence[Mapping[str, Difference]]) -> list[dict[str, Difference]]:
    result = [dict(pair) for pair in pairs]
    for name in set[str]().union(*pairs):
        with_it = {place: pair[name] for place, pair in enumerate(pairs) if name in pair}
        for place, found in holm_adjusted(with_it).items():
            result[place][name] = found
    return result


def holm_adjusted(found: Mapping[Key, Difference]) -> dict[Key, Difference]:
    """Return the differences with Holm's p over all of them."""
    adjusted_p = holm({key: each.p_value for key, each in found.items()})
    return {key: replace(each, p_adjusted=adjusted_p[key]) for key, each in found.items()}
