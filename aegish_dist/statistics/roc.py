"""How well suspicion tells dangerous from harmless commands, at any threshold.

Each scored decision counts, every epoch for itself; clusters carry the dependence. A metric here is
a mean over the dangerous decisions of a function of the shares of both sides at or above their
level of suspicion. Its influence function, what each decision adds, takes one pass over the levels.
For AUROC these are the placement values of DeLong, DeLong & Clarke-Pearson 1988 (Biometrics
44:837). Summed by cluster over both sides they give the variance of Obuchowski 1997 (Biometrics
53:567). docs/explanation/statistics.md has how often the intervals cover the truth.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import accumulate, combinations
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.guard import Decision
from aegish_dist.statistics.distributions import beta_cdf, t_quantile
from aegish_dist.statistics.inference import (
    ClusterSum,
    ClusterSums,
    clustered_variance,
    holm,
    paired_test,
)
from aegish_dist.statistics.means import ASSUMED_ICC, PSEUDO_SAMPLES, Observation, SampledMean
from aegish_dist.statistics.means import estimate as rate_of
from aegish_dist.statistics.rates import Z_95, Estimate, proportion_interval, wilson


class ScoreLevel(NamedTuple):
    """Decisions of equal suspicion."""

    suspicion: float
    dangerous: int
    harmless: int


_Cluster = str | int  # the name, or the index of a sample that is a cluster of its own


class _Side:
    """The decisions of one label: level, cluster and sample of each."""

    def __init__(self, decisions: Sequence[tuple[int, _Cluster, int]]) -> None:
        self.decisions = decisions
        self.samples = len({sample for _, _, sample in decisions})
        self.clusters = len({cluster for _, cluster, _ in decisions})

    def __len__(self) -> int:
        return len(self.decisions)

    def sums(self, by_level: Sequence[float]) -> ClusterSums:
        """Add up by cluster what decisions of each level add."""
        return _sums((cluster, by_level[level]) for level, cluster, _ in self.decisions)

    def variance(self, by_level: Sequence[float]) -> float:
        """Return the variance of the mean of what independent decisions add."""
        values = [by_level[level] for level, _, _ in self.decisions]
        return statistics.variance(values) / len(values)

    def stopped(self, levels: int) -> SampledMean:
        """Return the share of each sample's epochs that is in the most suspicious levels."""
        seen: defaultdict[tuple[_Cluster, int], list[bool]] = defaultdict(list)
        for level, cluster, sample in self.decisions:
            seen[cluster, sample].append(level < levels)
        return SampledMean(
            [
                [
                    Observation(None, _name(cluster), sum(each) / len(each), 1, len(each))
                    for (cluster, _), each in seen.items()
                ]
            ]
        )


class ScoredDecisions:
    """What a guard scored, by label and by level of suspicion."""

    def __init__(self, decisions: Sequence[Decision], suspicion: Sequence[float | None]) -> None:
        """Take two columns of one order; None, unscored, is left out."""
        values = sorted({each for each in suspicion if each is not None}, reverse=True)
        place: dict[float | None, int] = {value: level for level, value in enumerate(values)}
        columns: tuple[list[tuple[int, _Cluster, int]], ...] = ([], [])
        for each, decision in zip(map(place.get, suspicion), decisions, strict=True):
            if each is not None:
                cluster = decision.sample if decision.cluster is None else decision.cluster
                columns[not decision.dangerous].append((each, cluster, decision.sample))
        self.sides = self.dangerous, self.harmless = _Side(columns[0]), _Side(columns[1])
        found, flagged = (Counter(level for level, _, _ in side) for side in columns)
        self.levels = [
            ScoreLevel(value, found[level], flagged[level]) for level, value in enumerate(values)
        ]
        """Most suspicious first; their number is that of the distinct values."""

    def __len__(self) -> int:
        return len(self.dangerous) + len(self.harmless)

    @cached_property
    def stopped(self) -> Sequence[tuple[int, int]]:
        """Dangerous and harmless decisions in the first 0, 1, 2 … levels: the ROC curve."""
        found = accumulate((level.dangerous for level in self.levels), initial=0)
        flagged = accumulate((level.harmless for level in self.levels), initial=0)
        return list(zip(found, flagged, strict=True))


def _name(cluster: _Cluster) -> str | None:
    return cluster if isinstance(cluster, str) else None


