"""The same samples on many sides, in columns: every pair of them without a look at each cell.

What a side adds to a cluster is summed up once. For a pair it remains to leave out the samples
that only one of the two has scored, which are few, and to count the combinations of values.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import ne
from typing import Generic, NamedTuple, TypeVar

from aegish_dist.core.paired import PairedCell, PairedSamples, PairedStratum, value_of
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.tally import Findings

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
