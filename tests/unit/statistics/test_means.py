"""Rates, standard errors and intervals against their definitions and against statsmodels."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aegish_dist.core.metric import Estimate
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics.means import Observation, SampledMean, macro_rate, rate, score
from aegish_dist.statistics.rates import Dependence, combine, mean_interval, proportion_interval
from tests.defined import defined
from tests.oracles import proportion, regression, stats

CATEGORIES = ("shell", "file-read", "upload")


def _binary(successes: int, n: int, category: str = "shell") -> list[Observation]:
    seen = ((1.0, successes), (0.0, n - successes))
    return [Observation(category, None, value, samples) for value, samples in seen if samples]


def _clustered(seed: int, clusters: int = 12) -> list[Observation]:
    rng = random.Random(seed)
    return [
        Observation(rng.choice(CATEGORIES), f"binary-{cluster}", float(rng.random() < p), 1)
        for cluster in range(clusters)
        for p in [rng.choice((0.3, 0.9, 1.0))]
        for _ in range(rng.randint(2, 9))
    ]


def _regressed(seen: Sequence[Observation], sides: object, *, corrected: bool = False) -> Any:
    """Regress the values on these columns, with errors that are clustered as the samples are."""
    groups = [int(defined(o.cluster).removeprefix("binary-")) for o in seen]
    options = {"groups": groups, "use_correction": corrected}
    return regression.OLS([o.value for o in seen], sides).fit(cov_type="cluster", cov_kwds=options)


@pytest.mark.parametrize(("successes", "n"), [(0, 7), (1, 1), (3, 9), (431, 676), (50, 50)])
def test_independent_samples_count_one_each(successes: int, n: int) -> None:
    expected = proportion_interval(successes / n, n)
    estimate = rate(_binary(successes, n))
    assert [estimate.ci_low, estimate.ci_high] == pytest.approx(
        [expected.low, expected.high], abs=1e-12
    )


def test_stderr_by_hand() -> None:
    """For 0.5, 1, 1, 0: mean 0.625, squares 0.6875, stderr sqrt(0.6875 / 12)."""
    averaged = rate([Observation(None, None, *each) for each in ((0.5, 1), (1.0, 2), (0.0, 1))])
    assert averaged.value == 0.625
    assert averaged.stderr == pytest.approx(math.sqrt(0.6875 / 12))


@pytest.mark.parametrize("seed", range(3))
def test_clustered_stderr_agrees_with_statsmodels(seed: int) -> None:
    """It is the cluster-robust stderr of a regression on nothing but an intercept."""
    seen = _clustered(seed)
    fit = _regressed(seen, [1.0] * len(seen), corrected=True)
    assert rate(seen).stderr_clustered == pytest.approx(fit.bse[0], rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_clustered_macro_stderr_agrees_with_statsmodels(seed: int) -> None:
    seen = _clustered(seed)
    fit = _regressed(seen, [[float(o.category == name) for name in CATEGORIES] for o in seen])
    g = len({o.cluster for o in seen})
    variance = fit.cov_params().sum() / len(CATEGORIES) ** 2 * g / (g - 1)
    assert macro_rate(seen).stderr_clustered == pytest.approx(math.sqrt(variance), rel=1e-9)


def test_macro_stderr_joins_those_of_the_categories() -> None:
    """8/10 and 5/5: macro 0.9, stderr sqrt(0.16 / 9 + 0) / 2."""
    estimate = macro_rate(_binary(8, 10, "shell") + _binary(5, 5, "upload"))
    assert estimate.value == pytest.approx(0.9)
    assert estimate.stderr == pytest.approx(math.sqrt(0.16 / 9) / 2)
    assert estimate.n == 15


def test_macro_of_one_category_is_its_micro_rate_without_uncategorised_samples() -> None:
    seen = [Observation("shell", o.cluster, o.value, 1) for o in _clustered(1)]
    assert macro_rate([Observation(None, None, 0.0, 50), *seen]) == rate(seen)


def test_macro_with_a_category_of_one_has_no_plain_stderr() -> None:
    """One sample says nothing about spread; the clustered stderr and the interval remain."""
    estimate = macro_rate(_binary(8, 10, "shell") + _binary(1, 1, "upload"))
    assert estimate.stderr is None
    assert estimate.stderr_clustered is not None
    assert defined(estimate.ci_low) < defined(estimate.value) < defined(estimate.ci_high)


def test_macro_interval_of_perfect_categories_allows_that_the_smallest_is_the_worst() -> None:
    """If only the seven may fail, Wilson's 0.646 of 7/7 makes a mean of 0.823 with 21/21."""
    estimate = macro_rate(_binary(7, 7, "bind-shell") + _binary(21, 21, "shell"))
    assert estimate.ci_low == pytest.approx((proportion_interval(1.0, 7).low + 1) / 2)
    assert estimate.ci_high == 1.0


