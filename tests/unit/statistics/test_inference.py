"""Cluster-robust variance against its definition in matrices and against statsmodels."""

from collections.abc import Sequence

import numpy as np
import pytest

from aegish_dist.statistics.inference import ClusterSums, clustered_variance
from tests.oracles import regression

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def _strata(
    values: Numbers, stratum: Numbers, cluster: Numbers, weights: Sequence[float]
) -> list[ClusterSums]:
    result = []
    for k, weight in enumerate(weights):
        names = np.unique(cluster[stratum == k])
        parts = [values[(stratum == k) & (cluster == name)] for name in names]
        totals = [weight * float(own.sum()) for own in parts]
        numbers = names.astype(np.int64).tolist()
        result.append(_sums(numbers, list(map(len, parts)), totals, weight))
    return result


def _sums(
    cluster: Sequence[int], samples: Sequence[int], totals: Sequence[float], weight: float = 1.0
) -> ClusterSums:
    """Return a stratum of a single estimate."""
    return ClusterSums(
        np.array(cluster), np.array([samples]), np.array([totals]), np.array([weight])
    )


def _dense(
    values: Numbers, stratum: Numbers, cluster: Numbers, weights: Sequence[float]
) -> tuple[float, float]:
    """CR2 and Satterthwaite's degrees of freedom from the n x n matrices of their definition."""
    n = len(values)
    x = np.stack([stratum == k for k in range(len(weights))], axis=1).astype(float)
    bread = np.linalg.inv(x.T @ x)
    hat = x @ bread @ x.T
    residuals = values - hat @ values
    contrast = np.array(weights)
    variance, columns = 0.0, []
    for name in np.unique(cluster):
        own = np.flatnonzero(cluster == name)
        inside = np.eye(len(own)) - hat[np.ix_(own, own)]
        eigenvalues, vectors = np.linalg.eigh(inside)
        adjustment = vectors @ np.diag(eigenvalues**-0.5) @ vectors.T
        score = adjustment @ x[own] @ bread @ contrast
        variance += float(score @ residuals[own]) ** 2
        columns.append((np.eye(n) - hat)[:, own] @ score)
    w = np.array(columns) @ np.array(columns).T
    return variance, float(np.trace(w) ** 2 / np.trace(w @ w))


@pytest.mark.parametrize("weights", [(1.0,), (0.5, 0.5), (0.9, 0.4, 0.1)])
def test_cr2_and_its_degrees_of_freedom_are_those_of_the_definition(
    weights: tuple[float, ...],
) -> None:
    """Bell & McCaffrey's estimator in matrices, on unequal clusters that span strata."""
    generator = np.random.default_rng(10)
    n = 60
    stratum = generator.integers(0, len(weights), n).astype(float)
    cluster = np.floor(9 * generator.random(n) ** 2)
    values = generator.integers(-1, 2, n).astype(float)
    found = clustered_variance(_strata(values, stratum, cluster, weights))
    variance, df = _dense(values, stratum, cluster, weights)
    assert found.clusters == len(np.unique(cluster))
    assert found.reduced == pytest.approx(variance, rel=1e-9)
    assert found.df == pytest.approx(df, rel=1e-9)


def test_the_sandwich_is_that_of_statsmodels() -> None:
    """OLS on an intercept with clustered covariance, whose factor is G / (G - 1) of a mean."""
    generator = np.random.default_rng(7)
    cluster = generator.integers(0, 12, 80).astype(float)
    values = generator.integers(-1, 2, 80).astype(float)
    fit = regression.OLS(values, np.ones(80)).fit(cov_type="cluster", cov_kwds={"groups": cluster})
    found = clustered_variance(_strata(values, np.zeros(80), cluster, [1.0]))
    # statsmodels multiplies by (n - 1) / (n - k), which is 1 with an intercept alone.
    assert found.sandwich == pytest.approx(float(fit.bse[0]) ** 2, rel=1e-9)


def test_one_cluster_shows_no_variance() -> None:
    one = _sums([1], [5], [2.0])
    two = _sums([1, 2], [5, 1], [2.0, 1.0])
    assert not clustered_variance([one]).defined
    assert not clustered_variance([two, one]).defined
    assert clustered_variance([two]).defined


def test_degrees_of_freedom_where_nothing_weighs() -> None:
    """Of a product whose two rates are 0 no stratum varies to first order."""
    strata = [_sums(range(first, first + 5), [1] * 5, [0.0] * 5, 0.0) for first in (0, 5)]
    found = clustered_variance(strata)
    assert (found.reduced[0], found.df[0]) == (0.0, 9.0)


def _row(stratum: ClusterSums, row: int) -> ClusterSums:
    """Return one estimate, without the clusters of which it has no sample."""
    own = stratum.samples[row] > 0
    return ClusterSums(
        stratum.cluster[own],
        stratum.samples[row, own][None],
        stratum.totals[row, own][None],
        stratum.weight[row][None],
    )


def test_rows_are_estimates_of_their_own() -> None:
    """Estimates that lack clusters, or have only one, are those that each gives alone."""
    generator = np.random.default_rng(3)
    samples = generator.integers(0, 4, (20, 8))
    samples[0], samples[1, 1:] = 0, 0
    totals = samples * generator.random((20, 8))
    weight = generator.random(20)
    cluster = np.arange(8)
    turned = ClusterSums(cluster + 3, samples[:, ::-1], totals[:, ::-1], weight)
    strata = [ClusterSums(cluster, samples, totals, weight), turned]
    found = clustered_variance(strata)
    assert [bool(each) for each in found.defined[:2]] == [False, False]
    for row in range(20):
        alone = clustered_variance([_row(stratum, row) for stratum in strata])
        assert bool(alone.defined[0]) is bool(found.defined[row])
        if found.defined[row]:
            of_row = [found.sandwich, found.reduced, found.third, found.df]
            of_alone = [alone.sandwich, alone.reduced, alone.third, alone.df]
            assert [each[row] for each in of_row] == pytest.approx([each[0] for each in of_alone])
            assert found.clusters[row] == alone.clusters[0]
