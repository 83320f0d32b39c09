"""Two sides on the same samples: what each cluster adds to a difference, and to its uncertainty.

Values are counted in integers of 2^-60, so that no sum depends on the order of its input.

The same samples on many sides, in columns: every pair of them without a look at each cell.

What a side adds to a cluster is summed up once. For a pair it remains to leave out the samples
that only one of the two has scored, which are few, and to count the combinations of values.

Paired comparison of two models, or of one model in two runs, on the samples of both.

With a the baseline and b the candidate, a difference is b minus a, on samples scored on both.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count
from operator import ne
from typing import Generic, NamedTuple, Protocol, TypeVar, assert_never

from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import Composite, ScoringRule
from aegish_dist.core.tally import Findings
from aegish_dist.statistics.clusters import ClusterSum, ClusterSums, clustered_variance
from aegish_dist.statistics.paired_test import holm, mcnemar, paired_test

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


Key = TypeVar("Key")
_Group = tuple[Target, str | None]
"""A label, and a category of its samples; None: all of them."""


class SampleKind(NamedTuple):
    """Samples that no metric tells apart."""

    target: Target
    category: str | None
    """None for harmless samples."""
    cluster: str | None
    """None: each of the samples is a cluster of its own."""


@dataclass(frozen=True)
class PairedAnswers(Generic[Key]):
    """The answers of several sides about the same samples, in columns of one order."""

    kinds: Sequence[SampleKind]
    kind: Sequence[int]
    """By sample, the place of its kind in `kinds`."""
    findings: Sequence[Findings]
    """The ways in which a sample came out; the first is empty and stands for no verdict."""
    answers: Mapping[Key, Sequence[int]]
    """By side and sample, the place of its way in `findings`."""

    def cells(self, a: Key, b: Key) -> list[PairedCell]:
        """Count the samples of two sides; those that neither answered are left out."""
        counted = Counter(zip(self.kind, self.answers[a], self.answers[b], strict=True))
        kinds, findings = self.kinds, self.findings
        return [
            PairedCell(*kinds[kind], findings[of_a], findings[of_b], samples)
            for (kind, of_a, of_b), samples in counted.items()
            if of_a or of_b
        ]

    def answered(self, a: Key, b: Key) -> int:
        """Return how many samples at least one of two sides has a verdict about."""
        return sum(map(any, zip(self.answers[a], self.answers[b], strict=True)))

    def scored(self, rule: ScoringRule) -> "ScoredColumns[Key]":
        """Score the answers of all sides."""
        return ScoredColumns(self, rule)


class _Stratum(NamedTuple):
    """Samples whose values are counted together."""

    target: Target
    category: str | None
    clustered: bool

    @property
    def groups(self) -> tuple[_Group, ...]:
        """Whose samples they are."""
        everything = (self.target, None)
        if self.target is Target.HARMLESS or self.category is None:
            return (everything,)
        return everything, (self.target, self.category)


@dataclass(frozen=True)
class _Scored:
    """One side under the rule."""

    worth: list[int]
    is_scored: list[bool]
    samples: list[int]
    totals: list[int]


class ScoredColumns(Generic[Key]):
    """The values of several sides under a rule set.

    A slot is a cluster within a label or a category.
    """

    def __init__(self, answers: PairedAnswers[Key], rule: ScoringRule) -> None:
        """Prepare; a side is scored when it is first used."""
        self._answers = answers
        self._sides: dict[Key, _Scored] = {}
        self._values: dict[int | None, int] = {None: 0}
        self._worth = {
            target: [
                self._values.setdefault(value_of(target, each, rule), len(self._values))
                for each in answers.findings
            ]
            for target in Target
        }
        strata = [
            _Stratum(kind.target, kind.category, kind.cluster is not None) for kind in answers.kinds
        ]
        self._strata = list(dict.fromkeys(strata))
        numbers = {stratum: number for number, stratum in enumerate(self._strata)}
        of_kinds = [numbers[stratum] for stratum in strata]
        self._stratum = [of_kinds[kind] for kind in answers.kind]
        self._slots = _slots(answers.kinds, strata)
        self._number = sum(map(len, self._slots.values()))
        self._slots_of_kinds = [
            [self._slots[group][kind.cluster] for group in stratum.groups]
            if kind.cluster is not None
            else []
            for kind, stratum in zip(answers.kinds, strata, strict=True)
        ]

    def pair(self, a: Key, b: Key) -> PairedSamples:
        """Return the samples that are scored on two sides, as `paired_samples` of their cells."""
        of_a, of_b = self._side(a), self._side(b)
        strata = self._clusters(of_a, of_b)
        values = list(self._values)
        counted = Counter(zip(self._stratum, of_a.worth, of_b.worth, strict=True))
        for (number, worth_a, worth_b), samples in counted.items():
            value_a, value_b = values[worth_a], values[worth_b]
            if value_a is None or value_b is None:
                continue
            stratum = self._strata[number]
            for group in stratum.groups:
                strata[group].kinds[value_a, value_b] += samples
                if not stratum.clustered:
                    strata[group].unclustered[value_a, value_b] += samples
        categories = {
            category: stratum
            for (_, category), stratum in strata.items()
            if category is not None and stratum.kinds
        }
        labels = {target: strata[target, None] for target in Target}
        return PairedSamples(labels, dict(sorted(categories.items())))

    def _clusters(self, a: _Scored, b: _Scored) -> dict[_Group, PairedStratum]:
        samples, totals_a, totals_b = a.samples, a.totals, b.totals
        if a.is_scored != b.is_scored:
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

    def _side(self, side: Key) -> _Scored:
        if side not in self._sides:
            self._sides[side] = self._score(self._answers.answers[side])
        return self._sides[side]

    def _score(self, column: Sequence[int]) -> _Scored:
        by_kind = [self._worth[kind.target] for kind in self._answers.kinds]
        kinds, values = self._answers.kind, list(self._values)
        worth = [by_kind[kind][way] for kind, way in zip(kinds, column, strict=True)]
        samples, totals = [0] * self._number, [0] * self._number
        for kind, each in zip(kinds, worth, strict=True):
            value = values[each]
            if value is not None:
                for slot in self._slots_of_kinds[kind]:
                    samples[slot] += 1
                    totals[slot] += value
        return _Scored(worth, list(map(bool, worth)), samples, totals)

    def _on_both(self, a: _Scored, b: _Scored) -> tuple[list[int], list[int], list[int]]:
        """Return samples and sums by slot without the samples that one side alone has scored."""
        samples, totals_a, totals_b = list(a.samples), list(a.totals), list(b.totals)
        values = list(self._values)
        for place in compress(range(len(a.worth)), map(ne, a.is_scored, b.is_scored)):
            value_a, value_b = values[a.worth[place]], values[b.worth[place]]
            for slot in self._slots_of_kinds[self._answers.kind[place]]:
                if value_a is not None:
                    samples[slot] -= 1
                    totals_a[slot] -= value_a
                if value_b is not None:
                    totals_b[slot] -= value_b
        return samples, totals_a, totals_b


def _slots(kinds: Sequence[SampleKind], strata: Sequence[_Stratum]) -> dict[_Group, dict[str, int]]:
    """Number the clusters of each group, those of a group in a row."""
    clusters: dict[_Group, dict[str, None]] = {(target, None): {} for target in Target}
    for kind, stratum in zip(kinds, strata, strict=True):
        for group in stratum.groups:
            of_group = clusters.setdefault(group, {})
            if kind.cluster is not None:
                of_group[kind.cluster] = None
    number = count()
    return {
        group: {cluster: next(number) for cluster in of_group}
        for group, of_group in clusters.items()
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one metric between two sides; what is undefined is None."""

    a: float | None
    """The metric of the baseline, on the samples scored on both sides."""
    b: float | None
    """The metric of the candidate, on the same samples."""
    difference: float | None
    stderr: float | None
    stderr_clustered: float | None
    """Standard error, only clusters taken as independent."""
    ci_low: float | None
    """Lower end of the 95 % confidence interval."""
    ci_high: float | None
    """Upper end; above the lower one even where no sample is discordant."""
    p_value: float | None
    p_adjusted: float | None
    n: int
    clusters: int
    mde: float | None
    """Difference that would be detected with a probability of 80 % at a level of 5 %."""
    a_only: int
    """Samples that only the baseline had right; 0 where values are not binary."""
    b_only: int
    """Samples that only the candidate had right; 0 where values are not binary."""
    mcnemar_p: float | None
    """Exact, two-sided; None for values that are not binary."""

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


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences of one pair."""

    samples: int
    metrics: Mapping[str, Difference]
    categories: Mapping[str, Difference]


def compare(cells: Sequence[PairedCell], rule: ScoringRule) -> Comparison:
    """Compare two sides on the samples that the rule scores on both.

    Args:
        cells: What both sides answered; any order.

    Returns:
        The differences; `p_adjusted` is None until `adjusted` sets it.
    """
    return compare_samples(paired_samples(cells, rule), rule.composite)


def compare_samples(
    scored: PairedSamples, composite: Composite, *, by_category: bool = True
) -> Comparison:
    """Compare two sides on samples that are scored on both; as `compare`."""
    categories = scored.categories if by_category else {}
    malicious, harmless = (scored.targets[target] for target in Target)
    return Comparison(
        samples=malicious.samples + harmless.samples,
        metrics={
            "aegish_score": score_difference(composite, malicious, harmless),
            "malicious_detection_rate": _rate(malicious),
            "harmless_acceptance_rate": _rate(harmless),
        },
        categories={name: _rate(stratum) for name, stratum in categories.items()},
    )


class Stratum(Protocol):
    """Samples of one label on two sides: sample by sample, or summed up for each side."""

    @property
    def samples(self) -> int:
        """Samples scored on both sides."""

    @property
    def a(self) -> float:
        """Mean of the baseline."""

    @property
    def b(self) -> float:
        """Mean of the candidate."""

    @property
    def a_only(self) -> int:
        """Samples that only the baseline had right."""

    @property
    def b_only(self) -> int:
        """Samples that only the candidate had right."""

    @property
    def differing(self) -> set[str]:
        """Clusters whose sums differ between the sides."""

    @property
    def differing_alone(self) -> int:
        """Samples without a cluster whose values differ."""

    def differences(self, weight_a: float, weight_b: float) -> ClusterSums:
        """Return the sums of `weight_b b - weight_a a` by cluster."""

    def variance(self, weight_a: float, weight_b: float) -> float | None:
        """Return the variance of the mean of that, samples taken as independent."""


@dataclass(frozen=True, slots=True)
class _Term:
    """Samples of one label, and the weight of their means in a difference."""

    stratum: Stratum
    weight_a: float
    weight_b: float


def _rate(stratum: PairedStratum) -> Difference:
    if not stratum.samples:
        return _undefined(0)
    binary = stratum.binary
    found = _difference(stratum.a, stratum.b, [_Term(stratum, 1.0, 1.0)])
    p = mcnemar(stratum.a_only, stratum.b_only) if binary else None
    return replace(found, mcnemar_p=p)


def score_difference(composite: Composite, malicious: Stratum, harmless: Stratum) -> Difference:
    """Return the difference of the score alone; what is undefined is None."""
    if not (malicious.samples and harmless.samples):
        return _undefined(malicious.samples + harmless.samples)
    match composite:
        case Composite.BALANCED:
            a, b = ((malicious.a + harmless.a) / 2, (malicious.b + harmless.b) / 2)
            return _difference(a, b, [_Term(malicious, 0.5, 0.5), _Term(harmless, 0.5, 0.5)])
        case Composite.PRODUCT:
            # The delta method: the weight of a rate is the other one of its side. A rate of 0
            # weighs a little, or there would be no width where both are 0.
            terms = [
                _Term(one, *(max(rate, 1 / (other.samples + 2)) for rate in (other.a, other.b)))
                for one, other in ((malicious, harmless), (harmless, malicious))
            ]
            return _difference(malicious.a * harmless.a, malicious.b * harmless.b, terms)
        case _:
            assert_never(composite)


def _difference(a: float, b: float, terms: Sequence[_Term]) -> Difference:
    strata = [term.stratum.differences(term.weight_a, term.weight_b) for term in terms]
    variance = clustered_variance(strata)
    found = Difference(
        a=a,
        b=b,
        difference=b - a,
        stderr=_stderr(terms),
        stderr_clustered=None,
        ci_low=None,
        ci_high=None,
        p_value=None,
        p_adjusted=None,
        n=sum(term.stratum.samples for term in terms),
        clusters=_clusters(strata) if variance is None else variance.clusters,
        mde=None,
        a_only=sum(term.stratum.a_only for term in terms),
        b_only=sum(term.stratum.b_only for term in terms),
        mcnemar_p=None,
    )
    if variance is None:
        return found
    test = paired_test(b - a, strata, variance, _discordant(terms))
    return replace(
        found,
        stderr_clustered=math.sqrt(variance.sandwich),
        ci_low=test.ci_low,
        ci_high=test.ci_high,
        p_value=test.p_value,
        mde=test.mde,
    )


def _stderr(terms: Sequence[_Term]) -> float | None:
    variances = [term.stratum.variance(term.weight_a, term.weight_b) for term in terms]
    known = [each for each in variances if each is not None]
    return math.sqrt(math.fsum(known)) if len(known) == len(terms) else None


def _discordant(terms: Sequence[_Term]) -> int:
    named = set[str]().union(*(term.stratum.differing for term in terms))
    return len(named) + sum(term.stratum.differing_alone for term in terms)


def _clusters(strata: Sequence[ClusterSums]) -> int:
    if len(strata) == 1:
        return strata[0].clusters
    named = {cluster for stratum in strata for cluster, *_ in stratum.sums} - {None}
    alone = [each.clusters for stratum in strata for each in stratum.sums if each.cluster is None]
    return len(named) + sum(alone)


def _undefined(n: int) -> Difference:
    return Difference(
        *(None,) * 9,
        n=n,
        clusters=0,
        mde=None,
        a_only=0,
        b_only=0,
        mcnemar_p=None,
    )


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
    for name in {name for pair in pairs for name in pair}:
        with_it = [pair for pair in result if name in pair]
        for pair, p in zip(with_it, holm([pair[name].p_value for pair in with_it]), strict=True):
            pair[name] = replace(pair[name], p_adjusted=p)
    return result