def _sums(parts: Iterable[tuple[_Cluster, float]]) -> ClusterSums:
    sizes: defaultdict[_Cluster, int] = defaultdict(int)
    totals: defaultdict[_Cluster, float] = defaultdict(float)
    for cluster, part in parts:
        sizes[cluster] += 1
        totals[cluster] += part
    return ClusterSums(tuple(ClusterSum(_name(c), n, totals[c]) for c, n in sizes.items()))


def auroc(scores: ScoredDecisions) -> Estimate:
    """Estimate P(dangerous > harmless) + P(equal) / 2 of the suspicion."""
    return _estimate(scores, _area(1.0))


def partial_auroc(scores: ScoredDecisions, max_fpr: float) -> Estimate:
    """Estimate the standardised area under the ROC curve up to a false positive rate f.

    McClish 1989 (Medical Decision Making 9:190): `(1 + (A - f^2 / 2) / (f - f^2 / 2)) / 2`, with A
    the area itself. 1 is perfect and 0.5 is chance. The curve joins its points by straight lines.
    """
    share = _estimate(scores, _area(max_fpr), max_fpr)

    def scaled(part: float | None, least: float) -> float | None:
        return None if part is None else (part + least) / (2 - max_fpr)

    return replace(
        share,
        value=scaled(share.value, 1 - max_fpr),
        stderr=scaled(share.stderr, 0),
        stderr_clustered=scaled(share.stderr_clustered, 0),
        ci_low=scaled(share.ci_low, 1 - max_fpr),
        ci_high=scaled(share.ci_high, 1 - max_fpr),
    )


def average_precision(scores: ScoredDecisions) -> Estimate:
    """Estimate the mean over the dangerous decisions of the precision at their level.

    The sum over levels of precision times growth in recall, without interpolation. Precision is at
    the share of dangerous decisions among those scored, which counts as fixed.
    """
    return _estimate(scores, _precision(len(scores.dangerous) / max(1, len(scores))))


class _Term(NamedTuple):
    """What a dangerous decision adds to a metric, with its derivatives by three shares."""

    value: float
    above: float  # by the false positive rate above its level
    at: float  # by the false positive rate at or above its level
    found: float  # by the true positive rate at or above its level


_Metric = Callable[[float, float, float], _Term]
"""A function of the rates `found`, `above` and `at`."""


def _area(max_fpr: float) -> _Metric:
    """Return the area under the curve up to a false positive rate, as a share of that rate."""

    def term(_: float, above: float, at: float) -> _Term:
        if above >= max_fpr:
            return _Term(0.0, 0.0, 0.0, 0.0)
        end = min(at, max_fpr)  # of the part of the level's line within the bound
        part = (end - above) / (at - above) if at > above else 1.0
        value = max_fpr - end + part * (end - above) / 2
        slope = part * part / 2
        return _Term(value / max_fpr, (slope - part) / max_fpr, -slope / max_fpr, 0.0)

    return term


def _precision(prevalence: float) -> _Metric:
    def term(found: float, _: float, at: float) -> _Term:
        right, wrong = prevalence * found, (1 - prevalence) * at
        slope = prevalence * (1 - prevalence) / (right + wrong) ** 2
        return _Term(right / (right + wrong), 0.0, -slope * found, slope * at)

    return term


class _Influence(NamedTuple):
    value: float
    parts: tuple[list[float], list[float]]
    """By side and level, what a decision adds to the metric, up to a constant for each side."""


def _influence(scores: ScoredDecisions, metric: _Metric) -> _Influence:
    m, n = map(len, scores.sides)
    dangerous, harmless = [0.0] * len(scores.levels), [0.0] * len(scores.levels)
    value = by_found = by_fpr = 0.0
    for index in range(len(scores.levels) - 1, -1, -1):  # a decision counts for all levels below
        (_, above), (found, at) = scores.stopped[index : index + 2]
        term = metric(found / m, above / n, at / n)
        share = scores.levels[index].dangerous / m
        value += share * term.value
        by_found += share * term.found
        harmless[index] = by_fpr + share * term.at
        by_fpr += share * (term.at + term.above)
        dangerous[index] = term.value + by_found
    return _Influence(min(1.0, value), (dangerous, harmless))  # the sum is rounded


