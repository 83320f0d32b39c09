"""Metrics of the ROC curve against scikit-learn, scipy and their definitions in numpy."""

import math
import runpy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from aegish_dist.core.columns import Floats
from aegish_dist.core.metric import Difference, Estimate
from aegish_dist.opinions.guards import Guards
from aegish_dist.statistics import roc
from aegish_dist.statistics.distributions import holm
from aegish_dist.statistics.roc import ScoredDecisions
from tests.defined import defined
from tests.guards import Asked, a_guard, column, samples_of
from tests.oracles import metrics, stats

METRICS: dict[str, Callable[[ScoredDecisions], Estimate]] = {
    "auroc": roc.auroc,
    "precision": roc.average_precision,
    **{f"partial {f}": partial(roc.partial_auroc, max_fpr=f) for f in (0.05, 0.31, 1.0)},
}
BOUNDS = (0.0, 0.005, 0.05, 0.2, 1.0)


def oracle(metric: str, labels: Sequence[bool], scores: Sequence[float], weights: Floats) -> float:
    if metric == "precision":
        return float(metrics.average_precision_score(labels, scores, sample_weight=weights))
    max_fpr = None if metric == "auroc" else float(metric.split()[1])
    return float(metrics.roc_auc_score(labels, scores, sample_weight=weights, max_fpr=max_fpr))


def asked(
    seed: int, n: int, distinct: int, binaries: int = 0, apart: float = 1.5
) -> tuple[list[Asked], list[float]]:
    """Draw a guard's suspicion of n commands; half are dangerous."""
    rng = np.random.default_rng(seed)
    clusters = [str(rng.integers(binaries)) if binaries else None for _ in range(n)]
    commands = [Asked(i % 2 == 0, each) for i, each in enumerate(clusters)]
    noise = rng.standard_normal(n) + apart * (np.arange(n) % 2 == 0)
    return commands, np.round(noise * distinct / 6).tolist()


def scored(
    commands: Sequence[Asked], suspicion: Sequence[float | None], epochs: int = 1
) -> ScoredDecisions:
    return ScoredDecisions(samples_of(commands), column(suspicion, epochs))


def guards_of(commands: Sequence[Asked], **suspicion: Sequence[float | None]) -> Guards:
    guards = [a_guard(name, [None] * len(each), each) for name, each in suspicion.items()]
    return Guards(samples_of(commands), 1, guards)


def kernel(commands: Sequence[Asked], suspicion: Sequence[float]) -> Floats:
    """Return by dangerous and harmless decision: 1 for the right order, half for a tie."""
    sides: tuple[list[float], list[float]] = ([], [])
    for command, value in zip(commands, suspicion, strict=True):
        sides[not command.malicious].append(value)
    difference = np.subtract.outer(*map(np.array, sides))
    return np.asarray((np.sign(difference) + 1) / 2)


ANSWERS = st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=40)


@given(ANSWERS, st.sampled_from(sorted(METRICS)))
def test_values_agree_with_scikit_learn_in_spite_of_ties(
    answers: list[tuple[bool, int]], metric: str
) -> None:
    labels, scores = [True, False, *(a for a, _ in answers)], [3, 3, *(b for _, b in answers)]
    found = METRICS[metric](scored([Asked(label) for label in labels], scores))
    expected = oracle(metric, labels, scores, np.ones(len(labels)))
    assert found.value == pytest.approx(expected, abs=1e-12)
    if metric == "auroc":
        x, y = ([s for a, s in zip(labels, scores, strict=True) if a == each] for each in (1, 0))
        assert found.value == pytest.approx(stats.mannwhitneyu(x, y).statistic / len(x) / len(y))


