"""Counts behind printed figures by hand, intervals and tests against scipy and statsmodels."""

import math
import random
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from msgspec.structs import asdict

from aegish_dist.core.metric import Estimate
from aegish_dist.core.sample import TrueLabel
from aegish_dist.opinions.scoring import DEFAULT_RULE, Composite
from aegish_dist.statistics import published
from aegish_dist.statistics.means import Observation, SampledMean, score
from aegish_dist.statistics.published import ACCEPTANCE, DETECTION, PublishedGuard
from tests.defined import defined
from tests.oracles import proportion, stats
from tests.unit.statistics.paired_values import compare, table


def guard(name: str = "g", m: int = 193, h: int = 4001, **figures: str | int) -> PublishedGuard:
    printed: Any = {key: Decimal(value) for key, value in figures.items()}
    return PublishedGuard(name=name, malicious=m, harmless=h, figures=printed)


def counted(name: str, detected: int, accepted: int, m: int = 100, h: int = 100) -> PublishedGuard:
    return guard(name, m, h, true_positives=detected, true_negatives=accepted)


def width(estimate: Estimate) -> float:
    return defined(estimate.ci_high) - defined(estimate.ci_low)


def test_figures_that_leave_one_pair_of_counts_give_it_and_all_metrics() -> None:
    """178 / 193 = .9223, 178 / 188 = .9468 and 356 / 381 = .9344; 4,001 - 10 are accepted."""
    row = guard(malicious_detection_rate=".922", precision=".947", f1=".934")
    assert row.counts == [(178, 3991)]
    values = [row.metrics[name].value for name in ("precision", "f1", "accuracy")]
    assert values == pytest.approx([178 / 188, 356 / 381, (178 + 3991) / 4194])


def test_all_counts_that_round_to_the_figures_are_kept() -> None:
    """Of 8, 1 is .125, printed as .12 or .13; of 20, 1 to 3 stopped are .1 to one digit."""
    for printed in (".12", ".13"):
        row = guard(m=8, h=20, malicious_detection_rate=printed, false_positive_rate=".1")
        assert row.counts == [(1, 17), (1, 18), (1, 19)]
    assert guard(m=10, h=20, false_negatives=3, false_positives=2).counts == [(7, 18)]


def test_a_row_that_contradicts_itself_has_no_counts_and_no_metrics() -> None:
    """5 of 10 detected with a precision of .5 make 5 stopped: F1 is .5, not .6."""
    row = guard(m=10, h=10, malicious_detection_rate=".50", precision=".50", f1=".60")
    assert (row.counts, {each.value for each in row.metrics.values()}) == ([], {None})
    assert guard(m=10, h=20, true_positives=7, false_negatives=4).counts == []


def test_a_rate_that_the_figures_leave_open_is_undefined() -> None:
    row = guard(malicious_detection_rate=".922")
    assert {each[0] for each in defined(row.counts)} == {178}
    assert row.metrics[DETECTION].value == 178 / 193
    assert {row.metrics[name].value for name in (ACCEPTANCE, "f1", "aegish_score")} == {None}
    assert guard(auroc=".9").counts is None


def test_an_interval_holds_for_all_counts() -> None:
    found = guard(m=10, h=100, true_positives=5, harmless_acceptance_rate=".9").metrics[ACCEPTANCE]
    ends = [counted("g", 5, accepted, 10).metrics[ACCEPTANCE] for accepted in (85, 95)]
    assert (found.ci_low, found.ci_high) == (ends[0].ci_low, ends[1].ci_high)


def test_intervals_are_those_of_a_run_without_clusters() -> None:
    """Wilson's up to the assumption about the variance; the score's are MOVER."""
    found = counted("g", 90, 160, 100, 200).metrics
    ends = defined(found[DETECTION].ci_low), defined(found[DETECTION].ci_high)
    assert ends == pytest.approx(proportion.proportion_confint(90, 100, method="wilson"), abs=0.003)
    dr, ha = (
        [Observation(None, None, 1, x), Observation(None, None, 0, y)]
        for x, y in ((90, 10), (160, 40))
    )
    expected = score(Composite.BALANCED, SampledMean([dr]), SampledMean([ha]))
    names = "value", "ci_low", "ci_high"
    parts = [[getattr(each, name) for name in names] for each in (found["aegish_score"], expected)]
    assert parts[0] == pytest.approx(parts[1])


