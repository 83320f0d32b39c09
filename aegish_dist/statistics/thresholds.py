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
        self._samples, self._composite = samples, composite
        # The derivative of the score by a rate; of a product it is the other rate, at most 1.
        self._slope = 0.5 if composite is Composite.BALANCED else 1.0
        self._malicious = np.repeat(samples.malicious[:, None], epochs, axis=1)
        dealt = np.ones(len(samples), bool) if among is None else among
        clusters = np.unique(samples.cluster[dealt])
        sizes = []
        for side in self._sides:
            numbers = np.searchsorted(clusters, samples.cluster[dealt & side])
            sizes.append(np.bincount(numbers, minlength=len(clusters)))
        with_clusters = [int((size > 0).sum()) for size in sizes]
        self.folds = max(1, min(FOLDS, *with_clusters))
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
        sample = np.nonzero(scored)[0]
        weights = _Weights(
            suspicion[scored],
            self._samples.malicious[sample],
            self.fold[sample],
            scored.sum(axis=1)[sample],
        )
        whole = weights.best(criterion)
        if whole is None:
            return Fit(
                FittedGuard(criterion, problem="one of the two labels has no scored verdict"), None
            )
        by_fold = [weights.best(criterion, without=fold) for fold in range(self.folds)]
        chosen = [whole if threshold is None else threshold for threshold in by_fold]
        stops = suspicion >= np.array(chosen)[self.fold][:, None]
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
        means, rates, in_sample = [], [], []
        for side in self._sides:
            epochs = np.where(side, judged.scored, 0)
            mean = SampledMean([observed(self._samples, judged.right, epochs)])
            shifts = self._shifts(judged, side.astype(float), epochs > 0)
            means.append(mean)
            rates.append(_widened(estimate(mean), _square(shifts)))
            in_sample.append(mean.value - math.fsum(shifts))
        slopes = np.full(len(self._samples), self._slope)
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
        of_label = np.where(
            self._samples.malicious,
            (among & self._samples.malicious).sum(),
            (among & ~self._samples.malicious).sum(),
        )
        moved = np.where(among, judged.right - judged.right_in_sample, 0)
        parts = weight * moved / np.maximum(1, judged.scored * of_label)
        return sums_by_place(self._samples.cluster, parts)

    def differences(
        self, guards: Mapping[str, Fit], pairs: Iterable[tuple[str, str]] | None = None
    ) -> dict[tuple[str, str], Difference]:
        """Compare the fitted scores of pairs on samples scored by both, second minus first.

        The shifts of both fits join the variance; p is adjusted for the number of pairs. Without
        pairs all are compared.
        """
        asked = list(combinations(guards, 2) if pairs is None else pairs)
        judged = {name: _judged(fit, len(self._samples)) for name, fit in guards.items()}
        values = {name: values_of(each.right, each.scored) for name, each in judged.items()}

        def added(part: slice) -> Floats:
            variances = []
            for a, b in asked[part]:
                with_mean = not guards[a].guard.criterion.fits_score
                shifts = self._shifts_of_pair(judged[a], judged[b])
                variances.append(_square(shifts, with_mean=with_mean))
            return np.array(variances)

        found = PairedScores(self._samples, values, self._composite).scores(asked, added)
        return holm_adjusted(dict(zip(asked, found, strict=True)))

    def _shifts_of_pair(self, a: JudgedSamples, b: JudgedSamples) -> Floats:
        both = (a.scored > 0) & (b.scored > 0)
        slope = np.full(len(self._samples), self._slope)
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

    def place(number: int) -> tuple[bool, bool, int, str]:
        cluster = int(clusters[number])
        dangerous, harmless = sizes[:, number].tolist()
        # A cluster without a name is known by the place of its sample.
        key = names[cluster] if cluster < len(names) else cluster - len(names)
        chance = sha256(f"{seed} {key!r}".encode()).hexdigest()
        has_both = harmless > 0
        size = harmless + dangerous
        return not dangerous, has_both, -size, chance

    return [int(clusters[number]) for number in sorted(range(len(clusters)), key=place)]


class _Weights:
    """Decisions by suspicion; those of a sample weigh as much as the sample together."""

    def __init__(self, suspicion: Floats, malicious: Bools, fold: Ints, epochs: Ints) -> None:
        self._seen, self._place = np.unique(suspicion, return_inverse=True)
        self._malicious, self._fold, self._epochs = malicious, fold, epochs
        self._numbers_of_epochs: list[int] = np.unique(epochs).tolist()
        self._whole = math.lcm(*self._numbers_of_epochs)  # the weight of a sample

    def best(self, criterion: Criterion, *, without: int | None = None) -> float | None:
        """Return the best threshold of all folds but one; None without samples of either label.

        It lies halfway between two values, below all or above all. Of several that are equally good
        it is the middle one (the lower of two), or the highest where stops cost nothing.
        """
        chosen = np.ones(len(self._fold), bool) if without is None else self._fold != without
        # By place in `seen`, what a threshold stops that lies there, in whole numbers of any size.
        kind = self._kind_of_integers(criterion)
        detected = self._from(chosen & self._malicious, kind)
        stopped = self._from(chosen & ~self._malicious, kind)
        dangerous, harmless = detected[0], stopped[0]
        if not (harmless and dangerous):
            return None
        known = np.append(np.bincount(self._place[chosen], minlength=len(self._seen)) > 0, True)
        merits = criterion.miss * detected * harmless - criterion.stop * stopped * dangerous
        allowed = known & (stopped / harmless <= criterion.max_fpr)
        equal = np.flatnonzero(allowed & (merits == merits[allowed].max()))[::-1].tolist()
        cut = equal[len(equal) // 2] if criterion.stop else equal[0]
        below = np.flatnonzero(known[:cut])
        if not len(below) or cut == len(self._seen):
            return math.inf if len(below) else -math.inf
        return halfway(float(self._seen[below[-1]]), float(self._seen[cut]))

    def _kind_of_integers(self, criterion: Criterion) -> type:
        """Return int64 where all merits fit in; Python's integers take ten times as much memory."""
        weight = self._whole * len(self._fold)  # of all decisions, at most
        greatest = max(1, criterion.miss, criterion.stop) * weight**2
        return np.int64 if greatest < _GREATEST else object

    def _from(self, chosen: Bools, kind: type) -> NDArray[Any]:
        """Return the weight from each place in `seen` on; 0 beyond the last."""
        weights: NDArray[Any] = np.zeros(len(self._seen) + 1, kind)
        for epochs in self._numbers_of_epochs:
            places = self._place[chosen & (self._epochs == epochs)]
            decisions = np.bincount(places, minlength=len(weights))
            weights += decisions.astype(kind) * (self._whole // epochs)
        return np.cumsum(weights[::-1])[::-1]


def halfway(below: float, above: float) -> float:
    """Return a threshold between two suspicions; the upper one where no number is between them."""
    middle = below / 2 + above / 2
    return middle if below < middle <= above else above


def _square(shifts: Floats, *, with_mean: bool = True) -> float:
    """Return what shifts add to a variance."""
    squares = math.fsum(shifts**2)
    if with_mean:
        squares += math.fsum(shifts) ** 2
    return squares


def _widened(found: Estimate, added: float) -> Estimate:
    """Add to the variance of an estimate that has an interval."""
    value, low, high = numbers_of(found)
    further = math.sqrt(added)
    low, high = mover(value, [value - low, Z_95 * further], [high - value, Z_95 * further])
    stderr = found.stderr_clustered
    if stderr is not None:
        stderr = math.hypot(stderr, further)
    return replace(found, stderr_clustered=stderr, ci_low=low, ci_high=high)