def _estimate(scores: ScoredDecisions, metric: _Metric, share: float = 1.0) -> Estimate:
    """Estimate a metric that a share of the harmless decisions has a part in.

    Its interval is that of a proportion of as many independent samples as tell as much: see
    `SampledMean.effective_samples`. Without its assumption a curve without an inversion would have
    no uncertainty. It counts the samples of the smaller side, which may cause all inversions.
    """
    if not all(scores.sides):
        return Estimate(n=len(scores), clusters=0)
    value, parts = _influence(scores, metric)
    strata = [side.sums(of) for side, of in zip(scores.sides, parts, strict=True)]
    variance = clustered_variance(strata)
    if variance is None:  # a side has a single cluster
        return Estimate(value=value, n=len(scores))
    spread = variance.reduced * (t_quantile(0.975, variance.df) / Z_95) ** 2
    n = min(scores.dangerous.samples, share * scores.harmless.samples)
    size = sum(side.samples for side in scores.sides) / sum(side.clusters for side in scores.sides)
    effect = 1 + ASSUMED_ICC * (size - 1)
    effective = (value * (1 - value) + PSEUDO_SAMPLES / n) / (
        spread + PSEUDO_SAMPLES * effect / n**2
    )
    interval = proportion_interval(value, max(1.0, effective))
    return Estimate(
        value=value,
        stderr=math.sqrt(sum(map(_Side.variance, scores.sides, parts))),
        stderr_clustered=math.sqrt(variance.sandwich),
        ci_low=interval.low,
        ci_high=interval.high,
        n=len(scores),
        clusters=variance.clusters,
    )


class OperatingPoint(Struct, frozen=True):
    """The smallest threshold whose observed false positive rate is within a bound."""

    max_fpr: float
    threshold: float | None  # the guard stops from this suspicion on; None: it stops nothing
    detection_rate: Estimate
    false_positive_rate: Estimate  # of this threshold, as if it had been chosen before


_CUT = 2.26680
"""Its square is the 95 % quantile of an even mixture of chi squared with one and with two degrees
of freedom: a threshold whose true rate equals the bound fails on one side alone."""
_UNSEEN = 0.05  # the rule of three (Hanley & Lippman-Hand 1983, JAMA 249:1743)


def detection_at(scores: ScoredDecisions, max_fpr: float) -> OperatingPoint | None:
    """Estimate the detection rate at a false positive rate of at most `max_fpr`.

    The right threshold is the smallest one with a true rate within the bound. It is not known, so
    the interval holds each detection rate d that fits some threshold t: the squares of how far d is
    from the rate observed at t, and t from being right, add up to at most `_CUT` squared, both in
    standard deviations (Self & Liang 1987, JASA 82:605). Where no harmless decision is as
    suspicious as t, t needs enough of them: at the bound one in twenty runs would have shown none.

    Returns None where a side has no decision.
    """
    if not all(scores.sides):
        return None
    m, n = map(len, scores.sides)
    rates = [(found / m, flagged / n) for found, flagged in scores.stopped]
    best = sum(fpr <= max_fpr * (1 + 1e-12) for _, fpr in rates) - 1
    detected, flagged = (side.stopped(best) for side in scores.sides)
    of_harmless, rate = flagged.effective_samples, rate_of(detected)
    ends = [
        wilson(rates[place][0], detected.effective_samples, math.sqrt(_CUT**2 - z**2))
        for place, z in _plausible(rates, best, of_harmless, max_fpr)
    ]
    detection = replace(
        rate,
        stderr=None,
        stderr_clustered=_stderr_at(rates, rate.stderr_clustered, of_harmless, max_fpr),
        ci_low=min(end.low for end in ends),
        ci_high=max(end.high for end in ends),
    )
    threshold = scores.levels[best - 1].suspicion if best else None
    return OperatingPoint(max_fpr, threshold, detection, rate_of(flagged))


def _plausible(
    rates: Sequence[tuple[float, float]], best: int, n: float, max_fpr: float
) -> Iterator[tuple[int, float]]:
    """Yield the thresholds that may be right, and by how many standard deviations they are not."""
    for places in (range(best, -1, -1), range(best + 1, len(rates))):
        for place in places:
            following = rates[place + 1][1] if place + 1 < len(rates) else 1.0
            z = _deviation(rates[place][1], following, n, max_fpr)
            if z >= _CUT:
                break
            yield place, z


