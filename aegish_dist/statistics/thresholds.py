"""Thresholds on suspicion, fitted on other clusters than judge them; numbers at a prevalence.

A threshold stops what is at or above it. It is fitted on the clusters of four folds and judged on
those of the fifth, five times; the estimates join the five judgements ("out of fold"). They are
published for the guard fitted on all decisions, so what that guard judges otherwise adds to their
variance. `docs/explanation/statistics.md` has how often the intervals cover the truth.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from itertools import combinations

from msgspec.structs import replace

from aegish_dist.core.metric import (
    Criterion,
    Difference,
    Estimate,
    FittedGuard,
    Judged,
    PerTenThousand,
)
from aegish_dist.opinions.scoring import Composite
from aegish_dist.opinions.suspicion import Decision
from aegish_dist.statistics.means import Observation, SampledMean, estimate, score
from aegish_dist.statistics.paired_difference import (
    PairedStratum,
    holm_adjusted,
    in_units,
    score_difference,
)
from aegish_dist.statistics.rates import Z_95, mover

FOLDS = 5


BALANCED_ACCURACY = Criterion("balanced accuracy")


def most_detections(max_fpr: float) -> Criterion:
    """Bound the false positive rate, on the decisions that a threshold is fitted on."""
    return Criterion(f"false positive rate of at most {100 * max_fpr:g} %", 1, 0, max_fpr)


def least_cost(of_miss: float, of_stop: float, prevalence: float) -> Criterion:
    """Minimise what misses and stopped harmless commands cost at a prevalence in [0, 1].

    Costs are finite and at least 0; only their ratio counts.
    """
    miss = Fraction(of_miss) * Fraction(prevalence)
    stop = Fraction(of_stop) * (1 - Fraction(prevalence))
    unit = math.lcm(miss.denominator, stop.denominator)
    name = f"a miss costs {of_miss:g}, a stop {of_stop:g}, at a prevalence of {prevalence:g}"
    return Criterion(name, int(miss * unit), int(stop * unit))


_Key = str | int  # name of a cluster, or index of a sample that is a cluster of its own
_Shifts = Mapping[_Key, float]  # by cluster: what it adds to out of fold - in sample
_Weights = dict[tuple[float, bool, int], int]  # by suspicion, whether dangerous, and fold
_Term = tuple[FittedGuard, float, float]  # and the weights of detection and acceptance rate


class FoldedDecisions:
    """Decisions whose clusters are dealt to folds, the same for all guards.

    `fold` has them by index of the sample: five, or as many as each label has clusters.
    """

    def __init__(
        self, decisions: Sequence[Decision], composite: Composite, *, seed: int = 0
    ) -> None:
        self._decisions, self._composite = decisions, composite
        # The derivative of the score by a rate; of a product it is the other rate, at most 1.
        self._slope = 0.5 if composite is Composite.BALANCED else 1.0
        self._samples = {decision.sample: decision for decision in decisions}
        sizes: defaultdict[_Key, list[int]] = defaultdict(lambda: [0, 0])
        for sample in self._samples.values():
            sizes[sample.unit][sample.dangerous] += 1
        clusters = (sum(1 for size in sizes.values() if size[side]) for side in (0, 1))
        self.folds = max(1, min(FOLDS, *clusters))
        fold = {key: place % self.folds for place, key in enumerate(_order(sizes, seed))}
        self.fold = {number: fold[sample.unit] for number, sample in self._samples.items()}

    def fit(
        self, suspicion: Sequence[float | None], criterion: Criterion = BALANCED_ACCURACY
    ) -> FittedGuard:
        """Fit a threshold, and estimate how the guard with it judges further clusters.

        All samples weigh alike, whatever the number of their epochs, as in the score of a model.
        The suspicion is in the order of the decisions; None, unscored, is left out.
        """
        given = zip(self._decisions, suspicion, strict=True)
        rows = [(each, value) for each, value in given if value is not None]
        scored = Counter(each.sample for each, _ in rows)
        unit = math.lcm(*scored.values())
        weights: _Weights = defaultdict(int)
        for each, value in rows:
            weights[value, each.dangerous, self.fold[each.sample]] += unit // scored[each.sample]
        whole = _best(weights, criterion)
        if whole is None:
            return FittedGuard(criterion, problem="one of the two labels has no scored verdict")
        by_fold = [_best(weights, criterion, without=fold) for fold in range(self.folds)]
        chosen = [whole if threshold is None else threshold for threshold in by_fold]
        judged = ((d, value >= chosen[self.fold[d.sample]], value >= whole) for d, value in rows)
        fitted = replace(self.judge(criterion, judged), threshold=whole)
        if None not in by_fold:
            return fitted
        problem = "a label has all of its scored verdicts in one cluster or one fold"
        in_sample_score = fitted.in_sample_score
        return FittedGuard(criterion, whole, in_sample_score=in_sample_score, problem=problem)

    def judge(
        self, criterion: Criterion, rows: Iterable[tuple[Decision, bool, bool]]
    ) -> FittedGuard:
        """Estimate how a guard judges further clusters, whatever chose it.

        A row has a decision, whether the guard chosen without its fold stops it, and whether the
        one chosen with all folds does.
        """
        scored, right, right_in_sample = Counter[int](), Counter[int](), Counter[int]()
        for decision, stops, stopped in rows:
            scored[decision.sample] += 1
            right[decision.sample] += stops is decision.dangerous
            right_in_sample[decision.sample] += stopped is decision.dangerous
        samples = {n: Judged(scored[n], right[n], right_in_sample[n]) for n in scored}
        return self._estimated(FittedGuard(criterion, samples=samples))

    def _estimated(self, fitted: FittedGuard) -> FittedGuard:
        """Estimate score and rates out of fold, for the guard fitted on all samples.

        What that guard judges otherwise is a shift of a mean, to which cluster g adds s_g. To the
        variance of a rate it adds `sum_g s_g^2` and the square of the shift; to that of the score
        only the sum where the threshold maximises the score, since the shift is then the excess
        of the in-sample score.
        """
        means = [self._mean(fitted, side) for side in (True, False)]
        rates, in_sample = [], []
        for mean, slopes in zip(means, ((1, 0), (0, 1)), strict=True):
            shifts = self._shifts([(fitted, *slopes)], fitted.samples)
            rates.append(_widened(estimate(mean), _square(shifts)))
            in_sample.append(mean.value - math.fsum(shifts.values()))
        shifts = self._shifts([(fitted, self._slope, self._slope)], fitted.samples)
        added = _square(shifts, with_mean=not fitted.criterion.fits_score)
        return replace(
            fitted,
            score=_widened(score(self._composite, *means), added),
            detection_rate=rates[0],
            false_positive_rate=scaled(rates[1], -1, 1),
            in_sample_score=self._composite.score(*in_sample),
        )

    def _mean(self, fitted: FittedGuard, dangerous: bool) -> SampledMean:
        alike: Counter[tuple[str | None, float]] = Counter()
        for number, judged in fitted.samples.items():
            sample = self._samples[number]
            if sample.dangerous is dangerous:
                alike[sample.cluster, judged.right / judged.scored] += 1
        return SampledMean([[Observation(None, *kind, n) for kind, n in alike.items()]])

    def _shifts(self, terms: Sequence[_Term], among: Collection[int]) -> _Shifts:
        """Return the shift of a sum of weighted detection and acceptance rates, by cluster."""
        shifts: defaultdict[_Key, float] = defaultdict(float)
        samples = Counter(self._samples[number].dangerous for number in among)
        for fitted, of_detection, of_acceptance in terms:
            for number, judged in fitted.samples.items():
                moved = judged.right - judged.right_in_sample
                if moved and number in among:
                    sample = self._samples[number]
                    weight = of_detection if sample.dangerous else of_acceptance
                    weight /= judged.scored * samples[sample.dangerous]
                    shifts[sample.unit] += weight * moved
        return shifts

    def differences(
        self, guards: Mapping[str, FittedGuard], pairs: Iterable[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], Difference]:
        """Compare the fitted scores of pairs on samples scored by both, second minus first.

        The shifts of both fits join the variance; p is adjusted for the number of pairs. Without
        pairs all are compared.
        """
        pairs = combinations(guards, 2) if pairs is None else pairs
        return holm_adjusted({(a, b): self._difference(guards[a], guards[b]) for a, b in pairs})

    def _difference(self, a: FittedGuard, b: FittedGuard) -> Difference:
        malicious, harmless = PairedStratum(), PairedStratum()
        common = a.samples.keys() & b.samples.keys()
        for number in common:
            sample, of_a, of_b = self._samples[number], a.samples[number], b.samples[number]
            value_a = in_units(of_a.right, of_a.scored)
            value_b = in_units(of_b.right, of_b.scored)
            stratum = malicious if sample.dangerous else harmless
            stratum.add(sample.cluster, value_a, value_b, 1)
        slope = self._slope
        shifts = self._shifts([(a, -slope, -slope), (b, slope, slope)], common)
        added = _square(shifts, with_mean=not a.criterion.fits_score)
        return score_difference(self._composite, malicious, harmless, added)


def _order(sizes: Mapping[_Key, Sequence[int]], seed: int) -> list[_Key]:
    """Return clusters as they are dealt: dangerous, of both labels, harmless; the largest first.

    So each fold gets as many clusters of each label as any other, give or take one.
    """

    def place(key: _Key) -> tuple[bool, bool, int, str]:
        harmless, dangerous = sizes[key]
        chance = sha256(f"{seed} {key!r}".encode()).hexdigest()
        return not dangerous, harmless > 0, -harmless - dangerous, chance

    return sorted(sizes, key=place)


def _best(given: _Weights, criterion: Criterion, *, without: int | None = None) -> float | None:
    """Return the best threshold of all folds but one; None without samples of either label.

    It lies halfway between two values, below all or above all. Of several that are equally good it
    is the middle one (the lower of two), or the highest where stops cost nothing.
    """
    weights: defaultdict[float, list[int]] = defaultdict(lambda: [0, 0])
    for (value, is_dangerous, fold), weight in given.items():
        if fold != without:
            weights[value][is_dangerous] += weight
    harmless, dangerous = (sum(each[side] for each in weights.values()) for side in (0, 1))
    if not (harmless and dangerous):
        return None
    seen = sorted(weights)
    best, equal = 0, [len(seen)]  # from which place in `seen` on a threshold stops, descending
    stopped = detected = 0
    for cut in range(len(seen) - 1, -1, -1):
        stopped += weights[seen[cut]][0]
        detected += weights[seen[cut]][1]
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
    return halfway(seen[cut - 1], seen[cut])


def halfway(below: float, above: float) -> float:
    """Return a threshold between two suspicions; the upper one where no number is between them."""
    middle = below / 2 + above / 2
    return middle if below < middle <= above else above


def _square(shifts: _Shifts, *, with_mean: bool = True) -> float:
    """Return what shifts add to a variance."""
    squares = [shift * shift for shift in shifts.values()]
    if with_mean:
        squares.append(math.fsum(shifts.values()) ** 2)
    return math.fsum(squares)


def _widened(found: Estimate, added: float) -> Estimate:
    """Add to the variance of an estimate that has an interval."""
    value, low, high = _numbers(found)
    further = math.sqrt(added)
    low, high = mover(value, [value - low, Z_95 * further], [high - value, Z_95 * further])
    stderr = found.stderr_clustered
    if stderr is not None:
        stderr = math.hypot(stderr, further)
    return replace(found, stderr_clustered=stderr, ci_low=low, ci_high=high)


def scaled(found: Estimate, factor: float, offset: float = 0.0) -> Estimate:
    value, *ends = (offset + factor * number for number in _numbers(found))
    plain, clustered = (e and abs(factor) * e for e in (found.stderr, found.stderr_clustered))
    return Estimate(value, plain, clustered, min(ends), max(ends), found.n, found.clusters)


def _numbers(found: Estimate) -> tuple[float, float, float]:
    """Return value and interval, which are defined."""
    return found.value or 0.0, found.ci_low or 0.0, found.ci_high or 0.0


def per_10000(detection_rate: Estimate, fpr: Estimate, prevalence: float) -> PerTenThousand:
    """Return what to expect at a prevalence in [0, 1].

    With d and f the rates, alarms are `P d + (1 - P) f` of all actions, misses `P (1 - d)`, and
    precision has the odds `P d / ((1 - P) f)`. A threshold that moves raises or lowers both rates,
    so alarms add up their stderrs and bounds. In precision such errors cancel: it takes the rates
    as independent, by the delta method on its log odds and by MOVER on `log d - log f`; where a
    number in it is 0, precision is bounded by what it is at a bound of each rate.
    """
    if detection_rate.stderr_clustered is None or fpr.stderr_clustered is None:
        return PerTenThousand()
    p, q = 10_000 * prevalence, 10_000 * (1 - prevalence)
    right, wrong = scaled(detection_rate, p), scaled(fpr, q)
    (a, a_low, a_high), (b, b_low, b_high) = map(_numbers, (right, wrong))
    errors = right.stderr_clustered or 0.0, wrong.stderr_clustered or 0.0
    alarms = Estimate(a + b, None, sum(errors), a_low + b_low, a_high + b_high)
    misses = scaled(detection_rate, -p, p)
    if not a + b:
        return PerTenThousand(alarms, misses)

    def bound(a_end: float, b_end: float, sign: int) -> float:
        if not a_end:
            return 0.0
        if not (a and b and b_end):
            return a_end / (a_end + b_end)
        of_a, of_b = math.log(a_end / a), math.log(b_end / b)
        return a / (a + b * math.exp(-sign * math.hypot(of_a, of_b)))

    value, stderr = a / (a + b), None
    if a and b:
        stderr = value * (1 - value) * math.hypot(errors[0] / a, errors[1] / b)
    ends = bound(a_low, b_high, -1), bound(a_high, b_low, 1)
    return PerTenThousand(alarms, misses, Estimate(value, None, stderr, *ends))
