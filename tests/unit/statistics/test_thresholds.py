import itertools
import math
import random
import runpy
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from aegish_dist.core.columns import AskedSamples
from aegish_dist.core.metric import (
    BALANCED_ACCURACY,
    NUMBERS,
    Criterion,
    Estimate,
    FittedGuard,
    least_cost,
    most_detections,
)
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics.means import Observation, SampledMean, score
from aegish_dist.statistics.rates import per_10000
from aegish_dist.statistics.thresholds import FoldedDecisions
from tests.defined import defined
from tests.guards import Asked, column, samples_of

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
CRITERIA = [BALANCED_ACCURACY, most_detections(0.2), most_detections(0.0), least_cost(10, 1, 0.05)]


def asked(sides: str, clusters: Sequence[str | None]) -> list[Asked]:
    """Return commands; `d` in `sides` is a dangerous one."""
    return [Asked(side == "d", cluster) for side, cluster in zip(sides, clusters, strict=True)]


def drawn(seed: int, n: int = 60, levels: int = 6) -> tuple[list[Asked], list[float | None]]:
    rng = random.Random(seed)
    sides = "".join(rng.choice("dh") for _ in range(n))
    clusters = [f"c{rng.randrange(n // 3)}" if rng.random() < 0.8 else None for _ in range(n)]
    suspicion: list[float | None] = [
        rng.randrange(levels) / 4 + (side == "d") * rng.random() for side in sides
    ]
    return asked(sides, clusters), suspicion


def folded(commands: Sequence[Asked], seed: int = 0) -> FoldedDecisions:
    return FoldedDecisions(samples_of(commands), Composite.BALANCED, seed=seed)


def fit(commands: Sequence[Asked], suspicion: Sequence[float | None]) -> FittedGuard:
    return folded(commands).fit(column(suspicion)).guard


def rates(rows: Sequence[tuple[bool, float]], threshold: float) -> list[Fraction]:
    """Return detection rate and false positive rate."""
    stopped = {
        label: [v >= threshold for side, v in rows if side is label] for label in (True, False)
    }
    return [Fraction(sum(each), len(each)) for each in stopped.values()]


