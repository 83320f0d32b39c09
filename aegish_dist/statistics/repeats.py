"""Where the variance of a score, or of a difference, comes from: commands, clusters, epochs.

Var = between / n + within / (n R) for n commands and R epochs of each (Miller 2024, "Adding Error
Bars to Evals", arXiv 2411.00640, on resampling), by the unbiased estimators of a one-way analysis
of variance: within is the pooled variance of epochs about the mean of their command, between the
variance of these means less the part that epochs contribute (Searle, Casella & McCulloch 1992,
"Variance Components", ch. 3). What commands of one cluster have in common is added: it does not
shrink when commands of the same data set are added.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from aegish_dist.core.outcome import OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import Composite, SampleAnswers, ScoringRule
from aegish_dist.core.tally import Cell
from aegish_dist.statistics.clusters import ClusterSum, ClusterSums, clustered_variance


@dataclass(frozen=True, slots=True)
class EpochCount:
    """The answers of one side about one command."""

    right: int
    scored: int
    """Scored epochs, at least 1."""

    @property
    def mean(self) -> float:
        """Share of right ones."""
        return self.right / self.scored

    @property
    def squares(self) -> float:
        """Sum of squares about the mean."""
        return self.right * (self.scored - self.right) / self.scored


@dataclass(frozen=True, slots=True)
class RepeatedSamples:
    """Commands of one cluster that came out alike on all sides."""

    cluster: str | None
    """None: each of the commands is a cluster of its own."""
    sides: tuple[EpochCount, ...]
    """One for a score, two for a difference."""
    samples: int
    """How many commands, at least 1."""


@dataclass(frozen=True, slots=True)
class RepeatedStratum:
    """Commands of one label, whose means enter the estimate with these weights."""

    repeated: tuple[RepeatedSamples, ...]
    weights: tuple[float, ...]
    """By side; that of a baseline is negative."""

    @property
    def samples(self) -> int:
        """Number of commands."""
        return sum(each.samples for each in self.repeated)

    def value(self, repeated: RepeatedSamples) -> float:
        """Return what each of these commands adds to the estimate, times the commands of all."""
        pairs = zip(self.weights, repeated.sides, strict=True)
        return math.fsum(weight * side.mean for weight, side in pairs)


@dataclass(frozen=True, slots=True)
class Components:
    """Variance of the values of the commands of one label."""

    samples: int
    between: float
    """Between commands, without the noise of epochs; with it where `within` is None."""
    within: float | None
    """Of one epoch about the mean of its command; None where no command has two scored epochs."""

    def of_mean(self, samples: float, epochs: float) -> float | None:
        """Return the variance of the mean of independent commands.

        Args:
            samples: How many commands, > 0.
            epochs: Epochs of each, > 0; may be infinite.

        Returns:
            None where the effect of epochs is unknown and they are not 1.
        """
        if self.within is None:
            return self.between / samples if epochs == 1 else None
        return (self.between + self.within / epochs) / samples


@dataclass(frozen=True, slots=True)
class SplitVariance:
    """The variance of an estimate by where it comes from."""

    strata: tuple[Components, ...]
    """By label, in the order given."""
    shared: float
    """The part that commands of one cluster have in common; negative where they offset each other,
    as do the two sides of a score about one binary."""
    clusters: int
    df: float
    reliability: float = 1.0
    """The part of `shared` that is more than chance, in [0, 1]."""

    def predicted(self, samples: Sequence[float], epochs: float) -> float | None:
        """Return the variance that a design will have.

        What is reliable of `shared` stays as it is. The rest, which few commands show by chance,
        shrinks with more commands as the independent parts do.

        Args:
            samples: By stratum, commands of the same data sets, > 0.
            epochs: Epochs of each, > 0; may be infinite.

        Returns:
            The variance, at least a tenth of what it were without clusters: an estimate of so much
            offsetting is chance. None where the effect of epochs is unknown.
        """
        parts = [
            each.of_mean(number, epochs) for each, number in zip(self.strata, samples, strict=True)
        ]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        independent = math.fsum(known)
        fewer = sum(each.samples for each in self.strata) / math.fsum(samples)
        shared = self.shared * (self.reliability + (1 - self.reliability) * fewer)
        return max(independent + shared, 0.1 * independent)


def split_variance(strata: Sequence[RepeatedStratum]) -> SplitVariance | None:
    """Split the clustered variance of the sum of the means of strata.

    Returns:
        None where a stratum has fewer than two clusters.
    """
    clustered = clustered_variance([_cluster_sums(each) for each in strata])
    if clustered is None:
        return None
    independent = math.fsum(_variance(each) / each.samples for each in strata)
    shared = clustered.reduced - independent
    return SplitVariance(
        strata=tuple(map(components, strata)),
        shared=shared,
        clusters=clustered.clusters,
        df=clustered.df,
        reliability=_reliability(strata, shared),
    )


def _reliability(strata: Iterable[RepeatedStratum], shared: float) -> float:
    """Return 1 - s^2 / shared^2, at least 0, with s^2 the variance of the shared part.

    The shared part is a sum over clusters of the products of their commands' residuals; so its
    variance is about the sum of their squares (the positive part of James & Stein 1961).
    """
    sums: defaultdict[str, float] = defaultdict(float)
    squares: defaultdict[str, float] = defaultdict(float)
    for stratum in strata:
        n = stratum.samples
        mean = math.fsum(stratum.value(each) * each.samples for each in stratum.repeated) / n
        for each in stratum.repeated:
            if each.cluster is not None:
                residual = (stratum.value(each) - mean) / n
                sums[each.cluster] += each.samples * residual
                squares[each.cluster] += each.samples * residual**2
    noise = math.fsum((sums[name] ** 2 - squares[name]) ** 2 for name in sums)
    return max(0.0, 1 - noise / shared**2) if shared else 0.0


def components(stratum: RepeatedStratum) -> Components:
    """Split the variance of the values of commands.

    An estimate of `between` below zero, which chance makes where commands hardly differ, counts as
    zero; then all variance that was seen is that of epochs.
    """
    total = _variance(stratum)
    of_sides = [_pooled(stratum.repeated, side) for side in range(len(stratum.weights))]
    if any(variance is None for variance in of_sides):
        return Components(stratum.samples, total, None)
    within = noise = 0.0
    for side, (weight, variance) in enumerate(zip(stratum.weights, of_sides, strict=True)):
        known = variance or 0.0
        reciprocals = (each.samples / each.sides[side].scored for each in stratum.repeated)
        within += weight**2 * known
        noise += weight**2 * known * math.fsum(reciprocals) / stratum.samples
    if noise > total:
        return Components(stratum.samples, 0.0, within * total / noise)
    return Components(stratum.samples, total - noise, within)


def _variance(stratum: RepeatedStratum) -> float:
    """Return the variance of the values between commands, the noise of epochs included."""
    n = stratum.samples
    values = [(stratum.value(each), each.samples) for each in stratum.repeated]
    mean = math.fsum(value * samples for value, samples in values) / n
    return math.fsum(samples * (value - mean) ** 2 for value, samples in values) / (n - 1)


def _pooled(repeated: Iterable[RepeatedSamples], side: int) -> float | None:
    """Return the variance of epochs about the mean of their command; None without repeats."""
    squares, freedom = [], 0
    for each in repeated:
        squares.append(each.samples * each.sides[side].squares)
        freedom += each.samples * (each.sides[side].scored - 1)
    return math.fsum(squares) / freedom if freedom else None


def _cluster_sums(stratum: RepeatedStratum) -> ClusterSums:
    named: dict[str, list[tuple[int, float]]] = {}
    sums = []
    for each in stratum.repeated:
        total = stratum.value(each)
        if each.cluster is None:
            sums.append(ClusterSum(None, 1, total, each.samples))
        else:
            named.setdefault(each.cluster, []).append((each.samples, each.samples * total))
    sums += [
        ClusterSum(cluster, sum(n for n, _ in parts), math.fsum(total for _, total in parts))
        for cluster, parts in named.items()
    ]
    return ClusterSums(tuple(sums), max(map(abs, stratum.weights)))


@dataclass(frozen=True, slots=True)
class Repeats:
    """Where the variance of a model's score comes from, and how much repeats would take of it."""

    rates: Mapping[TrueLabel, Components]
    """By label, the variance of correctness between commands and within them; a label of fewer than
    two scored commands is absent."""
    stderr: float | None
    """Clustered standard error of the score, as predicted from these parts; None if undefined."""
    stderr_one_more: float | None
    """The same with one more epoch of each command."""
    stderr_least: float | None
    """The same with any number of epochs: more of them do not help beyond that."""


