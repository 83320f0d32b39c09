"""The level of all tests, and those that need counts or p values alone: McNemar's, Holm's."""

from collections.abc import Sequence

from aegish_dist.core.distributions import binomial_cdf

LEVEL = 0.05
"""Of a test; two sides are called different at an adjusted p below it."""


def mcnemar(a_only: int, b_only: int) -> float:
    """Return the exact two-sided p of McNemar's test, from the discordant samples.

    Args:
        a_only: Samples that only one side had right.
        b_only: Samples that only the other had right.
    """
    return min(1.0, 2 * binomial_cdf(min(a_only, b_only), a_only + b_only, 0.5))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p values adjusted for their number (Holm 1979, Scand. J. Statistics 6:65).

    The family-wise error rate is kept whatever the tests depend on. None stays None and counts as
    no test.
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    result: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        result[index] = largest
    return result