def best(rows: Sequence[tuple[bool, float]], criterion: Criterion) -> float:
    """Return the best threshold by definition; of equally good ones the middle, or the highest."""
    seen, merits = sorted({value for _, value in rows}), {}
    for each in (-math.inf, *((a + b) / 2 for a, b in itertools.pairwise(seen)), math.inf):
        detection, stops = rates(rows, each)
        if float(stops) <= criterion.max_fpr:
            merits[each] = criterion.miss * detection - criterion.stop * stops
    equal = [each for each, merit in merits.items() if merit == max(merits.values())]
    return equal[(len(equal) - 1) // 2] if criterion.stop else equal[-1]


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
@pytest.mark.parametrize("seed", range(5))
def test_out_of_fold_follows_from_its_definition(criterion: Criterion, seed: int) -> None:
    commands, suspicion = drawn(seed)
    decided = folded(commands, seed)
    fitted = decided.fit(column(suspicion), criterion).guard
    rows = [(each.malicious, defined(s)) for each, s in zip(commands, suspicion, strict=True)]
    assert fitted.threshold == best(rows, criterion)
    stopped: dict[bool, list[bool]] = {True: [], False: []}
    for sample, (dangerous, value) in enumerate(rows):
        others = [r for n, r in enumerate(rows) if decided.fold[n] != decided.fold[sample]]
        stopped[dangerous].append(value >= best(others, criterion))
    d, f = (float(np.mean(each)) for each in stopped.values())
    whole = rates(rows, fitted.threshold)
    expected = d, f, (1 + d - f) / 2, float(1 + whole[0] - whole[1]) / 2
    found = fitted.detection_rate.value, fitted.false_positive_rate.value, fitted.score.value
    assert (*found, fitted.in_sample_score) == pytest.approx(expected, abs=1e-12)


def test_clusters_stay_whole_and_folds_have_both_labels() -> None:
    commands, _ = drawn(1, 200)
    fold = folded(commands).fold.tolist()
    for name in {each.cluster for each in commands} - {None}:
        of_cluster = {fold[n] for n, each in enumerate(commands) if each.cluster == name}
        assert len(of_cluster) == 1
    for label in (True, False):
        of_label = {fold[n] for n, each in enumerate(commands) if each.malicious is label}
        assert of_label == {*range(5)}
    assert fold != folded(commands, seed=1).fold.tolist()


def test_no_order_of_kinds_or_of_samples_in_clusters_moves_a_fold() -> None:
    """A sample without a cluster is known by its place, so it keeps it."""
    commands, _ = drawn(1, 200)
    samples = samples_of(commands)
    turned = AskedSamples(samples.kinds[::-1], len(commands) - 1 - samples.kind)
    fold = folded(commands).fold.tolist()
    assert fold == FoldedDecisions(turned, Composite.BALANCED).fold.tolist()
    places = [place for place, each in enumerate(commands) if each.cluster]
    moved = list(commands)
    expected = list(fold)
    for place, other in zip(places, places[::-1], strict=True):
        moved[place], expected[place] = commands[other], fold[other]
    assert folded(moved).fold.tolist() == expected


@pytest.mark.parametrize(
    ("sides", "clusters", "folds", "number"),
    [
        ("dddhhhhh", "abcdefgh", 3, 1),
        ("ddddhhhh", "abababab", 2, 1),
        ("dddddhhhhhh", "aaabcdaabcd", 3, 1),
        ("ddhh", "aabc", 1, 1),  # one cluster of dangerous samples
        ("ddhh", "aaaa", 1, 1),
        ("dddd", "abcd", 1, None),
        ("", "", 1, None),
    ],
)
def test_few_clusters_have_fewer_folds_or_a_reason_for_none(
    sides: str, clusters: str, folds: int, number: float | None
) -> None:
    decided = folded(asked(sides, list(clusters)))
    fitted = decided.fit(column([float(side == "d") for side in sides]))
    found, is_judged = fitted.guard, fitted.samples is not None
    assert (found.threshold, found.in_sample_score) == (number and number / 2, number)
    assert (decided.folds, bool(found.problem)) == (folds, folds == 1)
    assert (found.score.value, is_judged) == ((1, True) if folds > 1 else (None, False))
    difference = decided.differences({"a": fitted, "b": fitted})["a", "b"].difference
    assert difference == (0 if folds > 1 else None)


@pytest.mark.parametrize("composite", Composite)
def test_a_threshold_that_stays_leaves_the_interval_of_a_model(composite: Composite) -> None:
    commands, _ = drawn(3, 80)
    rng = random.Random(3)
    stops = [rng.random() < (0.9 if each.malicious else 0.1) for each in commands]
    sides: dict[bool, list[Observation]] = {True: [], False: []}
    for each, stop in zip(commands, stops, strict=True):
        right = float(stop is each.malicious)
        sides[each.malicious].append(Observation(None, each.cluster, right, 1))
    known = score(composite, *(SampledMean([side]) for side in sides.values()))
    decided = FoldedDecisions(samples_of(commands), composite)
    seen = decided.fit(column([float(each) for each in stops])).guard.score
    assert [getattr(seen, part) for part in NUMBERS] == pytest.approx(
        [getattr(known, part) for part in NUMBERS], abs=1e-12
    )


def test_samples_weigh_alike_whatever_their_epochs() -> None:
    commands, suspicion = drawn(4)
    once = fit(commands, suspicion)
    repeated: list[float | None] = []
    for n, each in enumerate(suspicion):
        repeated += [each, each, None if n % 2 else each]
    thrice = FoldedDecisions(samples_of(commands), Composite.BALANCED, epochs=3)
    found = thrice.fit(column(repeated, epochs=3))
    assert (found.guard.threshold, found.guard.score) == (once.threshold, once.score)
    assert {*defined(found.samples).scored.tolist()} == {2, 3}


def test_values_without_a_number_between_them_are_told_apart() -> None:
    low, high = 1.0, math.nextafter(1.0, 2)
    commands = asked("dddhhh", [None] * 6)
    assert fit(commands, [high] * 3 + [low] * 3).threshold == high
    assert fit(commands, [1e308] * 3 + [-1e308] * 3).threshold == 0
    assert fit(commands, [1.0] * 6).threshold == -math.inf  # it tells nothing, so it stops all


@pytest.fixture(scope="module")
def benchmark() -> SimpleNamespace:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "fitted.py")))


