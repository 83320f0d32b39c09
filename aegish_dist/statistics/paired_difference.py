"""The paired difference of two sides on the samples that both have scored: b minus a.

The values of a side are summed by cluster once. A pair then leaves out the few samples that only
one of its sides has scored. Values are integers of 2^-60, so no sum depends on the order of its
input.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, product
from operator import add, itemgetter, or_
from re import finditer
from typing import Generic, NamedTuple, Self, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from aegish_dist.core.metric import COMPARED
from aegish_dist.core.outcome import OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.opinions.scoring import Composite, ScoringRule
from aegish_dist.opinions.suspicion import Guards
from aegish_dist.statistics.inference import (
    ClusterSum,
    ClusterSums,
    clustered_variance,
    holm,
    mcnemar,
    paired_test,
)

UNIT = 1 << 60  # the value of a right answer: fine enough for means over epochs

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
        answers = {
            side(guard.name): [
                findings.setdefault(
                    tuple(sorted(Counter(filter(None, row)).items())), len(findings)
                )
                for row in zip(*[iter(guard.findings)] * epochs, strict=True)
            ]
            for guard in guards.guards
        }
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

    @property
    def samples(self) -> int:
        return self.kinds.total()

    @property
    def binary(self) -> bool:
        """Whether every sample is either right or wrong on each side."""
        return all(a in (0, UNIT) and b in (0, UNIT) for a, b in self.kinds)

    @property
    def discordant(self) -> tuple[int, int]:
        """Samples that only the baseline, or only the candidate, had right; 0 if not binary."""
        return (self.kinds[UNIT, 0], self.kinds[0, UNIT]) if self.binary else (0, 0)

    @property
    def means(self) -> tuple[float, float]:
        a, b = (
            sum(values[side] * samples for values, samples in self.kinds.items()) for side in (0, 1)
        )
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


class _Scored(Struct, frozen=True):
    values: str  # one character per sample: its place in the list of values; 0: unscored
    having: Mapping[int, int]  # by value, an integer with a bit for each sample of that value
    unscored: set[int]
    samples: Sequence[int]
    totals: Sequence[int]


class ScoredColumns(Generic[Key]):
    """The values of several sides under a rule set. A slot is a cluster in a label or category."""

    def __init__(
        self, answers: PairedAnswers[Key], rule: ScoringRule, *, by_category: bool = False
    ) -> None:
        self._answers, self._composite = answers, rule.composite
        values: dict[int | None, int] = {None: 0}
        worth = {
            target: [
                values.setdefault(_value(target, each, rule), len(values))
                for each in answers.findings
            ]
            for target in TrueLabel
        }
        self._values = list(values)
        self._worth = [worth[kind.target] for kind in answers.kinds]
        strata = [
            (_groups(kind, by_category=by_category), kind.cluster is not None)
            for kind in answers.kinds
        ]
        self._strata = list(dict.fromkeys(strata))
        """Groups that count the same samples, and whether these samples have clusters."""
        of_kinds = [chr(self._strata.index(stratum)) for stratum in strata]
        of_samples = "".join(map(of_kinds.__getitem__, answers.kind))
        self._samples = _bits(of_samples, range(len(self._strata)))  # by place of a stratum
        self._slots = _slots(answers.kinds, [groups for groups, _ in strata])
        self._slots_of_kinds = [
            [self._slots[group][kind.cluster] for group in groups if kind.cluster is not None]
            for kind, (groups, _) in zip(answers.kinds, strata, strict=True)
        ]
        # One number per sample combines its kind and a side's answers.
        first_codes = [kind * len(answers.findings) for kind in answers.kind]
        self._sides = {
            side: self._score(list(map(add, first_codes, column)))
            for side, column in answers.answers.items()
        }

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
        right = list(map(_is_mostly_right, self._values))
        columns = zip(self._sides[a].values, self._sides[b].values, strict=True)
        for place, (value_a, value_b) in enumerate(columns):
            judged = right[ord(value_a)], right[ord(value_b)]
            if judged in ((True, False), (False, True)):
                kind = self._answers.kinds[self._answers.kind[place]]
                yield place, kind.target, judged == (False, True)

    def pair(self, a: Key, b: Key) -> PairedSamples:
        """Return the samples that are scored on two sides; a category may have none."""
        of_a, of_b = self._sides[a], self._sides[b]
        found = self._clusters(of_a, of_b)
        for (value_a, with_a), (value_b, with_b) in product(
            of_a.having.items(), of_b.having.items()
        ):
            with_both = with_a & with_b
            for number, of_stratum in self._samples.items() if with_both else ():
                samples = (with_both & of_stratum).bit_count()
                groups, clustered = self._strata[number]
                for group in groups if samples else ():
                    found[group].kinds[value_a, value_b] += samples
                    if not clustered:
                        found[group].unclustered[value_a, value_b] += samples
        return found

    def _clusters(self, a: _Scored, b: _Scored) -> dict[_Group, PairedStratum]:
        samples, totals_a, totals_b = a.samples, a.totals, b.totals
        if a.unscored != b.unscored:
            samples, totals_a, totals_b = self._on_both(a, b)
        found, first = {}, 0
        for group, slots in self._slots.items():
            part = slice(first, first := first + len(slots))
            sums = zip(samples[part], totals_a[part], totals_b[part], strict=True)
            clusters = dict(zip(slots, sums, strict=True))
            if 0 in samples[part]:
                clusters = {name: each for name, each in clusters.items() if each[0]}
            found[group] = PairedStratum(clusters=clusters)
        return found

    def _on_both(self, a: _Scored, b: _Scored) -> tuple[list[int], list[int], list[int]]:
        """Return samples and sums by slot, without samples that only one side has scored."""
        samples, totals_a, totals_b = list(a.samples), list(a.totals), list(b.totals)
        for place in a.unscored ^ b.unscored:
            value_a, value_b = (self._values[ord(each.values[place])] for each in (a, b))
            for slot in self._slots_of_kinds[self._answers.kind[place]]:
                if value_a is not None:
                    samples[slot] -= 1
                    totals_a[slot] -= value_a
                if value_b is not None:
                    totals_b[slot] -= value_b
        return samples, totals_a, totals_b

    def _score(self, codes: Sequence[int]) -> _Scored:
        number = sum(map(len, self._slots.values()))
        samples, totals = [0] * number, [0] * number
        value_of: dict[int, str] = {}
        for code, alike in Counter(codes).items():
            kind, way = divmod(code, len(self._answers.findings))
            place = self._worth[kind][way]
            value_of[code], value = chr(place), self._values[place]
            if value is not None:
                for slot in self._slots_of_kinds[kind]:
                    samples[slot] += alike
                    totals[slot] += alike * value
        values = "".join(map(value_of.__getitem__, codes))
        scored = {place: value for place, value in enumerate(self._values) if value is not None}
        having = {scored[place]: bits for place, bits in _bits(values, scored).items()}
        unscored = {each.start() for each in finditer("\0", values)}
        return _Scored(values, having, unscored, samples, totals)


def _bits(column: str, places: Iterable[int]) -> dict[int, int]:
    """Return for each place an integer with a bit for each row of the column with that place."""
    no = dict.fromkeys(map(ord, set(column)), "0")
    return {place: int(column.translate({**no, place: "1"}), 2) for place in places if place in no}


def _is_mostly_right(value: int | None) -> bool | None:
    """Return whether a sample is right in most of its scored epochs; None if in half or none."""
    if value is None or 2 * value == UNIT:
        return None
    return 2 * value > UNIT


def _value(target: TrueLabel, findings: OutcomeDetails, rule: ScoringRule) -> int | None:
    """Return the mean over the scored epochs of a sample, in 2^-60; None without one."""
    count = rule.count_right(target, findings)
    return round(count.right * UNIT / count.scored) if count.scored else None


def _slots(
    kinds: Sequence[SampleKind], groups_of_kinds: Sequence[tuple[_Group, ...]]
) -> dict[_Group, dict[str, int]]:
    """Number the clusters of each group; the clusters of one group are consecutive."""
    clusters: dict[_Group, dict[str, None]] = {(target, None): {} for target in TrueLabel}
    for kind, groups in zip(kinds, groups_of_kinds, strict=True):
        for group in groups:
            of_group = clusters.setdefault(group, {})
            if kind.cluster is not None:
                of_group[kind.cluster] = None
    number = count()
    return {
        group: {cluster: next(number) for cluster in of_group}
        for group, of_group in clusters.items()
    }


class Difference(Struct, frozen=True):
    """The difference of one metric between two sides; what is undefined is None."""

    a: float | None = None  # metric of the baseline, on samples scored on both sides
    b: float | None = None
    difference: float | None = None
    stderr: float | None = None
    stderr_clustered: float | None = None  # only clusters taken as independent
    ci_low: float | None = None  # of the 95 % confidence interval
    ci_high: float | None = None  # above `ci_low` even where no sample is discordant
    p_value: float | None = None
    p_adjusted: float | None = None
    n: int = 0
    clusters: int = 0
    mde: float | None = None  # difference found with a power of 80 % at a level of 5 %
    a_only: int = 0  # samples only the baseline had right; 0 where not binary
    b_only: int = 0
    mcnemar_p: float | None = None  # exact, two-sided; None where not binary

    @property
    def turned(self) -> "Difference":
        """The same with baseline and candidate exchanged."""
        return replace(
            self,
            a=self.b,
            b=self.a,
            difference=_minus(self.difference),
            ci_low=_minus(self.ci_high),
            ci_high=_minus(self.ci_low),
            a_only=self.b_only,
            b_only=self.a_only,
        )


def _minus(value: float | None) -> float | None:
    return None if value is None else 0.0 - value  # not `-value`: reports would show `-0.0`


LARGE_CLUSTER = 0.25  # of a label's samples; beyond, intervals of high rates cover too little


class Comparison(Struct, frozen=True):
    samples: int
    metrics: Mapping[str, Difference]
    categories: Mapping[str, Difference]
    large_clusters: Mapping[str, float] = {}
    """Clusters with more than `LARGE_CLUSTER` of the samples of a label, and that share."""


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
        large_clusters={
            cluster: samples / stratum.samples
            for stratum in (malicious, harmless)
            for cluster, (samples, *_) in sorted(stratum.clusters.items())
            if samples > max(1, LARGE_CLUSTER * stratum.samples)
        },
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
    sides = zip(malicious.means, harmless.means, strict=True)
    if composite is Composite.BALANCED:
        a, b = ((detection + acceptance) / 2 for detection, acceptance in sides)
        return _difference(a, b, (malicious, 0.5, 0.5), (harmless, 0.5, 0.5), added=added)

    # The delta method: the weight of a rate is the other rate of its side. A rate of 0 weighs a
    # little, or there would be no width where both are 0.
    def term(own: PairedStratum, other: PairedStratum) -> _Term:
        weight_a, weight_b = (max(rate, 1 / (other.samples + 2)) for rate in other.means)
        return own, weight_a, weight_b

    a, b = (detection * acceptance for detection, acceptance in sides)
    return _difference(a, b, term(malicious, harmless), term(harmless, malicious), added=added)


def _difference(a: float, b: float, *terms: _Term, added: float = 0.0) -> Difference:
    strata = [stratum.differences(*weights) for stratum, *weights in terms]
    variance = clustered_variance(strata)
    independent = [stratum.variance(*weights) for stratum, *weights in terms]
    a_only, b_only = map(sum, zip(*(stratum.discordant for stratum, *_ in terms), strict=True))
    found = Difference(
        a=a,
        b=b,
        difference=b - a,
        stderr=None if None in independent else math.sqrt(math.fsum(filter(None, independent))),
        n=sum(stratum.samples for stratum, *_ in terms),
        clusters=_clusters(strata) if variance is None else variance.clusters,
        a_only=a_only,
        b_only=b_only,
    )
    if variance is None:
        return found
    differing = {
        cluster
        for stratum, *_ in terms
        for cluster, (_, of_a, of_b) in stratum.clusters.items()
        if of_a != of_b
    }
    alone = ((each, n) for stratum, *_ in terms for each, n in stratum.unclustered.items())
    discordant = len(differing) + sum(n for (of_a, of_b), n in alone if of_a != of_b)
    return replace(
        found,
        stderr_clustered=math.sqrt(variance.sandwich + added),
        **paired_test(b - a, strata, variance, discordant, added),
    )


def _clusters(strata: Sequence[ClusterSums]) -> int:
    """Count the clusters; a cluster in several strata counts once."""
    if len(strata) == 1:
        return strata[0].clusters
    named = {cluster for stratum in strata for cluster, *_ in stratum.sums} - {None}
    alone = [each.clusters for stratum in strata for each in stratum.sums if each.cluster is None]
    return len(named) + sum(alone)


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with Holm's p over all pairs, metric by metric, in their order."""
    metrics, categories = (
        _adjusted([getattr(each, part) for each in comparisons])
        for part in ("metrics", "categories")
    )
    return [
        replace(each, metrics=of_metrics, categories=of_categories)
        for each, of_metrics, of_categories in zip(comparisons, metrics, categories, strict=True)
    ]


def _adjusted(pairs: Sequence[Mapping[str, Difference]]) -> list[dict[str, Difference]]:
    result = [dict(pair) for pair in pairs]
    for name in {name for pair in pairs for name in pair}:
        with_it = {place: pair[name] for place, pair in enumerate(pairs) if name in pair}
        for place, found in holm_adjusted(with_it).items():
            result[place][name] = found
    return result


def holm_adjusted(found: Mapping[Key, Difference]) -> dict[Key, Difference]:
    """Return the differences with Holm's p over all of them."""
    p_values = holm([each.p_value for each in found.values()])
    pairs = zip(found.items(), p_values, strict=True)
    return {key: replace(each, p_adjusted=p) for (key, each), p in pairs}