def test_equal_categories_have_the_interval_of_all_samples() -> None:
    """45 of 50 twice: the likeliest rates are equal, so Wilson's of 90 of 100."""
    found = mean_interval(0.9, [(0.9, 50), (0.9, 50)])
    expected = proportion_interval(0.9, 100)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-11)


def test_rates_that_differ_by_category_do_not_widen_the_macro_interval() -> None:
    """Half of 100 and all of 100: a variance of 0.25 / 400, as 300 of 400 have."""
    estimate = macro_rate(_binary(50, 100, "shell") + _binary(100, 100, "upload"))
    assert _width(estimate) < 1.15 * _width(rate(_binary(225, 300)))


def test_clusters_widen_the_interval_by_their_design_effect() -> None:
    """Pairs that always agree, 16 of 20 right, by hand.

    Independent samples have the variance 0.16 / 20 = 0.008, pairs by the jackknife
    (1 - 1/20)^2 10 x 0.16 / 10^2 / (1 - 1/10)^2. What pairs add is multiplied by the squared ratio
    of the t quantiles with 9 and 19 degrees of freedom.
    """
    mean = SampledMean([[Observation(None, f"c{i}", float(i < 8), 2) for i in range(10)]])
    of_pairs = 0.95**2 * 0.016 / 0.9**2
    ratio = stats.t.ppf(0.975, 9) / stats.t.ppf(0.975, 19)
    variance = 0.008 + (of_pairs - 0.008) * ratio**2 + 2 * 1.3 / 20**2
    assert mean.effective_samples == pytest.approx((0.16 + 2 / 20) / variance, rel=1e-9)


def test_clusters_that_balance_out_do_not_narrow_the_interval() -> None:
    """One right and one wrong in every cluster has clustered stderr 0, yet no more than 20 samples."""
    seen = [Observation(None, f"c{i}", y, 1) for i in range(10) for y in (0.0, 1.0)]
    assert rate(seen).stderr_clustered == 0.0
    by_definition = (0.25 + 2 / 20) / (0.25 / 20 + 2 * 1.3 / 20**2)
    assert SampledMean([seen]).effective_samples == pytest.approx(by_definition)
    assert by_definition <= 20


def test_interval_of_steady_epochs_reaches_beyond_the_number_of_samples() -> None:
    """Averages near 1/2 with a small spread know their mean better than so many binary values.

    Four clusters of 25 equal samples, at 0.015 and 0.005 on both sides of 0.515.
    """
    seen = [Observation(None, f"c{i % 4}", 0.5 + 0.01 * (i % 4), 5) for i in range(20)]
    moved = 0.99**2 * (0.015**2 + 0.005**2) * 2 / 4**2
    ratio = stats.t.ppf(0.975, 3) / stats.t.ppf(0.975, 99)
    alone = 25 * (0.015**2 + 0.005**2) * 2 / 100**2
    variance = alone + (moved / 0.75**2 - alone) * ratio**2 + 2 * (1 + 0.3 * 24) / 100**2
    by_definition = (0.515 * 0.485 + 2 / 100) / variance
    assert SampledMean([seen]).effective_samples == pytest.approx(by_definition)
    assert by_definition > 100