def test_the_interval_of_f1_is_the_delta_methods_where_there_are_many_commands() -> None:
    """F1 = 2 r / (1 + r + q) of r = .8, q = .1; its slopes are 2 (1 + q) / D^2 and -2 r / D^2."""
    found = counted("g", 8000, 9000, 10_000, 10_000).metrics["f1"]
    stderr = math.hypot(2 * 1.1 / 1.9**2 * 0.004, 2 * 0.8 / 1.9**2 * 0.003)
    assert width(found) == pytest.approx(2 * 1.96 * stderr, rel=0.01)


@pytest.mark.parametrize(
    ("metric", "r", "a", "stated"),
    [
        ("aegish_score", 0.99, 0.98, 0.933),
        ("accuracy", 0.99, 0.98, 0.933),
        ("f1", 0.99, 0.98, 0.933),
        ("precision", 0.02, 0.995, 0.839),
    ],
)
def test_the_least_coverage_is_the_stated_one(
    metric: str, r: float, a: float, stated: float
) -> None:
    """The exact sum over the counts of 20 and 20 commands for which the metric is defined."""
    truth, share = published.OF_RATES[metric](r, a, 1), {True: 0.0, False: 0.0}
    for x, y in product(range(21), repeat=2):
        found = counted("g", x, y, 20, 20).metrics[metric]
        if found.value is not None:
            covers = defined(found.ci_low) <= truth <= defined(found.ci_high)
            share[covers] += stats.binom.pmf(x, 20, r) * stats.binom.pmf(y, 20, a)
    assert share[True] / sum(share.values()) == pytest.approx(stated, abs=0.0005)


def test_auroc_has_the_standard_error_of_its_paper() -> None:
    """Hanley & McNeil 1982; by hand (.16 + 9 x .0267 + 999 x .0711) / 10,000 = .0845^2."""
    for m, h, value, stderr in ((51, 58, ".893", 0.032), (10, 1000, ".800", 0.0845)):
        found = guard(m=m, h=h, auroc=value).metrics["auroc"]
        assert width(found) == pytest.approx(2 * 1.96 * stderr, rel=0.1)


@pytest.mark.parametrize(("printed", "ends"), [(".9", "85 95"), ("1.0", "95 100"), ("1", "50 100")])
def test_auroc_is_the_printed_one_and_its_interval_holds_for_all_that_round_to_it(
    printed: str, ends: str
) -> None:
    found = guard(auroc=printed).metrics["auroc"]
    low, high = (guard(auroc=f"{int(end) / 100:.9f}").metrics["auroc"] for end in ends.split())
    assert found.value == float(printed)
    assert (found.ci_low, found.ci_high) == pytest.approx((low.ci_low, high.ci_high))


@pytest.mark.parametrize(("x", "y"), [(90, 80), (50, 52), (30, 70), (1, 7)])
def test_the_unpaired_test_agrees_with_statsmodels(x: int, y: int) -> None:
    a, b = (counted("g", each, 50).metrics[DETECTION] for each in (x, y))
    found = published.unpaired(a, b)
    low, high = proportion.confint_proportions_2indep(
        y, 100, x, 100, method="newcomb", compare="diff"
    )
    assert (found.ci_low, found.ci_high) == pytest.approx((low, high), abs=0.004)
    p = proportion.test_proportions_2indep(y, 100, x, 100, method="score").pvalue
    assert found.p_value == pytest.approx(p, abs=0.015)
    assert published.unpaired(b, a) == found.turned


def p_of(metric: str, *sides: tuple[TrueLabel, int, int, int, int]) -> float:
    """Return p where k of a side's n commands are right of both guards, and x and y of each."""
    cells = []
    for target, n, x, y, k in sides:
        cells += table(k, x - k, y - k, n - x - y + k, target)
    return defined(compare(cells, DEFAULT_RULE).metrics[metric].p_value)


