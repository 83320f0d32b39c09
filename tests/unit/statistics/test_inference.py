"""Cluster-robust variance against its definition in matrices and against statsmodels."""

from collections.abc import Sequence

import numpy as np
import pytest
import statsmodels.api as sm

from aegish_dist.statistics.inference import ClusterSum, ClusterSums, clustered_variance
from tests.defined import defined

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def _strata(
    values: Numbers, stratum: Numbers, cluster: Numbers, weights: Sequence[float]
) -> list[ClusterSums]:
    result = []
    for k, weight in enumerate(weights):
        parts = []
        for name in np.unique(cluster[stratum == k]):
            own = values[(stratum == k) & (cluster == name)]
            parts.append(ClusterSum(str(name), len(own), weight * float(own.sum())))
        result.append(ClusterSums(tuple(parts), weight))
    return result


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
    found = defined(clustered_variance(_strata(values, stratum, cluster, weights)))
    variance, df = _dense(values, stratum, cluster, weights)
    assert found.clusters == len(np.unique(cluster))
    assert found.reduced == pytest.approx(variance, rel=1e-9)
    assert found.df == pytest.approx(df, rel=1e-9)


def test_the_sandwich_is_that_of_statsmodels() -> None:
    """OLS on an intercept with clustered covariance, whose factor is G / (G - 1) of a mean."""
    generator = np.random.default_rng(7)
    cluster = generator.integers(0, 12, 80).astype(float)
    values = generator.integers(-1, 2, 80).astype(float)
    fit = sm.OLS(values, np.ones(80)).fit(cov_type="cluster", cov_kwds={"groups": cluster})
    found = defined(clustered_variance(_strata(values, np.zeros(80), cluster, [1.0])))
    # statsmodels multiplies by (n - 1) / (n - k), which is 1 with an intercept alone.
    assert found.sandwich == pytest.approx(float(fit.bse[0]) ** 2, rel=1e-9)


def test_clusters_without_a_name_may_share_an_entry() -> None:
    """Four samples alone: the variance of a mean, by all formulas, with n - 1 degrees."""
    alike = ClusterSums((ClusterSum(None, 1, 1.0, 3), ClusterSum(None, 1, 0.0)))
    found = defined(clustered_variance([alike]))
    assert [found.sandwich, found.reduced] == pytest.approx([0.75 * 0.25 / 3] * 2, rel=1e-12)
    assert found.df == pytest.approx(3)


def test_one_cluster_shows_no_variance() -> None:
    one = ClusterSums((ClusterSum("nc", 5, 2.0),))
    two = ClusterSums((ClusterSum("nc", 5, 2.0), ClusterSum("awk", 1, 1.0)))
    assert clustered_variance([one]) is None
    assert clustered_variance([two, one]) is None


def test_degrees_of_freedom_where_nothing_weighs() -> None:
    """Of a product whose two rates are 0 no stratum varies to first order."""
    stratum = ClusterSums((ClusterSum(None, 1, 0.0, 5),), 0.0)
    found = defined(clustered_variance([stratum, stratum]))
    assert (found.reduced, found.df) == (0.0, 9.0)
