"""Thresholds on suspicion, fitted on other clusters than judge them.

A threshold stops what is at or above it. It is fitted on the clusters of four folds and judged on
those of the fifth, five times; the estimates join the five judgements ("out of fold"). They are
published for the guard fitted on all decisions, so what that guard judges otherwise adds to their
variance. `docs/explanation/statistics.md` has how often the intervals cover the truth.
"""

import math
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from aegish_dist.core.columns import AskedSamples, Bools, Floats, Ints
from aegish_dist.core.metric import BALANCED_ACCURACY, Criterion, Difference, Estimate, FittedGuard
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics.distributions import holm_adjusted
from aegish_dist.statistics.inference import sums_by_place
from aegish_dist.statistics.means import SampledMean, estimate, observed, score
from aegish_dist.statistics.paired_difference import PairedScores, values_of
from aegish_dist.statistics.rates import Z_95, mover, numbers_of, scaled

FOLDS = 5
_GREATEST = 2**62  # of what is computed with integers of 64 bits


class JudgedSamples(Struct, frozen=True, eq=False):
    """By sample, how often it was judged rightly."""

    scored: Ints  # epochs
    right: Ints  # out of fold
    right_in_sample: Ints  # by what was chosen with all folds


class Fit(Struct, frozen=True, eq=False):
    """A guard with a threshold, or chosen in another way, and how it judged each sample."""

    guard: FittedGuard
    samples: JudgedSamples | None  # None: nothing is estimated out of fold


