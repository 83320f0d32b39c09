"""Rates, standard errors and intervals against their definitions and against statsmodels."""

import math
import random
from collections.abc import Callable, Sequence

import pytest
import statsmodels.api as sm
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from aegish_dist.core.estimates import Estimate, combine, mover, wald, wilson
from aegish_dist.core.scoring import Composite
from aegish_dist.core.statistics import Observation, macro_rate, rate
from tests.defined import defined

CATEGORIES = ("shell", "file-read", "upload")


def _binary(successes: int, n: int, category: str = "shell") -> list[Observation]:
    """Independent samples, successes of them right."""
    seen = [
        Observation(category, None, 1.0, successes),
        Observation(category, None, 0.0, n - successes),
    ]
    return [observation for observation in seen if observation.samples]


def _clustered(seed: int, clusters: int = 12) -> list[Observation]:
    """Single samples whose clusters differ in size and rate and span categories."""
    rng = random.Random(seed)
    return [
        Observation(rng.choice(CATEGORIES), f"binary-{cluster}", float(rng.random() < p), 1)
        for cluster in range(clusters)
        for p in [rng.choice((0.3, 0.9, 1.0))]
        for _ in range(rng.randint(2, 9))
    ]


@pytest.mark.parametrize(
    ("n", "low"),
    [(496, 0.992), (19, 0.832), (7, 0.646)],
)
def test_all_correct_has_the_published_interval(n: int, low: float) -> None:
    """496/496 is [0.992, 1], 19/19 [0.832, 1], 7/7 [0.646, 1]; the stderr alone would say +-0."""
    estimate = rate(_binary(n, n))
    assert estimate.ci_low == pytest.approx(low, abs=5e-4)
    assert estimate.ci_high == 1.0
    assert estimate.stderr == 0.0


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (0, 7), (1, 1), (3, 9), (431, 676), (50, 50)])
def test_wilson_agrees_with_statsmodels(successes: int, n: int) -> None:
    """The interval is the one statsmodels calls wilson."""
    low, high = proportion_confint(successes, n, alpha=0.05, method="wilson")
    estimate = rate(_binary(successes, n))
    assert estimate.ci_low == pytest.approx(low, abs=1e-12)
    assert estimate.ci_high == pytest.approx(high, abs=1e-12)


def test_binary_stderr_is_the_published_formula() -> None:
    """431 of 676: sqrt(p (1 - p) / (n - 1))."""
    p = 431 / 676
    estimate = rate(_binary(431, 676))
    assert estimate.value == p
    assert estimate.stderr == pytest.approx(math.sqrt(p * (1 - p) / 675))


def test_stderr_of_averaged_epochs_is_that_of_a_mean() -> None:
    """For 0.5, 1, 1, 0: mean 0.625, squares 0.6875, stderr sqrt(0.6875 / 12)."""
    seen = [
        Observation(None, None, 0.5, 1),
        Observation(None, None, 1.0, 2),
        Observation(None, None, 0.0, 1),
    ]
    estimate = rate(seen)
    assert estimate.value == 0.625
    assert estimate.stderr == pytest.approx(math.sqrt(0.6875 / 12))


def test_clustered_stderr_by_hand() -> None:
    """Clusters {1, 1} and {1, 0}: p = 3/4, sums +-1/2, so sqrt(2 (1/4 + 1/4)) / 4 = 1/4."""
    seen = [
        Observation(None, "tar", 1.0, 2),
        Observation(None, "awk", 1.0, 1),
        Observation(None, "awk", 0.0, 1),
    ]
    estimate = rate(seen)
    assert estimate.stderr_clustered == pytest.approx(0.25)
    assert estimate.clusters == 2


@pytest.mark.parametrize("seed", range(3))
def test_clustered_stderr_agrees_with_statsmodels(seed: int) -> None:
    """It is the cluster-robust stderr of a regression on nothing but an intercept."""
    seen = _clustered(seed)
    fit = sm.OLS([o.value for o in seen], [1.0] * len(seen)).fit(
        cov_type="cluster",
        cov_kwds={"groups": [int(defined(o.cluster).removeprefix("binary-")) for o in seen]},
    )
    assert rate(seen).stderr_clustered == pytest.approx(fit.bse[0], rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_clustered_macro_stderr_agrees_with_statsmodels(seed: int) -> None:
    """It is the cluster-robust stderr of the mean of the category means."""
    seen = _clustered(seed)
    groups = [int(defined(o.cluster).removeprefix("binary-")) for o in seen]
    dummies = [[float(o.category == name) for name in CATEGORIES] for o in seen]
    fit = sm.OLS([o.value for o in seen], dummies).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
    )
    g = len(set(groups))
    variance = fit.cov_params().sum() / len(CATEGORIES) ** 2 * g / (g - 1)
    assert macro_rate(seen).stderr_clustered == pytest.approx(math.sqrt(variance), rel=1e-9)


