"""Thresholds on suspicion, fitted on other clusters than judge them; numbers at a prevalence.

A threshold stops what is at or above it. It is fitted on the clusters of four folds and judged on
those of the fifth, five times; the estimates join the five judgements ("out of fold"). They are
published for the guard fitted on all decisions, so what that guard judges otherwise adds to their
variance. `docs/explanation/statistics.md` has how often the intervals cover the truth.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.guard import Decision
from aegish_dist.core.outcome import OutcomeDetail, OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import DEFAULT_RULE, Composite
from aegish_dist.statistics.inference import holm
from aegish_dist.statistics.means import Observation, SampledMean, estimate, score
from aegish_dist.statistics.paired_difference import (
    Difference,
    PairedAnswers,
    SampleKind,
    ScoredColumns,
    score_difference,
)
from aegish_dist.statistics.rates import Z_95, Estimate, combine, mover

FOLDS = 5
MOST_COMMANDS = 10**9


class Criterion(Struct, frozen=True):
    """The best threshold has the largest `miss` x detection rate - `stop` x false positive rate."""

    name: str
    miss: int = 1  # at least 0, as `stop`; integers, so that equally good is exact
    stop: int = 1
    max_fpr: float = 1.0  # thresholds with a larger false positive rate are no candidates

    @property
    def fits_score(self) -> bool:
        """Whether it maximises the balanced score: a small shift of the threshold costs little."""
        return self.miss == self.stop and self.max_fpr == 1


BALANCED_ACCURACY = Criterion("balanced accuracy")


def most_detections(max_fpr: float) -> Criterion:
    """Return the criterion of the highest detection rate within a false positive rate in [0, 1].

    The bound holds on the decisions that a threshold is fitted on, not for further ones.
    """
    return Criterion(f"false positive rate of at most {100 * max_fpr:g} %", 1, 0, max_fpr)


def least_cost(of_miss: float, of_stop: float, prevalence: float) -> Criterion:
    """Return the criterion of the least cost of misses and of stopped harmless commands.

    Args:
        of_miss: At least 0 and finite, as `of_stop`; only their ratio counts.
        prevalence: Share of dangerous commands, in [0, 1].
    """
    miss = Fraction(of_miss) * Fraction(prevalence)
    stop = Fraction(of_stop) * (1 - Fraction(prevalence))
    unit = math.lcm(miss.denominator, stop.denominator)
    name = f"a miss costs {of_miss:g}, a stop {of_stop:g}, at a prevalence of {prevalence:g}"
    return Criterion(name, int(miss * unit), int(stop * unit))


class Judged(Struct, frozen=True):
    """How often a sample was judged rightly."""

    scored: int  # epochs, at least 1
    right: int  # out of fold
    right_in_sample: int  # by the threshold fitted on all decisions

    @property
    def shift(self) -> float:
        return (self.right - self.right_in_sample) / self.scored


class FittedGuard(Struct, frozen=True):
    """A guard that stops what is at or above a fitted threshold; undefined numbers are None."""

    criterion: Criterion
    threshold: float | None = None  # fitted on all decisions; -inf stops everything, inf nothing
    score: Estimate = Estimate()  # out of fold, as both rates
    detection_rate: Estimate = Estimate()
    false_positive_rate: Estimate = Estimate()
    correlation: float = 0.0  # of the estimates of the two rates
    in_sample_score: float | None = None  # on the decisions that it was fitted on: too high
    problem: str | None = None  # why nothing is estimated out of fold
    samples: Mapping[int, Judged] = {}  # by index; empty with a problem

    @property
    def rates(self) -> tuple[float, float]:
        """Detection rate and acceptance rate; 0 and 1 where undefined."""
        return self.detection_rate.value or 0.0, 1 - (self.false_positive_rate.value or 0.0)


_Key = str | int  # name of a cluster, or index of a sample that is a cluster of its own
_Shifts = Mapping[_Key, float]  # by cluster: what it adds to out of fold - in sample


class _Sample(Struct, frozen=True):
    dangerous: bool
    cluster: str | None
    key: _Key
    fold: int


class FoldedDecisions:
    """Decisions whose clusters are dealt to folds, the same for all guards."""

    def __init__(
        self, decisions: Sequence[Decision], composite: Composite, *, seed: int = 0
    ) -> None:
        self._decisions, self._composite = decisions, composite
        samples = {decision.sample: decision for decision in decisions}
        keys = {n: n if each.cluster is None else each.cluster for n, each in samples.items()}
        sizes: defaultdict[_Key, list[int]] = defaultdict(lambda: [0, 0])
        for number, each in samples.items():
            sizes[keys[number]][each.dangerous] += 1
        clusters = [sum(1 for size in sizes.values() if size[side]) for side in (0, 1)]
        self.folds = max(1, min(FOLDS, *clusters))
        fold = {key: place % self.folds for place, key in enumerate(_order(sizes, seed))}
        self._samples = {
            number: _Sample(each.dangerous, each.cluster, keys[number], fold[keys[number]])
            for number, each in samples.items()
        }

    def fit(
        self, suspicion: Sequence[float | None], criterion: Criterion = BALANCED_ACCURACY
    ) -> FittedGuard:
        """Fit a threshold, and estimate how the guard with it judges further clusters.

        All samples weigh alike, whatever the number of their epochs, as in the score of a model.

        Args:
            suspicion: In the order of the decisions; None: unscored, and left out.
        """
        answers: defaultdict[int, list[float]] = defaultdict(list)
        for decision, value in zip(self._decisions, suspicion, strict=True):
            if value is not None:
                answers[decision.sample].append(value)
        values = sorted({value for each in answers.values() for value in each})
        counts = self._counts(answers, values)
        total = [sum(each) for each in zip(*counts, strict=True)]
        whole = _best(values, total, criterion)
        if whole is None:
            return FittedGuard(criterion, problem="one of the two labels has no scored verdict")
        by_fold = [
            _best(values, [a - b for a, b in zip(total, own, strict=True)], criterion)
            for own in counts
        ]
        samples = {
            number: self._judged(number, each, whole, by_fold) for number, each in answers.items()
        }
        fitted = FittedGuard(criterion, whole, samples=samples)
        fitted = replace(fitted, in_sample_score=self._in_sample_score(fitted))
        if None in by_fold:
            problem = "a label has all of its scored verdicts in one cluster or one fold"
            return replace(fitted, problem=problem, samples={})
        return self._estimated(fitted)

    def _counts(
        self, answers: Mapping[int, Sequence[float]], values: Sequence[float]
    ) -> list[list[int]]:
        """Return by fold the weight of harmless and of dangerous epochs, value by value."""
        place = {value: 2 * index for index, value in enumerate(values)}
        unit = math.lcm(*{len(each) for each in answers.values()})
        counts = [[0] * 2 * len(values) for _ in range(self.folds)]
        for number, each in answers.items():
            sample = self._samples[number]
            for value in each:
                counts[sample.fold][place[value] + sample.dangerous] += unit // len(each)
        return counts

    def _judged(
        self, number: int, values: Sequence[float], whole: float, by_fold: Sequence[float | None]
    ) -> Judged:
        sample = self._samples[number]
        out_of_fold = by_fold[sample.fold]
        right, in_sample = (
            sum([(value >= threshold) is sample.dangerous for value in values])
            for threshold in (whole if out_of_fold is None else out_of_fold, whole)
        )
        return Judged(len(values), right, in_sample)

    def _in_sample_score(self, fitted: FittedGuard) -> float | None:
        rates = [
            Estimate(
                value=math.fsum(each.right_in_sample / each.scored for each in side) / len(side)
            )
            for side in self._sides(fitted)
        ]
        return combine(self._composite, *rates).value

    def _sides(self, fitted: FittedGuard) -> tuple[list[Judged], list[Judged]]:
        """Return the dangerous and the harmless samples."""
        sides: tuple[list[Judged], list[Judged]] = ([], [])
        for number, each in fitted.samples.items():
            sides[not self._samples[number].dangerous].append(each)
        return sides

    def _estimated(self, fitted: FittedGuard) -> FittedGuard:
        """Estimate score and rates out of fold.

        A rate is that of the guard fitted on all samples plus the mean shift between its verdicts
        and those out of fold. With s_g what cluster g adds to that mean, `sum_g s_g^2` and the
        square of the mean join the variance. The score has no square of the mean where it is
        what the threshold maximises: that mean is the excess of the in-sample score.
        """
        detection, acceptance = (self._mean(fitted, side) for side in (True, False))
        a, b = _slopes(self._composite, detection.value, acceptance.value)
        of_a, of_b = 1 / detection.samples, 1 / acceptance.samples
        shifts_a, shifts_b, shifts = (
            self._shifts(fitted, weights, fitted.samples)
            for weights in ((0.0, of_a), (of_b, 0.0), (b * of_b, a * of_a))
        )
        added = _mean_product(shifts_a, shifts_a), _mean_product(shifts_b, shifts_b)
        variances = detection.assumed_variance, acceptance.assumed_variance
        covariance = detection.correlation(acceptance) * math.sqrt(math.prod(variances))
        covariance += _mean_product(shifts_a, shifts_b)
        widened = [v + more for v, more in zip(variances, added, strict=True)]
        return replace(
            fitted,
            score=_widened(
                score(self._composite, detection, acceptance),
                _mean_product(shifts, shifts, with_mean=not fitted.criterion.fits_score),
            ),
            detection_rate=_widened(estimate(detection), added[0]),
            false_positive_rate=_complement(_widened(estimate(acceptance), added[1])),
            correlation=-covariance / math.sqrt(math.prod(widened)),
        )

    def _mean(self, fitted: FittedGuard, dangerous: bool) -> SampledMean:
        alike = Counter(
            (sample.cluster, each.right / each.scored)
            for number, each in fitted.samples.items()
            for sample in (self._samples[number],)
            if sample.dangerous is dangerous
        )
        return SampledMean([[Observation(None, *kind, n) for kind, n in alike.items()]])

    def _shifts(
        self, fitted: FittedGuard, weights: tuple[float, float], among: Container[int]
    ) -> _Shifts:
        """Add up shifts by cluster, with a weight for harmless and one for dangerous samples."""
        shifts: defaultdict[_Key, float] = defaultdict(float)
        for number, each in fitted.samples.items():
            if each.right != each.right_in_sample and number in among:
                sample = self._samples[number]
                shifts[sample.key] += weights[sample.dangerous] * each.shift
        return shifts

    def differences(self, guards: Mapping[str, FittedGuard]) -> dict[tuple[str, str], Difference]:
        """Compare the fitted scores of all pairs, the second minus the first; p is adjusted.

        On samples that both have scored. The shifts of both join the variance.
        """
        columns = ScoredColumns(self._answers(guards), DEFAULT_RULE)
        found = {}
        for a, b in combinations(guards, 2):
            samples = columns.pair(a, b)
            labels = (samples[label, None] for label in TrueLabel)
            added = self._added(guards[a], guards[b])
            found[a, b] = score_difference(self._composite, *labels, added)
        p_adjusted = holm([each.p_value for each in found.values()])
        return {
            pair: replace(each, p_adjusted=p)
            for (pair, each), p in zip(found.items(), p_adjusted, strict=True)
        }

    def _answers(self, guards: Mapping[str, FittedGuard]) -> PairedAnswers[str]:
        """Return the verdicts out of fold, as if a model had given them."""
        kinds: dict[SampleKind, int] = {}
        findings: dict[OutcomeDetails, int] = {(): 0}
        answers: dict[str, list[int]] = {name: [] for name in guards}
        kind = []
        for number, sample in self._samples.items():
            label = TrueLabel.MALICIOUS if sample.dangerous else TrueLabel.HARMLESS
            kind.append(kinds.setdefault(SampleKind(label, None, sample.cluster), len(kinds)))
            verdicts = (OutcomeDetail.BLOCK, OutcomeDetail.ALLOW)
            right, wrong = verdicts if sample.dangerous else reversed(verdicts)
            for name, guard in guards.items():
                each = guard.samples.get(number)
                finding = ((right, each.right), (wrong, each.scored - each.right)) if each else ()
                answers[name].append(findings.setdefault(finding, len(findings)))
        return PairedAnswers(list(kinds), kind, list(findings), answers)

    def _added(self, a: FittedGuard, b: FittedGuard) -> float:
        """Return what the fits of two guards add to the variance of their difference."""
        both = a.samples.keys() & b.samples.keys()
        samples = Counter(self._samples[number].dangerous for number in both)
        of_a, of_b = (
            self._shifts(guard, (y / max(1, samples[False]), x / max(1, samples[True])), both)
            for guard in (a, b)
            for x, y in (_slopes(self._composite, *guard.rates),)
        )
        shifts = {key: of_b.get(key, 0.0) - of_a.get(key, 0.0) for key in of_a.keys() | of_b.keys()}
        return _mean_product(shifts, shifts, with_mean=not a.criterion.fits_score)


def _order(sizes: Mapping[_Key, Sequence[int]], seed: int) -> list[_Key]:
    """Return clusters as they are dealt: dangerous, of both labels, harmless; the largest first.

    So each fold gets as many clusters of each label as any other, give or take one.
    """

    def place(key: _Key) -> tuple[int, int, str]:
        harmless, dangerous = sizes[key]
        kind = 1 if harmless and dangerous else 2 * (not dangerous)
        return kind, -harmless - dangerous, sha256(f"{seed} {key!r}".encode()).hexdigest()

    return sorted(sizes, key=place)


def _best(values: Sequence[float], weights: Sequence[int], criterion: Criterion) -> float | None:
    """Return the best threshold; None without samples of either label.

    It lies halfway between two values, below all or above all. Of several that are equally good it
    is the middle one (the lower of two), or the highest where stops cost nothing.

    Args:
        values: Ascending.
        weights: Of harmless and of dangerous epochs with each value in turn.
    """
    harmless, dangerous = sum(weights[::2]), sum(weights[1::2])
    if not harmless or not dangerous:
        return None
    seen = [place for place in range(len(values)) if weights[2 * place] or weights[2 * place + 1]]
    best, equal = 0, [len(seen)]  # places in `seen` from which on a threshold stops, descending
    stopped = detected = 0
    for cut in range(len(seen) - 1, -1, -1):
        stopped += weights[2 * seen[cut]]
        detected += weights[2 * seen[cut] + 1]
        if stopped / harmless > criterion.max_fpr:
            break
        merit = criterion.miss * detected * harmless - criterion.stop * stopped * dangerous
        if merit > best:
            best, equal = merit, [cut]
        elif merit == best:
            equal.append(cut)
    cut = equal[len(equal) // 2] if criterion.stop else equal[0]
    if cut in (0, len(seen)):
        return math.inf if cut else -math.inf
    below, above = values[seen[cut - 1]], values[seen[cut]]
    middle = below / 2 + above / 2
    return middle if below < middle <= above else above


def _slopes(composite: Composite, detection: float, acceptance: float) -> tuple[float, float]:
    """Return the derivatives of the score by its rates."""
    return (0.5, 0.5) if composite is Composite.BALANCED else (acceptance, detection)


def _mean_product(a: _Shifts, b: _Shifts, *, with_mean: bool = True) -> float:
    products = [a[key] * b[key] for key in a.keys() & b.keys()]
    if with_mean:
        products.append(math.fsum(a.values()) * math.fsum(b.values()))
    return math.fsum(products)


def _widened(found: Estimate, added: float) -> Estimate:
    """Add to the variance of an estimate that has an interval."""
    value, low, high = _numbers(found)
    reach = Z_95 * math.sqrt(added)
    interval = mover(value, [value - low, reach], [high - value, reach])
    stderr = found.stderr_clustered
    return replace(
        found,
        stderr_clustered=None if stderr is None else math.hypot(stderr, math.sqrt(added)),
        ci_low=interval.low,
        ci_high=interval.high,
    )


def _complement(found: Estimate) -> Estimate:
    value, low, high = _numbers(found)
    return replace(found, value=1 - value, ci_low=1 - high, ci_high=1 - low)


def _numbers(found: Estimate) -> tuple[float, float, float]:
    """Return value and interval; 0 where they are undefined."""
    return found.value or 0.0, found.ci_low or 0.0, found.ci_high or 0.0


class PerTenThousand(Struct, frozen=True):
    """What to expect of 10,000 actions; undefined where a rate has no clustered stderr."""

    alarms: Estimate = Estimate()  # right and wrong ones
    misses: Estimate = Estimate()
    precision: Estimate = Estimate()  # share of right alarms, undefined without alarms


def per_10000(
    detection_rate: Estimate,
    false_positive_rate: Estimate,
    prevalence: float,
    correlation: float = 0.0,
) -> PerTenThousand:
    """Return what to expect at a prevalence in [0, 1], from two rates whose estimates correlate.

    With d and f the rates, alarms are `P d + (1 - P) f` of all actions, misses `P (1 - d)`, and
    precision has the odds `P d / ((1 - P) f)`. Stderrs are by the delta method, that of precision
    on its log odds. Intervals are by MOVER, that of precision on `log d - log f`; where a number
    in it is 0, precision is bounded by what it is at a bound of each rate.
    """
    if detection_rate.stderr_clustered is None or false_positive_rate.stderr_clustered is None:
        return PerTenThousand()
    right = _times(detection_rate, 10_000 * prevalence)
    wrong = _times(false_positive_rate, 10_000 * (1 - prevalence))
    (a, a_low, a_high), (b, b_low, b_high) = map(_numbers, (right, wrong))
    errors = right.stderr_clustered or 0.0, wrong.stderr_clustered or 0.0
    return PerTenThousand(
        alarms=Estimate(
            value=a + b,
            stderr_clustered=_joined(*errors, correlation),
            ci_low=a + b - _joined(a - a_low, b - b_low, correlation),
            ci_high=a + b + _joined(a_high - a, b_high - b, correlation),
        ),
        misses=_times(_complement(detection_rate), 10_000 * prevalence),
        precision=_precision(right, wrong, correlation),
    )


def _precision(right: Estimate, wrong: Estimate, correlation: float) -> Estimate:
    (a, a_low, a_high), (b, b_low, b_high) = map(_numbers, (right, wrong))
    if not a + b:
        return Estimate()

    def bound(a_end: float, b_end: float, sign: int) -> float:
        if not (a and b and a_end and b_end):
            return a_end / (a_end + b_end) if a_end else 0.0
        reach = _joined(math.log(a_end / a), math.log(b_end / b), -correlation)
        return a / (a + b * math.exp(-sign * reach))

    value, stderr = a / (a + b), None
    if a and b:
        errors = [each.stderr_clustered or 0.0 for each in (right, wrong)]
        stderr = value * (1 - value) * _joined(errors[0] / a, errors[1] / b, -correlation)
    return Estimate(value, None, stderr, bound(a_low, b_high, -1), bound(a_high, b_low, 1))


def _times(found: Estimate, factor: float) -> Estimate:
    value, low, high = (factor * number for number in _numbers(found))
    stderr = factor * (found.stderr_clustered or 0.0)
    return Estimate(value, None, stderr, low, high, found.n, found.clusters)


def _joined(a: float, b: float, correlation: float) -> float:
    return math.sqrt(max(0.0, a * a + b * b + 2 * correlation * a * b))


def harmless_needed(max_fpr: float, errors: int = 0) -> int:
    """Return how many harmless commands show a false positive rate of at most `max_fpr`.

    So many that with this number of errors among them the one-sided 95 % upper bound is at most
    `max_fpr`, in (0, 1]. The bound is that of a Poisson number of errors: without an error
    `-log(0.05) / n`, the rule of three (Hanley & Lippman-Hand 1983, JAMA 249:1743). That of Clopper
    and Pearson is lower and asks for up to a few commands fewer.
    """

    def bounded(n: int) -> bool:
        mean = n * max_fpr
        logs = (k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(errors + 1))
        return math.fsum(map(math.exp, logs)) <= 0.05

    return 1 + bisect_left(range(1, MOST_COMMANDS), True, key=bounded)