class FoldedDecisions:
    """Samples whose clusters are dealt to folds, the same for all guards.

    `fold` has them by sample: five, or as many as each label has clusters.
    """

    def __init__(
        self,
        samples: AskedSamples,
        composite: Composite,
        *,
        epochs: int = 1,
        seed: int = 0,
        among: Bools | None = None,
    ) -> None:
        """Deal the clusters of samples, or of some `among` them."""
        self._samples = samples
        self._composite = composite
        # The derivative of the score by a rate; of a product it is the other rate, at most 1.
        self._slope = 0.5 if composite is Composite.BALANCED else 1.0
        self._malicious = np.repeat(samples.malicious[:, None], epochs, axis=1)

        dealt = np.ones(len(samples), bool) if among is None else among
        clusters = np.unique(samples.cluster[dealt])
        sizes = []  # of each cluster, by label
        for side in self._sides:
            places = np.searchsorted(clusters, samples.cluster[dealt & side])
            sizes.append(np.bincount(places, minlength=len(clusters)))
        clusters_of_labels = [int((size > 0).sum()) for size in sizes]
        self.folds = max(1, min(FOLDS, *clusters_of_labels))

        # A sample without a cluster has a number of its own, after those of the names.
        fold_of_cluster = np.zeros(len(samples.cluster_names) + len(samples), np.int64)
        for place, cluster in enumerate(_order(samples, clusters, np.stack(sizes), seed)):
            fold_of_cluster[cluster] = place % self.folds
        self.fold = fold_of_cluster[samples.cluster]

    @property
    def _sides(self) -> tuple[Bools, Bools]:
        """By sample, whether it is malicious, and whether it is harmless."""
        return self._samples.malicious, ~self._samples.malicious

    def fit(self, suspicion: Floats, criterion: Criterion = BALANCED_ACCURACY) -> Fit:
        """Fit a threshold, and estimate how the guard with it judges further clusters.

        All samples weigh alike, whatever the number of their epochs, as in the score of a model.
        The suspicion is an array of samples x epochs; NaN, unscored, is left out.
        """
        scored = ~np.isnan(suspicion)
        whole, by_fold = self._thresholds(suspicion, scored, criterion)
        if whole is None:
            return Fit(
                FittedGuard(criterion, problem="one of the two labels has no scored verdict"), None
            )

        # Where a fold leaves one label alone, only the in-sample score below is of use.
        chosen = [whole if threshold is None else threshold for threshold in by_fold]
        threshold_of_sample = np.array(chosen)[self.fold]
        stops = suspicion >= threshold_of_sample[:, None]
        fitted = self.judge(criterion, scored, stops, suspicion >= whole)
        if None not in by_fold:
            return Fit(replace(fitted.guard, threshold=whole), fitted.samples)
        return Fit(
            FittedGuard(
                criterion,
                whole,
                in_sample_score=fitted.guard.in_sample_score,
                problem="a label has all of its scored verdicts in one cluster or one fold",
            ),
            None,
        )

    def _thresholds(
        self, suspicion: Floats, scored: Bools, criterion: Criterion
    ) -> tuple[float | None, list[float | None]]:
        """Return the best threshold of all folds, and of all but each."""
        # What this takes of memory is free again when guards are judged.
        sample, _ = np.nonzero(scored)
        weights = _Weights(
            suspicion[scored],
            self._samples.malicious[sample],
            self.fold[sample],
            scored.sum(axis=1)[sample],
        )
        by_fold = [weights.best(criterion, without=fold) for fold in range(self.folds)]
        return weights.best(criterion), by_fold

    def judge(
        self, criterion: Criterion, scored: Bools, stops: Bools, stops_in_sample: Bools
    ) -> Fit:
        """Estimate how a guard judges further clusters, whatever chose it.

        Args:
            scored: Arrays of samples x epochs, as the others.
            stops: Whether the guard stops it that was chosen without the fold of the sample.
            stops_in_sample: Whether the guard stops it that was chosen with all folds.
        """
        judged = JudgedSamples(
            scored.sum(axis=1),
            (scored & (stops == self._malicious)).sum(axis=1),
            (scored & (stops_in_sample == self._malicious)).sum(axis=1),
        )
        return Fit(self._estimated(criterion, judged), judged)

    def _estimated(self, criterion: Criterion, judged: JudgedSamples) -> FittedGuard:
        """Estimate score and rates out of fold, for the guard that was chosen with all folds.

        What that guard judges otherwise is a shift of a mean, to which cluster g adds s_g. To the
        variance of a rate it adds `sum_g s_g^2` and the square of the shift; to that of the score
        only the sum where the threshold maximises the score, since the shift is then the excess
        of the in-sample score.
        """
        means = []
        rates = []
        in_sample = []
        for side in self._sides:
            epochs = np.where(side, judged.scored, 0)
            mean = SampledMean([observed(self._samples, judged.right, epochs)])
            shifts = self._shifts(judged, side.astype(float), epochs > 0)
            means.append(mean)
            rates.append(_widened(estimate(mean), _square(shifts)))
            in_sample.append(mean.value - math.fsum(shifts))

        slopes = np.broadcast_to(self._slope, len(self._samples))
        shifts = self._shifts(judged, slopes, judged.scored > 0)
        added = _square(shifts, with_mean=not criterion.fits_score)
        return FittedGuard(
            criterion,
            score=_widened(score(self._composite, *means), added),
            detection_rate=rates[0],
            false_positive_rate=scaled(rates[1], -1, 1),
            in_sample_score=self._composite.score(*in_sample),
        )

    def _shifts(self, judged: JudgedSamples, weight: Floats, among: Bools) -> Floats:
        """Return by cluster how far a weighted sum of detection and acceptance rate shifts.

        That is what samples add to out of fold - in sample. Each rate is a mean of those `among`
        all samples that have its label.
        """
        moved = judged.right - judged.right_in_sample
        moves = np.flatnonzero(among & (moved != 0))  # few samples of a large run
        of_label = np.where(
            self._samples.malicious[moves],
            (among & self._samples.malicious).sum(),
            (among & ~self._samples.malicious).sum(),
        )
        parts = np.zeros(len(moved))
        parts[moves] = weight[moves] * moved[moves] / np.maximum(1, judged.scored[moves] * of_label)
        return sums_by_place(self._samples.cluster, parts)

    def differences(
        self, guards: Mapping[str, Fit], pairs: Iterable[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], Difference]:
        """Compare the fitted scores of pairs on samples scored by both, second minus first.

        The shifts of both fits join the variance; p is adjusted for the number of pairs. Without
        pairs all are compared.
        """
        compared = list(combinations(guards, 2) if pairs is None else pairs)
        judged = {name: _judged(fit, len(self._samples)) for name, fit in guards.items()}
        values = {}
        for name, samples in judged.items():
            values[name] = values_of(samples.right, samples.scored)

        def added(part: slice) -> Floats:
            variances = []
            for a, b in compared[part]:
                with_mean = not guards[a].guard.criterion.fits_score
                shifts = self._shifts_of_pair(judged[a], judged[b])
                variances.append(_square(shifts, with_mean=with_mean))
            return np.array(variances)

        paired = PairedScores(self._samples, values, self._composite)
        differences = paired.scores(compared, added)
        return holm_adjusted(dict(zip(compared, differences, strict=True)))

    def _shifts_of_pair(self, a: JudgedSamples, b: JudgedSamples) -> Floats:
        """Return by cluster how far the difference of two scores shifts."""
        both = (a.scored > 0) & (b.scored > 0)
        slope = np.broadcast_to(self._slope, len(self._samples))
        return self._shifts(b, slope, both) - self._shifts(a, slope, both)


def _judged(fit: Fit, samples: int) -> JudgedSamples:
    if fit.samples is not None:
        return fit.samples
    none = np.zeros(samples, np.int64)
    return JudgedSamples(none, none, none)