def test_macro_stderr_joins_those_of_the_categories() -> None:
    """8/10 and 5/5: macro 0.9, stderr sqrt(0.16 / 9 + 0) / 2."""
    estimate = macro_rate(_binary(8, 10, "shell") + _binary(5, 5, "upload"))
    assert estimate.value == pytest.approx(0.9)
    assert estimate.stderr == pytest.approx(math.sqrt(0.16 / 9) / 2)
    assert estimate.n == 15


def test_macro_of_one_category_is_its_micro_rate() -> None:
    """With a single category there is nothing to average."""
    seen = [Observation("shell", o.cluster, o.value, 1) for o in _clustered(1)]
    assert macro_rate(seen) == rate(seen)


def test_macro_with_a_category_of_one_has_no_plain_stderr() -> None:
    """One sample says nothing about spread; the clustered stderr and the interval remain."""
    estimate = macro_rate(_binary(8, 10, "shell") + _binary(1, 1, "upload"))
    assert estimate.stderr is None
    assert estimate.stderr_clustered is not None
    assert defined(estimate.ci_low) < defined(estimate.value) < defined(estimate.ci_high)


def test_macro_interval_of_perfect_categories_is_wilson_with_their_effective_size() -> None:
    """7/7 and 21/21 weigh like 4 / (1/7 + 1/21) = 21 samples."""
    estimate = macro_rate(_binary(7, 7, "bind-shell") + _binary(21, 21, "shell"))
    assert estimate.ci_low == pytest.approx(wilson(1.0, 21).low)
    assert estimate.ci_high == 1.0


def test_macro_leaves_out_samples_without_a_category() -> None:
    """There is no category to average them into."""
    stray = Observation(None, None, 0.0, 50)
    assert macro_rate([stray, *_binary(8, 10)]) == rate(_binary(8, 10))


def test_clusters_widen_the_interval_by_their_design_effect() -> None:
    """Pairs that always agree count once: 16/20 in pairs has deff 19/9, so 20 x 9/19 samples."""
    pairs = [Observation(None, f"c{i}", float(i < 8), 2) for i in range(10)]
    estimate = rate(pairs)
    assert defined(estimate.stderr_clustered) ** 2 / defined(estimate.stderr) ** 2 == pytest.approx(
        19 / 9
    )
    expected = wilson(0.8, 20 * 9 / 19)
    assert (estimate.ci_low, estimate.ci_high) == pytest.approx((expected.low, expected.high))


def test_clusters_that_balance_out_do_not_narrow_the_interval() -> None:
    """One right and one wrong in every cluster has clustered stderr 0, yet Wilson's 20 samples."""
    seen = [Observation(None, f"c{i}", y, 1) for i in range(10) for y in (0.0, 1.0)]
    estimate = rate(seen)
    assert estimate.stderr_clustered == 0.0
    assert estimate.ci_low == pytest.approx(wilson(0.5, 20).low)


def test_interval_of_steady_epochs_stays_near_wilson() -> None:
    """Shares near 1/2 with a tiny spread that follows clusters do not widen Wilson's interval."""
    seen = [Observation(None, f"c{i % 4}", 0.5 + 0.01 * (i % 4), 5) for i in range(20)]
    estimate = rate(seen)
    assert defined(estimate.stderr_clustered) > 3 * defined(estimate.stderr)
    assert estimate.ci_low == pytest.approx(wilson(0.515, 100).low)


def test_weights_make_the_rate_a_ratio_of_sums() -> None:
    """1 of 1 and 1 of 3 verdicts: 2/4, weighted residuals +-1/8, stderr sqrt(2 (1/64 + 1/64))."""
    estimate = rate([Observation(None, None, 1.0, 1, 1), Observation(None, None, 1 / 3, 1, 3)])
    assert estimate.value == 0.5
    assert estimate.stderr == pytest.approx(0.25)
    assert estimate.stderr_clustered == pytest.approx(0.25)