@pytest.mark.parametrize("distinct", [5, 20, 1000])
def test_the_stderr_of_independent_decisions_is_that_of_delong(distinct: int) -> None:
    """S10 / m + S01 / n of the placement values: DeLong et al. 1988, equations 4 to 6."""
    commands, suspicion = asked(1, 90, distinct)
    placed = [kernel(commands, suspicion).mean(axis=axis) for axis in (1, 0)]
    sides = sum(each.var(ddof=1) / len(each) * (len(each) - 1) / len(each) for each in placed)
    found = roc.auroc(scored(commands, suspicion)).stderr_clustered
    assert found == pytest.approx(math.sqrt(90 / 89 * sides))  # 90 clusters of one decision each


@pytest.mark.parametrize("distinct", [5, 1000])
@pytest.mark.parametrize("metric", METRICS)
def test_the_clustered_stderr_sums_up_what_decisions_add(metric: str, distinct: int) -> None:
    """What a decision adds is the metric's derivative by its weight, the sides' weights kept."""
    commands, suspicion = asked(2, 60, distinct, binaries=15)
    labels = np.array([each.malicious for each in commands])

    def weighted(index: int, step: float) -> float:
        weights = np.ones(len(labels))
        weights[index] += step
        for side in (labels, ~labels):
            weights[side] *= side.sum() / weights[side].sum()
        return oracle(metric, labels.tolist(), suspicion, weights)

    sums: dict[str | None, float] = {}
    for index, command in enumerate(commands):
        change = (weighted(index, 1e-5) - weighted(index, -1e-5)) / 2e-5
        sums[command.cluster] = sums.get(command.cluster, 0.0) + change
    expected = math.sqrt(len(sums) / (len(sums) - 1) * sum(each**2 for each in sums.values()))
    found = METRICS[metric](scored(commands, suspicion))
    assert found.clusters == len(sums)
    assert found.stderr_clustered == pytest.approx(expected, rel=1e-4)


def numbers(found: Estimate) -> list[float]:
    known = found.value, found.stderr_clustered, found.ci_low, found.ci_high
    return [defined(each) for each in known]


def all_numbers(
    commands: Sequence[Asked], suspicion: Sequence[float | None], epochs: int = 1
) -> list[float]:
    scores = scored(commands, suspicion, epochs)
    points = [defined(roc.detection_at(scores, bound)) for bound in BOUNDS]
    found = [metric(scores) for metric in METRICS.values()]
    found += [each for at in points for each in (at.detection_rate, at.false_positive_rate)]
    return [number for each in found for number in numbers(each)]


@pytest.mark.parametrize("distinct", [5, 1000])
def test_only_the_order_of_suspicions_counts_and_not_that_of_decisions(distinct: int) -> None:
    commands, suspicion = asked(3, 80, distinct, binaries=20)
    expected = all_numbers(commands, suspicion)
    assert all_numbers(commands, [math.exp(each / 1000) for each in suspicion]) == expected
    assert all_numbers(commands[::-1], suspicion[::-1]) == pytest.approx(expected, abs=1e-12)
    more = [*commands, *(Asked(i == 1) for i in range(3))]
    assert all_numbers(more, [*suspicion, None, None, None]) == expected


@pytest.mark.parametrize("apart", [0.0, 1.5, 9.0])
def test_swapped_labels_mirror_the_auroc(apart: float) -> None:
    commands, suspicion = asked(4, 70, 20, binaries=18, apart=apart)
    swapped = [each._replace(malicious=not each.malicious) for each in commands]
    found = numbers(roc.auroc(scored(commands, suspicion)))
    mirrored = numbers(roc.auroc(scored(swapped, [-each for each in suspicion])))
    assert mirrored == pytest.approx(found, abs=1e-12)
    value, stderr, low, high = numbers(roc.auroc(scored(swapped, suspicion)))
    assert [1 - value, stderr, 1 - high, 1 - low] == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_a_curve_without_inversion_is_uncertain(metric: str) -> None:
    widths = []
    for n in (20, 200, 2000):
        commands, _ = asked(5, n, 5)
        found = METRICS[metric](scored(commands, [float(each.malicious) for each in commands]))
        assert found.value == found.ci_high == 1
        widths.append(1 - defined(found.ci_low))
    assert 0.6 > widths[0] > widths[1] > widths[2] > 0


