"""Logistic regression with a penalty (le Cessie & van Houwelingen 1992, Applied Statistics 41:191).

The penalty keeps coefficients finite where the answers separate the labels, and divides a
coefficient among columns that are alike.
"""

import math
from collections.abc import Iterable, Sequence
from operator import mul

PENALTY = 1.0  # half the square of each coefficient: a normal prior of standard deviation 1
ITERATIONS = 50
TOLERANCE = 1e-9  # largest step of a coefficient at which Newton's method ends


def fitted_probabilities(
    rows: Sequence[Sequence[float]], successes: Sequence[float], trials: Sequence[float]
) -> list[float]:
    """Return the probability of success that is fitted to each row; a constant is added to them."""
    constant = [1.0] * len(rows)
    columns = [constant, *(list(column) for column in zip(*rows, strict=True))]
    coefficients = [0.0] * len(columns)
    for _ in range(ITERATIONS):
        probabilities = _probabilities(columns, coefficients)

        # Derivatives of the penalised log likelihood, which Newton's method takes to 0.
        residuals = [k - n * p for k, n, p in zip(successes, trials, probabilities, strict=True)]
        weights = [n * p * (1 - p) for n, p in zip(trials, probabilities, strict=True)]
        gradient = [
            _dot(column, residuals) - PENALTY * coefficient
            for column, coefficient in zip(columns, coefficients, strict=True)
        ]

        steps = _solve(_curvature(columns, weights), gradient)
        coefficients = [old + step for old, step in zip(coefficients, steps, strict=True)]
        if max(map(abs, steps)) < TOLERANCE:
            break
    return _probabilities(columns, coefficients)


def _probabilities(
    columns: Sequence[Sequence[float]], coefficients: Sequence[float]
) -> list[float]:
    log_odds = [_dot(row, coefficients) for row in zip(*columns, strict=True)]
    # The same as 1 / (1 + exp(-x)), without its overflow.
    return [(1 + math.tanh(x / 2)) / 2 for x in log_odds]


def _curvature(columns: Sequence[Sequence[float]], weights: Sequence[float]) -> list[list[float]]:
    """Return minus the second derivatives of the penalised log likelihood."""
    size = len(columns)
    curvature = [[0.0] * size for _ in range(size)]
    for i, column in enumerate(columns):
        weighted = list(map(mul, column, weights))
        for j in range(i + 1):
            curvature[i][j] = curvature[j][i] = _dot(weighted, columns[j])
        curvature[i][i] += PENALTY
    return curvature


def _solve(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """Solve a positive definite system by Gaussian elimination."""
    rows = [[*row, right_side] for row, right_side in zip(matrix, vector, strict=True)]

    # Elimination: each row takes its column out of the rows below.
    for place, pivot in enumerate(rows):
        for row in rows[place + 1 :]:
            factor = row[place] / pivot[place]
            row[:] = [x - factor * y for x, y in zip(row, pivot, strict=True)]

    # Substitution: from the last row up, each has one unknown left.
    solution = [0.0] * len(rows)
    for place in reversed(range(len(rows))):
        *coefficients, right_side = rows[place]
        solved = _dot(coefficients[place + 1 :], solution[place + 1 :])
        solution[place] = (right_side - solved) / coefficients[place]
    return solution


def _dot(a: Iterable[float], b: Iterable[float]) -> float:
    product: float = sum(map(mul, a, b))
    return product