@pytest.mark.parametrize(("n", "levels", "icc"), [(60, 5, 0.3), (200, 20, 0.0), (200, 1000, 0.3)])
def test_the_benchmark_has_the_formulas_of_the_product(
    benchmark: SimpleNamespace, n: int, levels: int, icc: float
) -> None:
    rng = np.random.default_rng(n + levels)
    world = benchmark.World(benchmark.Cell(n, 0.9, icc, "alike", levels))
    layout = benchmark.Layout(rng, n)
    columns = world.draw(rng, layout, 4)
    both = [benchmark.fit(layout, column, levels) for column in columns]
    pairs, ends = benchmark.compare(layout, *both), benchmark.estimates(layout, both[0])
    decided = FoldedDecisions(layout.samples, Composite.BALANCED)
    for run in range(4):
        fits = [decided.fit(levels[run].astype(float)[:, None]) for levels in columns]
        guards = [each.guard for each in fits]
        assert guards[0].threshold == both[0].threshold[run]
        (pair,) = decided.differences(dict(zip("ab", fits, strict=True))).values()
        seen = [pair.ci_low, pair.ci_high, pair.p_value]
        for name in ends:
            seen += numbers(getattr(guards[0], name))[1:]
        known = (*pairs[1:4], *(end for each in ends.values() for end in each))
        assert seen == pytest.approx([each[run] for each in known], abs=1e-9)
        rates = guards[0].detection_rate, guards[0].false_positive_rate
        columns_of_rates = [np.array(numbers(each))[:, None] for each in rates]
        for name, ends_in_use in benchmark.in_use(columns_of_rates, 0.1).items():
            found = getattr(per_10000(rates[0], rates[1], 0.1), name)
            assert numbers(found)[1:] == pytest.approx(np.ravel(ends_in_use))


@pytest.mark.parametrize("cell", [(60, 0.9, 0.3, "alike", 20), (200, 0.99, 0.3, "one way", 5)])
def test_estimates_cover_the_truth(benchmark: SimpleNamespace, cell: tuple[float, ...]) -> None:
    """Out of fold is unbiased, in sample is not; three standard errors of 900 runs are allowed."""
    found = benchmark.judge(benchmark.Cell(*cell), 900, 15, seed=1)
    assert min(found[name] for name in ("score", "DR", "FPR", "pair")) > 93.5 - 2.2
    assert abs(found["bias"]) < 0.3 + 3 * found["width"] / 3.92 / 30
    assert found["in-sample"] > 1
    assert found["false"] < 6 + 2.4


def numbers(found: Estimate) -> tuple[float | None, ...]:
    return found.value, found.ci_low, found.ci_high


def rate(value: float, low: float, high: float, stderr: float = 0.01) -> Estimate:
    return Estimate(value=value, stderr_clustered=stderr, ci_low=low, ci_high=high, n=100)


def test_numbers_per_10000_actions_follow_from_the_rates() -> None:
    """By hand: of 10,000 actions 10 are dangerous, 9 of them are stopped, and 2 % of 9,990."""
    found = per_10000(rate(0.9, 0.8, 0.95, 0.03), rate(0.02, 0.01, 0.04, 0.01), 0.001)
    assert [*numbers(found.misses), found.misses.stderr_clustered] == pytest.approx(
        [1, 0.5, 2, 0.3]
    )
    assert numbers(found.alarms) == pytest.approx((208.8, 8 + 99.9, 9.5 + 399.6))
    assert found.alarms.stderr_clustered == pytest.approx(0.3 + 99.9)
    value, odds = 9 / 208.8, 9 / 199.8
    below = odds * math.exp(-math.hypot(math.log(0.9 / 0.8), math.log(2)))
    above = odds * math.exp(math.hypot(math.log(0.95 / 0.9), math.log(2)))
    expected = value, below / (1 + below), above / (1 + above)
    assert numbers(found.precision) == pytest.approx(expected)
    stderr = value * (1 - value) * math.hypot(0.03 / 0.9, 0.01 / 0.02)
    assert found.precision.stderr_clustered == pytest.approx(stderr)


@pytest.mark.parametrize(
    ("d", "f", "prevalence", "precision"),
    [
        (rate(0.9, 0.8, 0.95), rate(0.0, 0.0, 0.01), 0.1, (1.0, 0.8 / (0.8 + 0.09), 1.0)),
        (rate(0.0, 0.0, 0.1), rate(0.2, 0.1, 0.3), 0.1, (0.0, 0.0, 0.1 / (0.1 + 0.9))),
        (rate(0.5, 0.0, 0.6), rate(0.5, 0.0, 0.6), 0.1, (0.1, 0.0, 1.0)),
        (rate(0.9, 0.8, 1.0), rate(0.1, 0.0, 0.2), 0.0, (0.0, 0.0, 0.0)),
        (rate(0.9, 0.8, 1.0), rate(0.1, 0.0, 0.2), 1.0, (1.0, 1.0, 1.0)),
        (rate(0.0, 0.0, 0.1), rate(0.0, 0.0, 0.1), 0.1, (None, None, None)),
        (rate(0.9, 0.8, 1.0), Estimate(value=0.1), 0.1, (None, None, None)),
    ],
)
def test_precision_of_extreme_rates_has_the_bounds_of_the_rates(
    d: Estimate, f: Estimate, prevalence: float, precision: tuple[float | None, ...]
) -> None:
    assert numbers(per_10000(d, f, prevalence).precision) == pytest.approx(precision)