def test_epochs_that_agree_tell_nothing_new() -> None:
    commands, suspicion = asked(6, 80, 20)
    repeated = [each for each in suspicion for _ in range(3)]
    expected = all_numbers(commands, suspicion)
    assert all_numbers(commands, repeated, epochs=3) == pytest.approx(expected, abs=1e-9)


def test_a_missing_side_leaves_all_undefined() -> None:
    commands = [Asked(malicious=True)] * 3
    scores = scored(commands, [0.1, 0.2, None])
    assert [metric(scores) for metric in METRICS.values()] == [Estimate(n=2, clusters=0)] * 5
    assert roc.detection_at(scores, 0.05) is None
    pairs = roc.auroc_differences(guards_of(commands, a=[0.1] * 3, b=[0.2] * 3))
    assert pairs == {("a", "b"): Difference(n=3)}
    lone = [Asked(i > 0) for i in range(3)]
    assert roc.auroc(scored(lone, [0.0, 1.0, 2.0])) == Estimate(value=1, n=3)


@pytest.mark.parametrize("distinct", [3, 10, 1000])
@pytest.mark.parametrize("bound", BOUNDS)
def test_the_threshold_is_the_smallest_within_the_bound(distinct: int, bound: float) -> None:
    commands, suspicion = asked(7, 200, distinct)
    point = defined(roc.detection_at(scored(commands, suspicion), bound))

    def stopped(threshold: float, *, dangerous: bool) -> float:
        side = [s for s, c in zip(suspicion, commands, strict=True) if c.malicious is dangerous]
        return sum(each >= threshold for each in side) / len(side)

    allowed = [each for each in suspicion if stopped(each, dangerous=False) <= bound]
    threshold = min(allowed, default=math.inf)
    assert point.threshold == (threshold if allowed else None)
    value, _, low, high = numbers(point.detection_rate)
    assert value == pytest.approx(stopped(threshold, dangerous=True))
    assert point.false_positive_rate.value == pytest.approx(stopped(threshold, dangerous=False))
    assert 0 <= low <= value <= high <= 1
    assert low < high


@pytest.mark.parametrize(("harmless", "known"), [(59, False), (60, True)])
def test_a_bound_needs_harmless_commands(harmless: int, *, known: bool) -> None:
    """The rule of three: 3 / 60 = 5 %. A rate of 5 % would hardly have shown no error in 60."""
    commands = [Asked(i >= harmless) for i in range(harmless + 200)]
    suspicion = [float(i) for i in range(harmless + 200)]
    point = defined(roc.detection_at(scored(commands, suspicion), 0.05))
    assert point.detection_rate.value == 1
    assert (defined(point.detection_rate.ci_low) > 0.9) is known
    square = roc._CUT**2  # noqa: SLF001
    assert (stats.chi2.sf(square, 1) + stats.chi2.sf(square, 2)) / 2 == pytest.approx(
        0.05, abs=1e-5
    )


def test_the_difference_of_a_pair_is_that_of_delong() -> None:
    """Placement values differ by L = (-1, 1): DeLong et al. 1988, equation 8."""
    commands, first = asked(8, 120, 20)
    _, second = asked(9, 120, 1000)
    [pair] = roc.auroc_differences(guards_of(commands, a=first, b=second)).values()
    change = kernel(commands, second) - kernel(commands, first)
    assert pair.difference == pytest.approx(change.mean())
    assert pair.clusters == 120
    squares = sum(change.mean(axis=axis).var() / change.shape[1 - axis] for axis in (1, 0))
    assert pair.stderr_clustered == pytest.approx(math.sqrt(120 / 119 * squares))
    [back] = roc.auroc_differences(guards_of(commands, b=second, a=first)).values()
    mirrored = [-defined(back.difference), -defined(back.ci_high), back.p_value]
    assert mirrored == pytest.approx([pair.difference, pair.ci_low, pair.p_value])


