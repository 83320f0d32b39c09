"""Student's t of arrays against scipy and against that of numbers."""

import numpy as np
import pytest

from aegish_dist.statistics.distributions import t_quantile, t_two_sided
from aegish_dist.statistics.inference import beta_errors, t_quantile_each, t_two_sided_each
from tests.oracles import stats

DEGREES = np.array([1, 1.5, 2, 2.5, 6, 30.4, 388, 1e5, 1e6, 1e7])
TS = np.array([-50, -2, -0.1, 0, 1e-200, 1e-4, 0.3, 1, 12, 1e20, 1e200, np.inf])
TAILS = (0.6, 0.8, 0.975, 0.9999)


def test_tails_are_those_of_scipy_and_of_numbers() -> None:
    t, df = (each.ravel() for each in np.meshgrid(TS, DEGREES))
    found = t_two_sided_each(t, df, beta_errors(df))
    assert found == pytest.approx(2 * stats.t.sf(np.abs(t), df), abs=1e-10)
    numbers = [t_two_sided(*pair) for pair in zip(t.tolist(), df.tolist(), strict=True)]
    assert found == pytest.approx(numbers, abs=1e-12)
    assert {*found[t == 0].tolist()} == {1.0}


@pytest.mark.parametrize("p", TAILS)
def test_quantiles_are_those_of_scipy_and_of_numbers(p: float) -> None:
    found = t_quantile_each(p, DEGREES, beta_errors(DEGREES))
    assert found == pytest.approx(stats.t.ppf(p, DEGREES), rel=1e-9)
    assert found == pytest.approx([t_quantile(p, df) for df in DEGREES.tolist()], rel=1e-12)


def test_an_entry_does_not_depend_on_the_others() -> None:
    """To the last digit: a pair has one p value, whichever pairs are compared with it."""
    generator = np.random.default_rng(1)
    df = np.exp(generator.uniform(0, 15, 300))
    t = np.exp(generator.uniform(-9, 6, 300))
    errors = beta_errors(df)
    tails = t_two_sided_each(t, df, errors)
    quantiles = t_quantile_each(0.975, df, errors)
    for place in range(300):
        one = slice(place, place + 1)
        assert t_two_sided_each(t[one], df[one], beta_errors(df[one])) == tails[one]
        assert t_quantile_each(0.975, df[one], beta_errors(df[one])) == quantiles[one]
    none = df[:0]
    assert len(t_two_sided_each(t[:0], none, beta_errors(none))) == 0
    assert len(t_quantile_each(0.975, none, beta_errors(none))) == 0
