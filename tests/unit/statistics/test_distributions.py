"""Distribution functions against scipy, which the product does not import."""

from itertools import product

import pytest

from aegish_dist.statistics.distributions import (
    beta_cdf,
    beta_quantile,
    t_quantile,
    t_two_sided,
)
from tests.oracles import stats

PARAMETERS = (0.5, 1, 2.5, 40, 900)
LARGE = ((1e7, 0.5), (0.5, 1e7), (1e6, 2e6))
DEGREES = (1, 1.5, 2, 6, 30.4, 388, 1e5, 1e7)


@pytest.mark.parametrize(("a", "b"), [*product(PARAMETERS, PARAMETERS), *LARGE])
def test_the_beta_distribution_is_that_of_scipy(a: float, b: float) -> None:
    for x in (0, 1e-9, 1e-3, 0.1, 0.5, 0.9, 0.999, 1):
        assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=1e-11)
    for p in (0, 1e-6, 0.025, 0.5, 0.975, 1):
        assert beta_quantile(p, a, b) == pytest.approx(stats.beta.ppf(p, a, b), abs=1e-11)


@pytest.mark.parametrize("df", DEGREES)
def test_students_t_is_that_of_scipy(df: float) -> None:
    for t in (-50, -2, -0.1, 0, 0.3, 1, 12):
        assert t_two_sided(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), abs=1e-10)
    for p in (1e-4, 0.025, 0.4, 0.5, 0.6, 0.975, 0.9999):
        assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9)
