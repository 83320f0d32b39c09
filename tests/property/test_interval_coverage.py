"""Do the 95 % intervals cover the truth in about 95 % of simulated runs?

A few cells of the tables of `docs/explanation/statistics.md`. `benchmarks/coverage.py` makes those with more
replications, by formulas of its own. Commands come in the binaries of the bundled datasets. Those
of one binary share a chance of being judged rightly, on both sides.
"""

import math
import random
import runpy
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from aegish_dist.core.metric import Estimate
from aegish_dist.core.sample import TrueLabel
from aegish_dist.datasets.bundled import DEFAULT_NAMES, load_bundled
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics.means import Observation, SampledMean, macro_rate, rate, score
from tests.defined import defined

RUNS = 150
LEAST = 0.95 - 3.3 * math.sqrt(0.95 * 0.05 / RUNS)
"""A right interval falls below this in one of 2,000 cells."""

Sides = tuple[list[Observation], list[Observation]]


@pytest.fixture(scope="module")
def binaries() -> list[list[tuple[TrueLabel, str | None]]]:
    found: defaultdict[str, list[tuple[TrueLabel, str | None]]] = defaultdict(list)
    for name in DEFAULT_NAMES:
        for sample in load_bundled(name).samples:
            found[defined(sample.cluster)].append((sample.target, sample.category))
    return [found[name] for name in sorted(found)]


def _answers(
    rng: random.Random,
    binaries: list[list[tuple[TrueLabel, str | None]]],
    n: int,
    rate_and_icc: tuple[float, float],
    epochs: int,
) -> Sides:
    p, icc = rate_and_icc
    sides: Sides = ([], [])
    for index, binary in enumerate(rng.sample(binaries, len(binaries))):
        if min(map(len, sides)) >= n:
            break
        concentration = (1 - icc) / icc if icc else math.inf
        chance = rng.betavariate(p * concentration, (1 - p) * concentration) if icc else p
        for target, category in rng.sample(binary, len(binary)):
            side = sides[target is TrueLabel.HARMLESS]
            if len(side) < n:
                share = sum(rng.random() < chance for _ in range(epochs)) / epochs
                side.append(Observation(category, str(index), share, 1))
    return sides


METRICS: dict[str, Callable[[Sides], Estimate]] = {
    "micro": lambda sides: rate(sides[0]),
    "macro": lambda sides: macro_rate(sides[0]),
    "score": lambda sides: score(Composite.BALANCED, *(SampledMean([side]) for side in sides)),
    "product": lambda sides: score(Composite.PRODUCT, *(SampledMean([side]) for side in sides)),
}


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize(
    ("n", "p", "icc"),
    [(7, 0.5, 0.5), (30, 0.5, 0.2), (30, 0.98, 0.0), (30, 29 / 30, 0.2), (120, 0.9, 0.2)],
)
def test_intervals_cover_the_truth(
    binaries: list[list[tuple[TrueLabel, str | None]]], n: int, p: float, icc: float, epochs: int
) -> None:
    rng = random.Random(20261)
    covered = dict.fromkeys(METRICS, 0)
    for _ in range(RUNS):
        sides = _answers(rng, binaries, n, (p, icc), epochs)
        for name, estimate in METRICS.items():
            truth, seen = p * p if name == "product" else p, estimate(sides)
            assert defined(seen.ci_low) < defined(seen.ci_high)
            covered[name] += defined(seen.ci_low) <= truth <= defined(seen.ci_high)
    assert {name: hits / RUNS for name, hits in covered.items() if hits < LEAST * RUNS} == {}


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def coverage() -> SimpleNamespace:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "coverage.py")))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("epochs", ["1", "3"])
def test_the_benchmark_has_the_formulas_of_the_product(
    coverage: SimpleNamespace, metric: str, epochs: str
) -> None:
    """Both ends agree to 1e-11, whatever the number of samples."""
    table = coverage.chances(0.9, 0.2)
    for n in (7, 30, 120):
        cell, rng = coverage.Cell(metric, n, "0.9", 0.2, epochs, "same"), np.random.default_rng(n)
        places = coverage.lay_out(rng, coverage.binaries(), cell)
        values = coverage.answer(rng, places, cell, table, 5)
        low, high = coverage.intervals(metric, places, values)
        for run, answered in enumerate(values.tolist()):
            sides: dict[TrueLabel, list[Observation]] = {target: [] for target in TrueLabel}
            for place, value in zip(places, answered, strict=True):
                sides[place.target].append(Observation(place.category, str(place.binary), value, 1))
            seen = METRICS[metric]((sides[TrueLabel.MALICIOUS], sides[TrueLabel.HARMLESS]))
            assert (seen.ci_low, seen.ci_high) == pytest.approx((low[run], high[run]), abs=1e-11)


def test_the_macro_average_is_covered_on_the_sizes_of_gtfobins(coverage: SimpleNamespace) -> None:
    """Categories of 7 to 264 commands; an interval of one effective size covers 90 %."""
    places, table = coverage.gtfobins("macro"), coverage.chances(0.95, 0.4)
    cell = coverage.Cell("macro", len(places), "0.95", 0.4, "1", "same")
    values = coverage.answer(np.random.default_rng(1), places, cell, table, 400)
    low, high = coverage.intervals("macro", places, values)
    assert ((low <= 0.95) & (high >= 0.95)).mean() >= 0.935
    answered = [
        Observation(place.category, str(place.binary), value, 1)
        for place, value in zip(places, values[0].tolist(), strict=True)
    ]
    seen = macro_rate(answered)
    assert (seen.ci_low, seen.ci_high) == pytest.approx((low[0], high[0]), abs=1e-11)
