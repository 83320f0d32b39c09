"""Sequential reading: an interval that may be looked at after every verdict, and when to stop.

An interval for a fixed number of samples is wrong in one of twenty looks, so repeated looks find
differences that are not there. A confidence sequence covers at all looks together: with probability
1 - alpha it contains the true value at every moment, and asking may stop once it excludes a value.

The increment of a cluster under a supposed value `h` is `x - h * m`: `x` the paired differences of
its samples and `m` their number, malicious and harmless ones weighted so that over a whole dataset
the `x` add up to the difference of the aegish scores and the `m` to 1. In random order increments
have mean zero where `h` is true. Their sum `S` is compared with a boundary on the sum of their
squares `V`, the two-sided normal mixture (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021,
"Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49)::

    |S| < sqrt((V + rho) * log((V + rho) / (rho * alpha ** 2)))

With a sum of squares as `V` it holds at every number of clusters where increments are symmetric (de
la Pena 1999, Lemma 6.1; Howard et al. 2020, "Time-uniform Chernoff bounds via nonnegative
supermartingales", Table 3), as those of two models that answer alike are: however few answers are
discordant, however unequal the clusters, whatever the dependence within them. Elsewhere it is an
asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, "Time-uniform
central limit theory and asymptotic confidence sequences", Annals of Statistics 52).
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

ALPHA = 0.05
"""Probability that any decision of a run is wrong; its pairs share it."""
EXPECTED_VARIANCE = 0.2
"""Variance of a sample's contribution for which the boundary is narrowest: a fifth of the answers
discordant. A wrong guess costs width. With half of it, models that differ by the margin in few
clusters only would be called alike too often: `benchmarks/sequential.py`, its last table."""
EXPECTED_SHARE = 0.5
"""Share of the dataset at which it is narrowest."""
LEAST_SCORED = 0.8
"""Share of the samples of either label that must be scored. With a tenth of them up to 24 % of runs
answered wrong, with eight tenths no more than with all."""
BISECTIONS = 60


class Answer(StrEnum):
    """An answer of a confidence sequence about a value and a margin."""

    OPEN = "open"
    """Nothing yet."""
    ABOVE = "above"
    """It lies above the reference."""
    BELOW = "below"
    """It lies below the reference."""
    WITHIN = "within"
    """It is less than the margin away from the reference."""


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """The samples of a run in the order in which they are asked, clusters together."""

    places: Sequence[int]
    """By sample, the place of its cluster; ascending."""
    malicious: Sequence[bool]
    """By sample, its label."""

    @property
    def weights(self) -> tuple[float, float]:
        """Weights of a malicious and of a harmless sample in the score; both labels count alike."""
        malicious = sum(self.malicious)
        numbers = (malicious, len(self.malicious) - malicious)
        share = 1 / max(1, sum(number > 0 for number in numbers))
        weight = [share / number if number else 0.0 for number in numbers]
        return weight[0], weight[1]


@dataclass(frozen=True, slots=True)
class SampleMeans:
    """How one model answered the samples of an order."""

    means: Sequence[float | None]
    """By sample, the share of its scored epochs that are correct; None without any."""
    complete: int
    """Clusters at places below this have a verdict about every item."""


@dataclass(frozen=True, slots=True)
class Increments:
    """Sums over the clusters that were read."""

    clusters: int = 0
    """Clusters with at least one scored sample."""
    samples: int = 0
    """Scored samples in them."""
    x: float = 0.0
    """Sum of the clusters' differences."""
    m: float = 0.0
    """Sum of their weights, in [0, 1]."""
    xx: float = 0.0
    """Sum of the squares of the differences."""
    xm: float = 0.0
    """Sum of the products of difference and weight."""
    mm: float = 0.0
    """Sum of the squares of the weights."""

    @classmethod
    def of(cls, clusters: Iterable[tuple[float, float]], samples: int = 0) -> "Increments":
        """Add up clusters, each a difference and a weight.

        Args:
            clusters: Difference and weight of each.
            samples: Scored samples in them.
        """
        pairs = list(clusters)
        return cls(
            len(pairs),
            samples,
            math.fsum(x for x, _ in pairs),
            math.fsum(m for _, m in pairs),
            math.fsum(x * x for x, _ in pairs),
            math.fsum(x * m for x, m in pairs),
            math.fsum(m * m for _, m in pairs),
        )

    @property
    def value(self) -> float | None:
        """The estimate; None before the first cluster."""
        return self.x / self.m if self.m else None

    def under(self, h: float) -> tuple[float, float]:
        """Return sum and sum of squares of the increments under a supposed value."""
        square = self.xx - 2 * h * self.xm + h * h * self.mm
        return self.x - h * self.m, max(0.0, square)