def _order(samples: AskedSamples, clusters: Ints, sizes: Ints, seed: int) -> list[int]:
    """Return clusters as they are dealt: dangerous, of both labels, harmless; the largest first.

    So each fold gets as many clusters of each label as any other, give or take one. Sizes are those
    of each cluster in malicious and in harmless samples.
    """
    names = samples.cluster_names

    def sort_key(place: int) -> tuple[bool, bool, int, str]:
        cluster = int(clusters[place])
        dangerous, harmless = sizes[:, place].tolist()
        # A cluster without a name is known by the place of its sample.
        known_by = names[cluster] if cluster < len(names) else cluster - len(names)
        # The seed decides between clusters of equal size, whatever the order of samples.
        chance = sha256(f"{seed} {known_by!r}".encode()).hexdigest()
        has_harmless = harmless > 0
        size = harmless + dangerous
        return not dangerous, has_harmless, -size, chance

    return [int(clusters[place]) for place in sorted(range(len(clusters)), key=sort_key)]


class _Weights:
    """Decisions by suspicion; those of a sample weigh as much as the sample together."""

    def __init__(self, suspicion: Floats, malicious: Bools, fold: Ints, epochs: Ints) -> None:
        self._values, self._place = np.unique(suspicion, return_inverse=True)
        self._malicious = malicious
        self._fold = fold
        self._epochs = epochs
        self._numbers_of_epochs: list[int] = np.unique(epochs).tolist()
        # A sample weighs a multiple of all numbers of epochs, so that each epoch's part is whole.
        self._weight_of_sample = math.lcm(*self._numbers_of_epochs)

    def best(self, criterion: Criterion, *, without: int | None = None) -> float | None:
        """Return the best threshold of all folds but one; None without samples of either label.

        It lies halfway between two values, below all or above all. Of several that are equally good
        it is the middle one (the lower of two), or the highest where stops cost nothing.
        """
        chosen = np.ones(len(self._fold), bool) if without is None else self._fold != without
        # By place in `values`, the weight that a threshold there stops, in exact whole numbers. The
        # place after the last value stops nothing.
        kind = self._kind_of_integers(criterion)
        detected = self._from_each_value_on(chosen & self._malicious, kind)
        stopped = self._from_each_value_on(chosen & ~self._malicious, kind)
        dangerous = detected[0]
        harmless = stopped[0]
        if not (harmless and dangerous):
            return None

        decisions = np.bincount(self._place[chosen], minlength=len(self._values))
        occurs = np.append(decisions > 0, True)  # in these folds; to stop nothing is always open
        # Rates with a common denominator, so that equal merits are equal numbers.
        merits = criterion.miss * detected * harmless - criterion.stop * stopped * dangerous
        allowed = occurs & (stopped / harmless <= criterion.max_fpr)
        is_best = allowed & (merits == merits[allowed].max())
        highest_first = np.flatnonzero(is_best)[::-1].tolist()
        middle = len(highest_first) // 2 if criterion.stop else 0
        cut = highest_first[middle]

        below = np.flatnonzero(occurs[:cut])
        if not len(below):
            return -math.inf
        if cut == len(self._values):
            return math.inf
        return halfway(float(self._values[below[-1]]), float(self._values[cut]))

    def _kind_of_integers(self, criterion: Criterion) -> type:
        """Return int64 where all merits fit in; Python's integers take ten times as much memory."""
        weight = self._weight_of_sample * len(self._fold)  # of all decisions, at most
        greatest = max(1, criterion.miss, criterion.stop) * weight**2
        return np.int64 if greatest < _GREATEST else object

    def _from_each_value_on(self, chosen: Bools, kind: type) -> NDArray[Any]:
        """Return for each of `values` the weight of decisions at or above it; 0 beyond the last."""
        weights: NDArray[Any] = np.zeros(len(self._values) + 1, kind)
        for epochs in self._numbers_of_epochs:
            # A sample's epochs share its weight, which all their numbers divide.
            weight_of_decision = self._weight_of_sample // epochs
            places = self._place[chosen & (self._epochs == epochs)]
            decisions = np.bincount(places, minlength=len(weights))
            weights += decisions.astype(kind) * weight_of_decision
        # Summed from the greatest value down.
        return np.cumsum(weights[::-1])[::-1]


def halfway(below: float, above: float) -> float:
    """Return a threshold between two suspicions; the upper one where no number is between them."""
    middle = below / 2 + above / 2  # below + above may be beyond the range of numbers
    return middle if below < middle <= above else above


def _square(shifts: Floats, *, with_mean: bool = True) -> float:
    """Return what shifts add to a variance."""
    squares = math.fsum(shifts**2)
    if with_mean:
        squares += math.fsum(shifts) ** 2
    return squares


def _widened(plain: Estimate, added_variance: float) -> Estimate:
    """Add to the variance of an estimate that has an interval."""
    value, low, high = numbers_of(plain)
    added_stderr = math.sqrt(added_variance)
    reach = Z_95 * added_stderr
    low, high = mover(value, [value - low, reach], [high - value, reach])
    stderr = plain.stderr_clustered
    if stderr is not None:
        stderr = math.hypot(stderr, added_stderr)
    return replace(plain, stderr_clustered=stderr, ci_low=low, ci_high=high)