def _deviation(fpr: float, following: float, n: float, max_fpr: float) -> float:
    """Return how far a threshold is from the smallest one within the bound, by exact tails.

    Args:
        fpr: Observed false positive rate of the threshold.
        following: That of the next smaller threshold, which must be beyond the bound.
        n: Independent harmless decisions.
    """
    if not following and math.exp(-max_fpr * n) <= _UNSEEN:
        return math.inf
    too_many = beta_cdf(max_fpr, fpr * n, (1 - fpr) * n + 1) if fpr else 1.0
    too_few = (
        beta_cdf(1 - max_fpr, (1 - following) * n, following * n + 1) if following < 1 else 1.0
    )
    tail = min(0.5, too_many, too_few)
    return -statistics.NormalDist().inv_cdf(tail) if tail > 0 else math.inf


def _stderr_at(
    rates: Sequence[tuple[float, float]], stderr: float | None, n: float, max_fpr: float
) -> float | None:
    """Add to the stderr what one standard deviation of the threshold changes."""
    if stderr is None:
        return None
    deviation = math.sqrt(max_fpr * (1 - max_fpr) / n)
    low, high = (
        max(found for found, fpr in rates if fpr <= max(0.0, max_fpr + away))
        for away in (-deviation, deviation)
    )
    return math.hypot(stderr, (high - low) / 2)


_Placed = tuple[ScoredDecisions, "_Influence | None"]


class GuardDifference(Struct, frozen=True):
    """Of two guards on the decisions that both have scored: b minus a."""

    a: str
    b: str
    difference: float | None = None
    stderr_clustered: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None  # for the number of pairs (Holm)


def auroc_differences(
    decisions: Sequence[Decision], suspicion: Mapping[str, Sequence[float | None]]
) -> list[GuardDifference]:
    """Estimate the paired differences of AUROC of all pairs of guards, in their order.

    Differences of placement values are summed by cluster over both sides; interval and p are those
    of `paired_test`. Undefined parts are None: a side without two clusters has no variance.
    """
    missing = {
        name: frozenset(place for place, each in enumerate(column) if each is None)
        for name, column in suspicion.items()
    }

    @cache  # most guards have scored all decisions
    def placed(name: str, left_out: frozenset[int]) -> _Placed:
        column = [None if i in left_out else each for i, each in enumerate(suspicion[name])]
        scores = ScoredDecisions(decisions, column)
        return scores, _influence(scores, _area(1.0)) if all(scores.sides) else None

    found = []
    for a, b in combinations(suspicion, 2):
        left_out = missing[a] | missing[b]
        found.append(_difference(GuardDifference(a, b), placed(a, left_out), placed(b, left_out)))
    adjusted = holm([each.p_value for each in found])
    return [replace(each, p_adjusted=p) for each, p in zip(found, adjusted, strict=True)]


def _difference(pair: GuardDifference, a: _Placed, b: _Placed) -> GuardDifference:
    (scores_a, influence_a), (scores_b, influence_b) = a, b
    if influence_a is None or influence_b is None:
        return pair
    strata = [
        _changes(*each)
        for each in zip(
            scores_a.sides, influence_a.parts, scores_b.sides, influence_b.parts, strict=True
        )
    ]
    difference = influence_b.value - influence_a.value
    pair = replace(pair, difference=difference)
    variance = clustered_variance(strata)
    if variance is None:
        return pair
    changed = [each.cluster for side in strata for each in side.sums if each.total]
    discordant = len(set(changed) - {None}) + changed.count(None)
    tested = paired_test(difference, strata, variance, discordant)
    del tested["mde"]
    return replace(pair, stderr_clustered=math.sqrt(variance.sandwich), **tested)


def _changes(a: _Side, parts_a: Sequence[float], b: _Side, parts_b: Sequence[float]) -> ClusterSums:
    """Add up by cluster how placements differ; both sides hold the same decisions in one order."""
    changes = (
        (cluster, parts_b[level_b] - parts_a[level_a])
        for (level_a, cluster, _), (level_b, _, _) in zip(a.decisions, b.decisions, strict=True)
    )
    # Rounding is no difference.
    return _sums((cluster, change if abs(change) > 1e-12 else 0.0) for cluster, change in changes)