def test_three_epochs_are_narrower_than_one() -> None:
    """Of independent answers, right with 9/10: 200 samples with three of them know as 500 or more."""
    once = rate(_binary(180, 200))
    shares = {1.0: 146, 2 / 3: 48, 1 / 3: 6}
    thrice = rate([Observation("shell", None, y, n) for y, n in shares.items()])
    assert thrice.value == pytest.approx(0.9)
    assert _width(thrice) < 0.65 * _width(once)


@pytest.mark.parametrize("samples", [1, 5, 500])
def test_one_cluster_is_one_observation(samples: int) -> None:
    estimate = rate([Observation(None, "tar", 1.0, samples)])
    alone = proportion_interval(1.0, 1)
    assert (estimate.ci_low, estimate.ci_high) == (alone.low, alone.high)
    assert (estimate.stderr_clustered, estimate.clusters) == (None, 1)


def test_samples_that_all_agree_leave_room_for_alike_clusters() -> None:
    """7 of 7 in two clusters tell less than 7 independent samples, and more than 1."""
    clustered = [Observation(None, "tar", 1.0, 4), Observation(None, "awk", 1.0, 3)]
    assert 1 < SampledMean([clustered]).effective_samples < 7
    assert defined(rate(clustered).ci_low) < defined(rate(_binary(7, 7)).ci_low)


def test_weights_make_the_rate_a_ratio_of_sums() -> None:
    """1 of 1 and 1 of 3 verdicts: 2/4, weighted residuals +-1/8, stderr sqrt(2 (1/64 + 1/64))."""
    estimate = rate([Observation(None, None, 1.0, 1, 1), Observation(None, None, 1 / 3, 1, 3)])
    assert estimate.value == 0.5
    assert estimate.stderr == pytest.approx(0.25)
    assert estimate.stderr_clustered == pytest.approx(0.25)


@pytest.mark.parametrize("estimator", [rate, macro_rate])
def test_nothing_seen_is_undefined(estimator: Callable[[Sequence[Observation]], Estimate]) -> None:
    assert estimator([]) == Estimate(clusters=0)


def _score(
    detected: Sequence[Observation],
    accepted: Sequence[Observation],
    composite: Composite = Composite.BALANCED,
) -> Estimate:
    return score(
        composite,
        SampledMean([detected]) if detected else None,
        SampledMean([accepted]) if accepted else None,
    )


def _width(estimate: Estimate) -> float:
    return defined(estimate.ci_high) - defined(estimate.ci_low)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("composite", Composite)
def test_clustered_score_stderr_agrees_with_statsmodels(composite: Composite, seed: int) -> None:
    """It is the cluster-robust stderr of a function of two means, by the delta method."""
    detected, accepted = _clustered(seed), _clustered(seed + 10, clusters=9)
    both = detected + accepted
    fit = _regressed(both, [[1.0, 0.0]] * len(detected) + [[0.0, 1.0]] * len(accepted))
    a, b = (0.5, 0.5) if composite is Composite.BALANCED else (fit.params[1], fit.params[0])
    cov, g = fit.cov_params(), len({o.cluster for o in both})
    variance = (a * a * cov[0, 0] + b * b * cov[1, 1] + 2 * a * b * cov[0, 1]) * g / (g - 1)
    found = _score(detected, accepted, composite)
    assert found.stderr_clustered == pytest.approx(math.sqrt(variance), rel=1e-9)
    assert found.clusters == g


def test_clusters_that_help_both_sides_widen_the_score() -> None:
    ups = [Observation(None, f"c{i}", float(i < 15), 1) for i in range(20)]
    downs = [Observation(None, f"c{i}", float(i >= 5), 1) for i in range(20)]
    apart = [Observation(None, f"d{i}", float(i < 15), 1) for i in range(20)]
    together, opposite, independent = (_score(ups, other) for other in (ups, downs, apart))
    assert together.value == opposite.value == independent.value
    assert _width(opposite) < _width(independent) < _width(together)
    assert together.stderr == opposite.stderr == independent.stderr
    assert (together.clusters, independent.clusters) == (20, 40)


