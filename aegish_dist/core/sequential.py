"""Sequential reading: an interval that may be looked at after every verdict, and when to stop.

An interval for a fixed number of samples is wrong in one of twenty looks, so repeated looks find
differences that are not there. A confidence sequence covers at all looks together: with probability
1 - alpha it contains the true value at every moment, and asking may stop once it excludes a value.

In random order the increments of clusters (`core.increments`) have mean zero under the true value.
Their sum `S` is compared with a boundary on the sum of their squares `V`, the two-sided normal
mixture (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021, "Time-uniform, nonparametric,
nonasymptotic confidence sequences", Annals of Statistics 49)::

    |S| < sqrt((V + rho) * log((V + rho) / (rho * alpha ** 2)))

With a sum of squares as `V` it holds at every number of clusters where increments are symmetric (de
la Pena 1999, Lemma 6.1; Howard et al. 2020, "Time-uniform Chernoff bounds via nonnegative
supermartingales", Table 3), as those of two models that answer alike are: however few answers are
discordant, however unequal the clusters, whatever the dependence within them. Elsewhere it is an
asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024, "Time-uniform
central limit theory and asymptotic confidence sequences", Annals of Statistics 52).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from aegish_dist.core.increments import Increments, SampleMeans, SampleOrder, add_up

ALPHA = 0.05
"""Probability that any decision of a run is wrong; its pairs share it."""
EXPECTED_VARIANCE = 0.2
"""Variance of a sample's contribution for which the boundary is narrowest: a fifth of the answers
discordant. A wrong guess costs width. With half of it, models that differ by the margin in few
clusters only would be called alike too often: `benchmarks/sequential.py`, its last table."""
EXPECTED_SHARE = 0.5
"""Share of the dataset at which it is narrowest."""
BISECTIONS = 60


class Answer(StrEnum):
    """An answer of a confidence sequence about a value and a margin."""

    OPEN = "open"
    ABOVE = "above"
    BELOW = "below"
    WITHIN = "within"
    """It is less than the margin away from the reference."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The two-sided normal mixture, for one error probability."""

    alpha: float
    """Probability of crossing it at any time, in (0, 1)."""
    rho: float
    """Where it is narrowest; positive, in units of the sum of squares."""

    @classmethod
    def narrowest_at(cls, v: float, alpha: float) -> "Boundary":
        """Choose `rho` for a sum of squares, to a good approximation."""
        log_term = 2 * math.log(1 / alpha)
        return cls(alpha, v / (log_term + math.log(1 + log_term)))

    @classmethod
    def of(cls, order: SampleOrder, alpha: float) -> "Boundary":
        """Choose `rho` from the size of a dataset, before anything is answered."""
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
        """Return the values between two bounds that are not excluded."""
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
    high: float
    """Upper bound."""
    answer: Answer
    clusters: int
    samples: int


def read_difference(
    order: SampleOrder, a: SampleMeans, b: SampleMeans, boundary: Boundary, margin: float
) -> SequentialReading:
    """Read how far the score of `b` lies above that of `a`.

    Args:
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
        target: Score to reach, in [0, 1].
        margin: A smaller distance does not matter, in (0, 1).
    """
    increments = add_up(order, a.means.__getitem__, a.complete)
    return _read(increments, boundary, (0.0, target, 1.0), margin)


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