def test_pairs_stand_on_common_decisions_and_are_adjusted() -> None:
    commands, first = asked(10, 100, 20, binaries=30)
    guards: dict[str, list[float | None]] = {"a": [*first], "same": [2 * each for each in first]}
    for seed, apart in ((11, 1.5), (12, 0.5)):
        guards[str(seed)] = [*asked(seed, 100, 20, apart=apart)[1]]
    guards["11"][:7] = [None] * 7
    pairs = roc.auroc_differences(guards_of(commands, **guards))
    plain = {pair: each.p_value for pair, each in pairs.items()}
    assert {pair: each.p_adjusted for pair, each in pairs.items()} == holm(plain)
    same = pairs["a", "same"]
    assert (same.difference, same.p_value) == (0, 1)
    assert defined(same.ci_low) < 0 < defined(same.ci_high)
    later = {name: guards[name][7:] for name in ("a", "11")}
    [common] = roc.auroc_differences(guards_of(commands[7:], **later)).values()
    of_all, alone = (asdict(replace(each, p_adjusted=None)) for each in (pairs["a", "11"], common))
    # Sums are grouped otherwise, so a last digit may move.
    assert of_all == pytest.approx(alone, abs=1e-9)


def test_many_pairs_differ_as_those_compared_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pairs a group has, those with no decision in common among them."""
    commands, first = asked(13, 100, 20, binaries=30)
    guards: dict[str, list[float | None]] = {"a": [*first]}
    for seed in range(14, 18):
        guards[str(seed)] = [*asked(seed, 100, 20)[1]]
    guards["14"][:7] = [None] * 7
    guards["15"][:50] = [None] * 50
    guards["16"][50:] = [None] * 50
    together = roc.auroc_differences(guards_of(commands, **guards))
    assert together["15", "16"] == Difference(n=0)
    monkeypatch.setattr(roc, "MOST_CELLS", 3 * len(commands))
    assert roc.auroc_differences(guards_of(commands, **guards)) == together
    for a, b in together:
        [alone] = roc.auroc_differences(
            guards_of(commands, **{a: guards[a], b: guards[b]})
        ).values()
        assert replace(together[a, b], p_adjusted=None) == replace(alone, p_adjusted=None)


@pytest.fixture(scope="module")
def benchmark() -> SimpleNamespace:
    folder = Path(__file__).parents[3] / "benchmarks"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        return SimpleNamespace(**runpy.run_path(str(folder / "roc.py")))


@pytest.mark.parametrize("kind", ["auroc", "at@0.05", "partial", "precision", "pairs"])
def test_intervals_cover_the_truth(benchmark: SimpleNamespace, kind: str) -> None:
    cell, runs = benchmark.Cell(100, 0.9, 0.3, "eased", 20, "wrong"), 100
    simulate = benchmark.simulate_pairs if kind == "pairs" else partial(benchmark.simulate, kind)
    # A right interval falls below this in one of 2,000 cells.
    assert simulate(cell, runs, 1).covered >= 0.95 - 3.3 * math.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize("auroc", [0.7, 0.99])
def test_pairs_of_the_benchmark_have_the_formulas_of_the_product(
    benchmark: SimpleNamespace, auroc: float
) -> None:
    cell, rng = benchmark.Cell(80, auroc, 0.3, "raised", 20, "wrong"), np.random.default_rng(1)
    samples, guard = benchmark.lay_out(rng, cell), benchmark.world(auroc, 20, "wrong")
    columns = benchmark.answer(rng, samples, cell, [guard] * 2)
    seen = benchmark.compare(samples, *columns)
    for run in range(5):
        suspicion = [each[run].tolist() for each in columns]
        guards = [
            a_guard(name, [None] * len(samples), each)
            for name, each in zip("ab", suspicion, strict=True)
        ]
        [known] = roc.auroc_differences(Guards(samples, 1, guards)).values()
        expected = [known.difference, known.ci_low, known.ci_high, known.p_value]
        assert [each[run] for each in seen[:4]] == pytest.approx(expected, abs=1e-9)
