"""The simulation of paired comparisons: it computes what the product does, and finds few errors."""

import sys
from pathlib import Path

import numpy as np
import pytest

from aegish_dist.core.sample import TrueLabel
from aegish_dist.opinions.scoring import DEFAULT_RULE
from tests.unit.statistics.paired_values import PairedCell, cells, compare

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from paired_intervals import Array, intervals
from paired_worlds import RATE, SCORE, World, bundled_sizes, of_one_label


def _drawn(
    generator: np.random.Generator, sizes: Array, rate: float, epochs: int
) -> tuple[list[PairedCell], Array]:
    sums, found = np.zeros((1, *sizes.shape)), []
    for (cluster, stratum), samples in np.ndenumerate(sizes):
        a, b = generator.binomial(epochs, rate, (2, int(samples)))
        sums[0, cluster, stratum] = (b - a).sum() / epochs
        target = list(TrueLabel)[stratum]
        found += cells(a.tolist(), b.tolist(), [f"{cluster}"] * len(a), target, epochs=epochs)
    return found, sums


@pytest.mark.parametrize("rate", [0.5, 0.97, 1.0])
@pytest.mark.parametrize("epochs", [1, 3])
def test_the_simulation_computes_the_same_as_the_product(rate: float, epochs: int) -> None:
    sizes = bundled_sizes()[::3]
    found, sums = _drawn(np.random.default_rng(epochs), sizes, rate, epochs)
    metrics = compare(found, DEFAULT_RULE).metrics
    malicious = sizes[:, 0] > 0
    twins = {
        "aegish_score": intervals(sums, sizes, SCORE),
        "malicious_detection_rate": intervals(sums[:, malicious, :1], sizes[malicious, :1], RATE),
    }
    for name, twin in twins.items():
        one = metrics[name]
        ours = (one.difference, one.ci_low, one.ci_high, one.p_value, one.mde)
        assert ours == pytest.approx([float(each[0]) for each in twin], abs=1e-9)


def test_intervals_hold_the_truth() -> None:
    """In 93 to 99.5 % of a thousand runs, for equal models and for unlike ones."""
    sizes = of_one_label(200)
    for a, b, icc, epochs in ((0.9, 0.9, 0.2, 1), (0.9, 0.7, 0.0, 3), (0.98, 0.93, 0.2, 3)):
        world = World(sizes, a, b, icc, epochs, alike=False)
        found = intervals(world.sums(np.random.default_rng(1), 1000), sizes, RATE)
        truth = world.difference
        assert 0.93 < np.mean((found.low <= truth) & (truth <= found.high)) < 0.995


def test_equal_models_seldom_differ() -> None:
    """In 2 to 6.5 % of a thousand runs; p is below 0.05 exactly where the interval is off 0."""
    sizes = bundled_sizes()
    world = World(sizes, 0.9, 0.9, 0.2, 1, alike=False)
    found = intervals(world.sums(np.random.default_rng(2), 1000), sizes, SCORE)
    assert 0.02 < np.mean(found.p < 0.05) < 0.065
    assert ((found.p < 0.05) == ((found.low > 0) | (found.high < 0))).all()