def repeats_of(cells: Iterable[Cell], rule: ScoringRule) -> Repeats | None:
    """Split the variance of a model's score; None where no command has two scored epochs."""
    cells = tuple(cells)
    # A hundred thousand cells hold a handful of ways to come out; each is judged once.
    ways = {(cell.target, cell.findings) for cell in cells}
    counts = {way: epoch_count(*way, rule) for way in ways}
    if all(count is None or count.scored < 2 for count in counts.values()):
        return None
    epochs = max(sum(number for _, number in findings) for _, findings in ways)
    kinds: Counter[_Kind] = Counter()
    for cell in cells:
        count = counts[cell.target, cell.findings]
        if count is not None:
            kinds[cell.target, cell.cluster, (count,)] += cell.samples
    strata = _strata(kinds, rule.composite)
    rates = {
        target: components(RepeatedStratum(stratum.repeated, (1.0,)))
        for target, stratum in strata.items()
        if stratum.samples > 1
    }
    predicted = _predicted(list(strata.values()), (epochs, epochs + 1, math.inf))
    return Repeats(rates, *predicted)


def _predicted(
    strata: Sequence[RepeatedStratum], epochs: Iterable[float]
) -> Iterable[float | None]:
    split = split_variance(strata) if len(strata) == len(TrueLabel) else None
    for number in epochs:
        samples = [stratum.samples for stratum in strata]
        variance = None if split is None else split.predicted(samples, number)
        yield None if variance is None else math.sqrt(variance)


