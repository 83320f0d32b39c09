"""Intervals against scipy, statsmodels and published numbers."""

import pytest

from aegish_dist.statistics.rates import mover, proportion_interval, wald, wilson
from tests.oracles import proportion, stats


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (0, 7), (1, 1), (3, 9), (431, 676), (50, 50)])
def test_wilson_agrees_with_statsmodels(successes: int, n: int) -> None:
    expected = proportion.proportion_confint(successes, n, alpha=0.05, method="wilson")
    found = wilson(successes / n, n)
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [5, 30, 676])
@pytest.mark.parametrize("successes", range(6))
def test_few_successes_have_the_lower_of_wilson_and_the_exact_one_sided_bound(
    successes: int, n: int
) -> None:
    """The 5 % quantile of beta(x, n - x + 1), as Clopper and Pearson's one-sided bound."""
    exact = stats.beta.ppf(0.05, successes, n - successes + 1) if successes else 0.0
    found = proportion_interval(successes / n, n)
    assert found.low == pytest.approx(min(exact, wilson(successes / n, n).low), abs=1e-9)
    mirrored = proportion_interval(1 - successes / n, n)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((found.low, found.high), abs=1e-9)


@pytest.mark.parametrize("n", [1.0, 7.3, 40, 676, 1e6])
@pytest.mark.parametrize("successes", [10.2, 11, 15, 30])
def test_from_eleven_on_wilson_stands(successes: float, n: float) -> None:
    if successes < n:
        low = wilson(successes / n, n).low
        assert proportion_interval(successes / n, n).low == low
        assert stats.beta.cdf(low, successes, n - successes + 1) <= 0.0502


@pytest.mark.parametrize("n", [30, 200, 676])
@pytest.mark.parametrize("expected", [0.05, 0.1, 0.16, 0.5, 1.0, 3.0])
def test_rare_events_are_covered(n: int, expected: float) -> None:
    """Exact coverage where so many events are expected; Wilson's goes down to 85 %."""
    p = expected / n
    covered = sum(
        stats.binom.pmf(x, n, p)
        for x in range(n + 1)
        if (bounds := proportion_interval(x / n, n)).low <= p <= bounds.high
    )
    assert covered >= 0.945


@pytest.mark.parametrize("p", [0.0, 0.01, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("n", [1.0, 1.7, 1e7])
def test_an_interval_contains_its_value_and_has_a_width(p: float, n: float) -> None:
    found = proportion_interval(p, n)
    assert 0 <= found.low <= p <= found.high <= 1
    assert found.low < found.high


def test_intervals_are_clipped() -> None:
    wide = mover(0.4, below=[0.3, 0.4], above=[0.7])
    assert (wide.low, wide.high) == (0.0, 1.0)
    assert wald(0.99, 0.1).high == 1.0


def test_correlated_distances_add_like_correlated_errors() -> None:
    """3 and 4 make 5 if independent, 7 if the same, 1 if opposite (in hundredths)."""
    for correlation, sum_of_both in ((0.0, 0.05), (1.0, 0.07), (-1.0, 0.01)):
        found = mover(0.5, [0.03, 0.04], [0.04, 0.03], correlation)
        assert found.low == pytest.approx(0.5 - sum_of_both)
        assert found.high == pytest.approx(0.5 + sum_of_both)