@pytest.mark.parametrize("turns", [6, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("metric", ["aegish_score", DETECTION, ACCEPTANCE])
def test_no_pairing_decides_otherwise_than_the_bounds(metric: str, turns: int) -> None:
    rng = random.Random(5)
    for turn in range(turns):
        sizes = rng.randint(8, 40), rng.randint(8, 40)
        a = [rng.randint(0, n) for n in sizes]
        b = [min(n, max(0, x + rng.randint(-7, 7))) for x, n in zip(a, sizes, strict=True)]
        if not turn:  # five discordant commands are too few for a p below .05, more are not
            sizes, a, b = (12, 33), [4, 4], [8, 5]
        tried = [e.p_value for e in published.pairings((a[0], a[1]), (b[0], b[1]), sizes, metric)]
        sides = [
            [(*of, k) for k in range(max(0, of[2] + of[3] - of[1]), min(of[2:]) + 1)]
            for of in zip(TrueLabel, sizes, a, b, strict=True)
        ]
        # Of a label that the metric does not count, the first and the last pairing do.
        for place, counted in enumerate((DETECTION, ACCEPTANCE)):
            if metric not in ("aegish_score", counted):
                sides[place] = [sides[place][0], sides[place][-1]]
        every = [p_of(metric, *both) for both in product(*sides)]
        assert {*tried} <= {*every}
        assert len(tried) <= 9  # for 4,950 pairs of guards in some seconds
        for end in (min, max):
            assert (end(map(defined, tried)) < 0.05) is (end(every) < 0.05)
            assert metric == "aegish_score" or end(map(defined, tried)) == end(every)


def test_pairs_differ_are_tied_or_depend_on_the_pairing() -> None:
    """Of 90 and 80 of 100, 10 commands differ at least, and 20 against 10 at most."""
    rows = [counted(f"{x}", x, 50) for x in (90, 88, 80, 20)]
    found = published.compare_published(rows, DETECTION)
    verdicts = {(each["a"], each["b"]): each["verdict"] for each in found}
    assert verdicts["90", "88"] == "tied"
    assert verdicts["90", "80"] == "open"
    assert {verdicts[x, "20"] for x in ("90", "88", "80")} == {"differ"}
    least, most = (found[1][kind] for kind in ("least", "most"))
    assert [least.a_only, least.b_only, most.a_only, most.b_only] == [10, 0, 20, 10]
    assert least.p_adjusted < 0.05 < most.p_adjusted
    fewer = published.compare_published([rows[0], counted("of fewer", 45, 25, 50, 50)], DETECTION)
    assert fewer[0]["unpaired"] == fewer[0]["least"] == fewer[0]["most"]


@pytest.mark.parametrize("m", [20_000, 10_000])
def test_guards_whose_counts_allow_equal_values_never_differ(m: int) -> None:
    """8,700 detected of 20,000 are .4 to one digit, 9,000 are .5, and 300 fewer accepted."""
    of = [("a", 20_000, ".4", "18000"), ("b", m, ".5", "17700")]
    rows = [
        guard(name, n, 20_000, malicious_detection_rate=rate, true_negatives=accepted)
        for name, n, rate, accepted in of
    ]
    found = [
        published.compare_published(rows, metric)[0]
        for metric in ("aegish_score", DETECTION, ACCEPTANCE)
    ]
    assert [each["verdict"] for each in found] == ["open", "open", "differ"]
    assert [each["most"].p_value for each in found[:2]] == [1, 1]


def test_a_run_is_equal_within_or_differs() -> None:
    """Beside .90 to two digits of 100 commands: of 200, 180 are equal, 177 within, 100 differ."""
    row = guard(m=100, h=100, malicious_detection_rate=".90", false_positive_rate=".10")
    verdicts = {}
    for detected in (180, 177, 100):
        own = counted("own", detected, 180, 200, 200).metrics
        found = published.agreement(row, {name: asdict(each) for name, each in own.items()})
        verdicts[detected] = found[DETECTION]["verdict"], found[ACCEPTANCE]["verdict"]
    assert verdicts == {180: ("equal",) * 2, 177: ("within", "equal"), 100: ("differs", "equal")}
    assert published.agreement(row, {})["f1"]["verdict"] is None
