"""Do the 95 % intervals cover the truth in about 95 % of simulated runs?

Commands come in clusters whose members share a chance of being judged rightly, as the commands of
one binary do. The truth is the mean of that chance.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from aegish_dist.core.estimates import Estimate, combine
from aegish_dist.core.scoring import Composite
from aegish_dist.core.statistics import Observation, macro_rate, rate
from tests.defined import defined

RUNS = 2000
CATEGORIES = ("shell", "file-read", "file-write", "upload")


def _sample(rng: random.Random, clusters: int, mean: float) -> list[Observation]:
    """Draw clusters of one to four samples with an intraclass correlation of 1/5."""
    seen: Counter[tuple[str, str, bool]] = Counter()
    for cluster in range(clusters):
        chance = rng.betavariate(4 * mean, 4 * (1 - mean))
        for _ in range(rng.randint(1, 4)):
            seen[rng.choice(CATEGORIES), f"binary-{cluster}", rng.random() < chance] += 1
    return [Observation(c, g, float(right), n) for (c, g, right), n in seen.items()]


def _coverage(truth: float, estimate: Callable[[random.Random], Estimate]) -> float:
    rng = random.Random(20261)
    covered = 0
    for _ in range(RUNS):
        seen = estimate(rng)
        covered += defined(seen.ci_low) <= truth <= defined(seen.ci_high)
    return covered / RUNS


@pytest.mark.parametrize("mean", [0.75, 0.93])
def test_rate_interval_covers_the_truth(mean: float) -> None:
    """Wilson with the effective sample size holds its level on clustered data."""
    assert 0.92 <= _coverage(mean, lambda rng: rate(_sample(rng, 60, mean))) <= 0.99


@pytest.mark.parametrize("mean", [0.75, 0.93])
def test_macro_interval_covers_the_truth(mean: float) -> None:
    """So does the macro average of categories that share clusters."""
    assert 0.92 <= _coverage(mean, lambda rng: macro_rate(_sample(rng, 60, mean))) <= 0.99


@pytest.mark.parametrize(
    ("composite", "truth"),
    [(Composite.BALANCED, (0.9 + 0.97) / 2), (Composite.PRODUCT, 0.9 * 0.97)],
)
def test_score_interval_covers_the_truth(composite: Composite, truth: float) -> None:
    """So does the score of two such rates."""

    def score(rng: random.Random) -> Estimate:
        return combine(composite, rate(_sample(rng, 50, 0.9)), rate(_sample(rng, 50, 0.97)))

    assert 0.92 <= _coverage(truth, score) <= 0.99