def repeated_strata(
    samples: Iterable[SampleAnswers], models: Sequence[str], rule: ScoringRule
) -> dict[TrueLabel, RepeatedStratum]:
    """Return by label the commands that are scored for all of one or two models.

    Args:
        models: One for its score; a baseline and a candidate for their difference.
    """
    kinds: Counter[_Kind] = Counter()
    for sample in samples:
        counts = [
            epoch_count(sample.target, sample.findings.get(model, ()), rule) for model in models
        ]
        known = tuple(count for count in counts if count is not None)
        if len(known) == len(models):
            kinds[sample.target, sample.cluster, known] += 1
    return _strata(kinds, rule.composite)


def epoch_count(
    target: TrueLabel, findings: OutcomeDetails, rule: ScoringRule
) -> EpochCount | None:
    """Count the right ones of a command's scored epochs; None without one."""
    right, scored = rule.count_right(target, findings)
    return EpochCount(right, scored) if scored else None


_Kind = tuple[TrueLabel, str | None, tuple[EpochCount, ...]]


def _strata(kinds: Counter[_Kind], composite: Composite) -> dict[TrueLabel, RepeatedStratum]:
    """Return the commands by label, weighted as in the score; the first of two sides negative."""
    by_label = {
        target: tuple(
            RepeatedSamples(cluster, counts, number)
            for (label, cluster, counts), number in kinds.items()
            if label is target
        )
        for target in TrueLabel
    }
    weights = {
        target: _weights(composite, by_label[_other(target)], by_label[target])
        for target in TrueLabel
    }
    return {
        target: RepeatedStratum(repeated, weights[target])
        for target, repeated in by_label.items()
        if repeated
    }


def _weights(
    composite: Composite, others: Sequence[RepeatedSamples], own: Sequence[RepeatedSamples]
) -> tuple[float, ...]:
    sides = range(len(own[0].sides) if own else 0)
    signs = [1.0] if len(sides) == 1 else [-1.0, 1.0]
    match composite:
        case Composite.BALANCED:
            return tuple(signs[side] / 2 for side in sides)
        case Composite.PRODUCT:
            # The delta method: the weight of a rate is the other one.
            return tuple(signs[side] * _mean(others, side) for side in sides)
        case _:
            assert_never(composite)


def _mean(repeated: Sequence[RepeatedSamples], side: int) -> float:
    samples = sum(each.samples for each in repeated)
    total = math.fsum(each.samples * each.sides[side].mean for each in repeated)
    return total / samples if samples else 0.0


def _other(target: TrueLabel) -> TrueLabel:
    return TrueLabel.HARMLESS if target is TrueLabel.MALICIOUS else TrueLabel.MALICIOUS