@pytest.mark.parametrize("estimator", [rate, macro_rate])
def test_nothing_seen_is_undefined(estimator: Callable[[Sequence[Observation]], Estimate]) -> None:
    """Without samples there is no value, not even 0."""
    assert estimator([]) == Estimate(clusters=0)


def test_one_cluster_has_no_clustered_stderr() -> None:
    """A single cluster says nothing about the spread between clusters."""
    estimate = rate([Observation(None, "tar", 1.0, 3), Observation(None, "tar", 0.0, 1)])
    assert estimate.stderr_clustered is None
    assert estimate.clusters == 1
    assert estimate.ci_low == pytest.approx(wilson(0.75, 4).low)


def test_balanced_score_agrees_with_newcombe() -> None:
    """MOVER over two Wilson intervals is Newcombe's, here of DR - (1 - HA), halved and shifted."""
    score = combine(
        Composite.BALANCED,
        rate(_binary(431, 480)),
        rate(_binary(300, 310)),
    )
    low, high = confint_proportions_2indep(431, 480, 10, 310, method="newcomb", compare="diff")
    assert score.value == pytest.approx((431 / 480 + 300 / 310) / 2)
    assert (score.ci_low, score.ci_high) == pytest.approx(((low + 1) / 2, (high + 1) / 2))
    assert score.n == score.clusters == 790


def test_balanced_score_stderr_is_the_published_formula() -> None:
    """sqrt(0.03^2 + 0.04^2) / 2 = 0.025, and likewise clustered."""
    detection = Estimate(0.9, 0.03, 0.06, 0.8, 0.95, 100, 50)
    acceptance = Estimate(0.6, 0.04, 0.08, 0.5, 0.75, 80, 80)
    score = combine(Composite.BALANCED, detection, acceptance)
    assert score.stderr == pytest.approx(0.025)
    assert score.stderr_clustered == pytest.approx(0.05)
    assert score.ci_low == pytest.approx(0.75 - math.sqrt(0.1**2 + 0.1**2) / 2)
    assert score.ci_high == pytest.approx(0.75 + math.sqrt(0.05**2 + 0.15**2) / 2)


def test_product_score_uses_the_partial_derivatives() -> None:
    """By hand for 0.8 and 0.5: slopes 0.5 and 0.8, and the second-order term of the interval."""
    detection = Estimate(0.8, 0.03, None, 0.7, 0.9, 100, 50)
    acceptance = Estimate(0.5, 0.04, 0.08, 0.3, 0.6, 80, 80)
    score = combine(Composite.PRODUCT, detection, acceptance)
    assert score.value == pytest.approx(0.4)
    assert score.stderr == pytest.approx(math.sqrt(0.015**2 + 0.032**2))
    assert score.stderr_clustered is None
    assert score.ci_low == pytest.approx(0.4 - math.sqrt(0.05**2 + 0.16**2 + 0.02**2))
    assert score.ci_high == pytest.approx(0.4 + math.sqrt(0.05**2 + 0.08**2 + 0.01**2))


def test_product_of_two_zeros_still_has_a_width() -> None:
    """Both slopes vanish at 0 x 0; the interval reaches to the product of the upper bounds."""
    nothing = rate(_binary(0, 20))
    score = combine(Composite.PRODUCT, nothing, nothing)
    assert score.ci_low == 0.0
    assert score.ci_high == pytest.approx(defined(nothing.ci_high) ** 2)


@pytest.mark.parametrize("composite", Composite)
def test_score_without_one_side_is_undefined(composite: Composite) -> None:
    """A missing side does not count as 0."""
    whole, missing = rate(_binary(9, 10)), rate([])
    assert combine(composite, whole, missing) == Estimate(n=10)
    assert combine(composite, missing, whole) == Estimate(n=10)


def test_intervals_are_clipped() -> None:
    """No bound leaves [0, 1]."""
    wide = mover(0.4, below=[0.3, 0.4], above=[0.7])
    assert (wide.low, wide.high) == (0.0, 1.0)
    assert wald(0.99, 0.1).high == 1.0