@pytest.mark.parametrize("composite", Composite)
def test_sides_that_cancel_exactly_keep_a_width(composite: Composite) -> None:
    """A binary judged rightly on one side only leaves the score without spread, not without doubt."""
    ups = [Observation(None, f"c{i}", float(i % 2), 1) for i in range(10)]
    downs = [Observation(None, f"c{i}", float(1 - i % 2), 1) for i in range(10)]
    found = _score(ups, downs, composite)
    assert _width(found) > 0.01
    if composite is Composite.BALANCED:
        assert found.stderr_clustered == pytest.approx(0.0, abs=1e-12)


def test_balanced_score_agrees_with_newcombe() -> None:
    """MOVER over two Wilson intervals is Newcombe's, here of DR - (1 - HA), halved and shifted."""
    found = _score(_binary(431, 480), _binary(285, 310))
    low, high = proportion.confint_proportions_2indep(
        431, 480, 25, 310, method="newcomb", compare="diff"
    )
    assert found.value == pytest.approx((431 / 480 + 285 / 310) / 2)
    assert (found.ci_low, found.ci_high) == pytest.approx(
        ((low + 1) / 2, (high + 1) / 2), abs=1e-12
    )
    assert found.n == found.clusters == 790


def test_balanced_score_stderr_is_the_published_formula() -> None:
    """sqrt(0.03^2 + 0.04^2) / 2 = 0.025; clustered sqrt(50/49 (0.02 + 0.03 + 2 x 0.01) / 4)."""
    detection = Estimate(0.9, 0.03, 0.06, 0.8, 0.95, 100, 50)
    acceptance = Estimate(0.6, 0.04, 0.08, 0.5, 0.75, 80, 80)
    dependence = Dependence(50, (0.02, 0.03), 0.01, correlation=0.5)
    found = combine(Composite.BALANCED, detection, acceptance, dependence)
    assert found.stderr == pytest.approx(0.025)
    assert found.stderr_clustered == pytest.approx(math.sqrt(50 / 49 * 0.07 / 4))
    below = 0.1**2 + 0.1**2 + 2 * 0.5 * 0.1 * 0.1
    above = 0.05**2 + 0.15**2 + 2 * 0.5 * 0.05 * 0.15
    assert found.ci_low == pytest.approx(0.75 - math.sqrt(below) / 2)
    assert found.ci_high == pytest.approx(0.75 + math.sqrt(above) / 2)


def test_product_score_uses_the_partial_derivatives() -> None:
    """By hand for 0.8 and 0.5: slopes 0.5 and 0.8, and the second-order term of the interval."""
    detection = Estimate(0.8, 0.03, None, 0.7, 0.9, 100, 50)
    acceptance = Estimate(0.5, 0.04, 0.08, 0.3, 0.6, 80, 80)
    dependence = Dependence(90, (0.01, 0.01), 0.0, correlation=0.0)
    found = combine(Composite.PRODUCT, detection, acceptance, dependence)
    assert found.value == pytest.approx(0.4)
    assert found.stderr == pytest.approx(math.sqrt(0.015**2 + 0.032**2))
    assert found.stderr_clustered is None
    assert found.ci_low == pytest.approx(0.4 - math.sqrt(0.05**2 + 0.16**2 + 0.02**2))
    assert found.ci_high == pytest.approx(0.4 + math.sqrt(0.05**2 + 0.08**2 + 0.01**2))


def test_product_of_two_zeros_still_has_a_width() -> None:
    """Both slopes vanish at 0 x 0; the interval reaches to the product of the upper bounds."""
    nothing = _binary(0, 20)
    found = _score(nothing, nothing, Composite.PRODUCT)
    assert found.ci_low == 0.0
    assert found.ci_high == pytest.approx(defined(rate(nothing).ci_high) ** 2)


@pytest.mark.parametrize("composite", Composite)
def test_score_without_one_side_is_undefined(composite: Composite) -> None:
    assert _score(_binary(9, 10), [], composite) == Estimate(n=10)
    assert _score([], _binary(9, 10), composite) == Estimate(n=10)