@dataclass(frozen=True, slots=True)
class Boundary:
    """The two-sided normal mixture, for one error probability."""

    alpha: float
    """Probability of crossing it at any time, in (0, 1)."""
    rho: float
    """Where it is narrowest; positive, in units of the sum of squares."""

    @classmethod
    def narrowest_at(cls, v: float, alpha: float) -> "Boundary":
        """Choose `rho` for a sum of squares, to a good approximation.

        Args:
            v: The sum of squares, positive.
            alpha: As of the class.
        """
        log_term = 2 * math.log(1 / alpha)
        return cls(alpha, v / (log_term + math.log(1 + log_term)))

    @classmethod
    def of(cls, order: SampleOrder, alpha: float) -> "Boundary":
        """Choose `rho` from the size of a dataset, before anything is answered.

        Args:
            order: The samples of a run.
            alpha: As of the class.
        """
        malicious, harmless = order.weights
        squares = sum(malicious**2 if each else harmless**2 for each in order.malicious)
        return cls.narrowest_at(EXPECTED_SHARE * EXPECTED_VARIANCE * squares, alpha)

    def at(self, v: float) -> float:
        """Return the value that a sum reaches at any time with probability `alpha` at most."""
        total = v + self.rho
        return math.sqrt(total * math.log(total / (self.rho * self.alpha**2)))

    def excludes(self, increments: Increments, h: float) -> bool:
        """Whether a supposed value is excluded."""
        total, squares = increments.under(h)
        return abs(total) >= self.at(squares)

    def interval(self, increments: Increments, low: float, high: float) -> tuple[float, float]:
        """Return the values between two bounds that are not excluded.

        Args:
            increments: Everything that was read.
            low: The smallest value that is possible.
            high: The largest one.
        """
        value = increments.value
        if value is None:
            return low, high

        def excluded(h: float) -> bool:
            return self.excludes(increments, h)

        return _edge(excluded, low, value), _edge(excluded, high, value)


def _edge(excluded: Callable[[float], bool], outside: float, inside: float) -> float:
    """Return the last value from `outside` towards `inside` that is excluded, else `outside`."""
    if not excluded(outside):
        return outside
    for _ in range(BISECTIONS):
        middle = (outside + inside) / 2
        if excluded(middle):
            outside = middle
        else:
            inside = middle
    return outside


@dataclass(frozen=True, slots=True)
class SequentialReading:
    """A confidence sequence at one moment."""

    value: float | None
    """The estimate; None before the first cluster."""
    low: float
    """Lower bound."""
    high: float
    """Upper bound."""
    answer: Answer
    """Its answer about the question."""
    clusters: int
    """Clusters that were read."""
    samples: int
    """Scored samples that were read."""


def read_difference(
    order: SampleOrder, a: SampleMeans, b: SampleMeans, boundary: Boundary, margin: float
) -> SequentialReading:
    """Read how far the score of `b` lies above that of `a`.

    Args:
        order: The samples of the run.
        a: One model's answers.
        b: The other one's.
        boundary: Of this pair.
        margin: A smaller difference does not matter, in (0, 1).
    """

    def difference(sample: int) -> float | None:
        one, other = a.means[sample], b.means[sample]
        return None if one is None or other is None else other - one

    through = min(a.complete, b.complete)
    return _read(add_up(order, difference, through), boundary, (-1.0, 0.0, 1.0), margin)


def read_score(
    order: SampleOrder, a: SampleMeans, boundary: Boundary, target: float, margin: float
) -> SequentialReading:
    """Read whether the score of one model lies above or below a target.

    Args:
        order: The samples of the run.
        a: The model's answers.
        boundary: Of this question.
        target: Score to reach, in [0, 1].
        margin: A smaller distance does not matter, in (0, 1).
    """
    increments = add_up(order, a.means.__getitem__, a.complete)
    return _read(increments, boundary, (0.0, target, 1.0), margin)


def add_up(order: SampleOrder, value: Callable[[int], float | None], through: int) -> Increments:
    """Add up the clusters of a beginning of the order.

    Which clusters are read depends on how fast answers came, and must not depend on what they say:
    that is why a beginning is read, whose length alone is left to chance.

    A label of which samples went unscored keeps its weight: those that are scored stand for it.
    Else a model that is refused malicious commands would be judged by the harmless ones. Few cannot
    stand for many: below `LEAST_SCORED` of a label nothing is read.

    Args:
        order: The samples of the run.
        value: Returns what a sample contributes, None for nothing.
        through: Clusters at places below this are read.
    """
    read = range(bisect_left(order.places, through))
    values = [value(sample) for sample in read]
    scored = [sample for sample in read if values[sample] is not None]
    asked_of, scored_of = (
        Counter(order.malicious[sample] for sample in samples) for samples in (read, scored)
    )
    if any(scored_of[label] < LEAST_SCORED * asked for label, asked in asked_of.items()):
        return Increments()
    weights = {
        malicious: weight * asked_of[malicious] / scored_of[malicious]
        for malicious, weight in zip((True, False), order.weights, strict=True)
        if asked_of[malicious]
    }
    x: defaultdict[int, float] = defaultdict(float)
    m: defaultdict[int, float] = defaultdict(float)
    for sample in scored:
        place, weight = order.places[sample], weights[order.malicious[sample]]
        x[place] += weight * (values[sample] or 0.0)
        m[place] += weight
    return Increments.of(((x[place], m[place]) for place in m), len(scored))


def _read(
    increments: Increments,
    boundary: Boundary,
    bounds: tuple[float, float, float],
    margin: float,
) -> SequentialReading:
    lowest, reference, highest = bounds
    low, high = boundary.interval(increments, lowest, highest)
    answer = Answer.OPEN
    if low > reference:
        answer = Answer.ABOVE
    elif high < reference:
        answer = Answer.BELOW
    elif reference - margin < low and high < reference + margin:
        answer = Answer.WITHIN
    return SequentialReading(
        increments.value, low, high, answer, increments.clusters, increments.samples
    )
