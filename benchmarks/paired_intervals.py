"""`aegish_dist.statistics.inference` for many replications at once, in numpy.

`tests/unit/statistics/test_false_positives.py` holds it to the product, digit by digit.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
LEVEL = 0.05
POWER = 0.8
MOST_DF = 1e6


class Intervals(NamedTuple):
    """Differences and their uncertainty, one entry for each replication."""

    difference: Array
    low: Array
    high: Array
    p: Array
    mde: Array


def intervals(
    sums: Array,
    sizes: Array,
    weights: Array,
    added: Array | float = 0.0,
    value: Array | None = None,
) -> Intervals:
    """Return interval and p of the weighted sum of mean differences.

    Args:
        sums: Differences b - a summed up by replication, cluster and stratum.
        sizes: Samples by cluster and stratum, the same in all replications.
        added: Variance that the samples do not show.
        value: In place of that sum.
    """
    total = sizes.sum(axis=0)
    share = sizes / total
    factors = np.where(sizes > 0, 1 / np.sqrt(1 - share), 0)
    means = sums.sum(axis=1) / total
    terms = ((sums - sizes * means[:, None, :]) / total * factors * weights).sum(axis=2)
    reduced, third = (terms**2).sum(axis=1), (terms**3).sum(axis=1)
    pseudo = _pseudo_sample(sums) * weights / total
    squares = reduced + (pseudo**2).sum(axis=1)
    cubes = (pseudo**3).sum(axis=1) / 2
    df = np.full(len(sums), MOST_DF)
    seen = reduced > 0
    ratio = squares[seen] / reduced[seen]
    df[seen] = np.minimum(MOST_DF, degrees_of_freedom(sizes, weights) * ratio**2)
    squares = squares + added
    t = special.stdtrit(df, 1 - LEVEL / 2)
    down, up = (np.maximum(0, cubes + sign * third) / squares for sign in (-1, 1))
    difference = (means * weights).sum(axis=1) if value is None else value
    slope = np.where(difference > 0, down, up)
    statistic = difference / np.sqrt(squares + slope * np.abs(difference))
    discordant = (sums != 0).any(axis=2).sum(axis=1)
    least = np.where(discordant > 0, 2.0 ** (1 - discordant), 1.0)
    low = np.maximum(-1, difference - _reach(t, squares, down))
    high = np.minimum(1, difference + _reach(t, squares, up))
    few = least >= LEVEL
    return Intervals(
        difference,
        np.where(few, np.minimum(low, 0), low),
        np.where(few, np.maximum(high, 0), high),
        np.maximum(least, 2 * special.stdtr(df, -np.abs(statistic))),
        _detectable(
            t + special.stdtrit(df, POWER),
            squares,
            np.abs(difference),
            (weights**2 * _joint_size(sums) / total).sum(axis=1),
        ),
    )


def _detectable(quantiles: Array, squares: Array, difference: Array, slope: Array) -> Array:
    found = quantiles * np.sqrt(squares)
    further = _reach(quantiles, np.maximum(0, squares - slope * difference), slope)
    return np.where(found <= difference, found, np.maximum(difference, further))


def _pseudo_sample(sums: Array) -> Array:
    return np.minimum(1, np.sqrt(_joint_size(sums)))


def _joint_size(sums: Array) -> Array:
    size, squares = np.abs(sums).sum(axis=1), (sums**2).sum(axis=1)
    return np.where(size > 0, squares / np.where(size > 0, size, 1), 1)


def _reach(t: Array, squares: Array, slope: Array) -> Array:
    half = t * t * slope / 2
    return half + np.sqrt(half * half + t * t * squares)


def degrees_of_freedom(sizes: Array, weights: Array) -> float:
    """Return Satterthwaite's degrees of freedom of CR2."""
    total = sizes.sum(axis=0)
    share = sizes / total
    x = weights * share / np.sqrt((1 - share) * total)
    diagonal = (weights**2 * share / total).sum(axis=1)
    products = (x[:, :, None] * x[:, None, :]) ** 2
    off = ((x.T @ x) ** 2).sum() - products.sum()
    return float(diagonal.sum() ** 2 / ((diagonal**2).sum() + off))
