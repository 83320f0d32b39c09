"""Fitted probabilities against scikit-learn, and where the answers separate the labels."""

import random

import numpy as np
import pytest

from aegish_dist.statistics.logistic_regression import fitted_probabilities
from tests.oracles import linear_model


@pytest.mark.parametrize("terms", [1, 4, 12])
def test_probabilities_are_those_of_scikit_learn(terms: int) -> None:
    chance = random.Random(terms)
    rows = [[chance.choice((-1.0, 0.0, 1.0)) for _ in range(terms)] for _ in range(300)]
    successes = [float(chance.random() < 0.5 + 0.4 * row[0]) for row in rows]
    fitted = fitted_probabilities(rows, successes, [1.0] * len(rows))
    with_constant = np.column_stack([np.ones(len(rows)), rows])
    oracle = linear_model.LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000)
    expected = oracle.fit(with_constant, successes).predict_proba(with_constant)[:, 1]
    assert fitted == pytest.approx(expected, abs=1e-6)


def test_rows_that_are_alike_may_be_counted_together() -> None:
    together = fitted_probabilities([[1.0], [-1.0]], [30, 4], [40, 40])
    apart = fitted_probabilities(
        [[1.0]] * 40 + [[-1.0]] * 40, [1.0] * 30 + [0.0] * 10 + [1.0] * 4 + [0.0] * 36, [1.0] * 80
    )
    assert together == pytest.approx([apart[0], apart[-1]], abs=1e-9)


@pytest.mark.parametrize("trials", [1.0, 1_000_000.0])
def test_separated_rows_have_no_certain_probability(trials: float) -> None:
    low, high = fitted_probabilities([[-1.0], [1.0]], [0.0, trials], [trials, trials])
    assert 0 < low < 0.5 < high < 1
    assert low == pytest.approx(1 - high, abs=1e-9)


def test_without_a_column_there_is_one_share() -> None:
    (share,) = fitted_probabilities([()], [750_000.0], [1_000_000.0])
    assert share == pytest.approx(0.75, abs=1e-4)
