"""Counts behind printed figures by hand, intervals and tests against scipy and statsmodels."""

import math
import random
from collections import Counter
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from statsmodels.stats.proportion import (
    confint_proportions_2indep,
    proportion_confint,
)
from statsmodels.stats.proportion import (
    test_proportions_2indep as two_proportions,
)

from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import Composite
from aegish_dist.statistics.means import Observation, SampledMean, score
from aegish_dist.statistics.paired_difference import UNIT, PairedStratum, compare_samples
from aegish_dist.statistics.published import (
    ACCEPTANCE,
    DETECTION,
    MOST_COUNTS,
    PublishedGuard,
    agreement,
    compare_published,
    pairings,
    unpaired,
)
from aegish_dist.statistics.rates import Estimate
from tests.defined import defined


def guard(name: str = "g", m: int = 193, h: int = 4001, **figures: str | int) -> PublishedGuard:
    """Return a row; figures are written as a table prints them."""
    printed: Any = {key: Decimal(value) for key, value in figures.items()}
    return PublishedGuard(name=name, malicious=m, harmless=h, figures=printed)


def counted(name: str, detected: int, accepted: int, m: int = 100, h: int = 100) -> PublishedGuard:
    return guard(name, m, h, true_positives=detected, true_negatives=accepted)


def test_figures_that_leave_one_pair_of_counts_give_it() -> None:
    """178 / 193 = .9223, 178 / 188 = .9468 and 356 / 381 = .9344; 4,001 - 10 are accepted."""
    row = guard(malicious_detection_rate=".922", precision=".947", f1=".934")
    assert row.counts == [(178, 3991)]


def test_all_counts_that_round_to_the_figures_are_kept() -> None:
    """Of 8, 1 is .125, which is printed as .12 or .13; of 20, 1 or 2 stopped are .1 to one digit."""
    for printed in (".12", ".13"):
        assert guard(m=8, h=20, malicious_detection_rate=printed, false_positive_rate=".1").counts == [
            (1, 17), (1, 18), (1, 19)
        ]  # fmt: skip


def test_a_row_that_contradicts_itself_has_no_counts_and_no_metrics() -> None:
    """5 of 10 detected with a precision of .5 make 5 stopped: F1 is .5, not .6."""
    row = guard(m=10, h=10, malicious_detection_rate=".50", precision=".50", f1=".60")
    assert row.counts == []
    assert {each.value for each in row.metrics.values()} == {None}


def test_counts_say_what_their_complements_say() -> None:
    plain = guard(m=10, h=20, true_positives=7, true_negatives=18)
    mirrored = guard(m=10, h=20, false_negatives=3, false_positives=2)
    assert plain.counts == mirrored.counts == [(7, 18)]
    assert guard(m=10, h=20, true_positives=7, false_negatives=4).counts == []


def test_a_rate_that_the_figures_leave_open_is_undefined() -> None:
    row = guard(malicious_detection_rate=".922")
    assert {each[0] for each in row.counts} == {178}
    assert row.metrics[DETECTION].value == 178 / 193
    assert {row.metrics[name].value for name in (ACCEPTANCE, "f1", "aegish_score")} == {None}
    assert len(guard(auroc=".9").counts) == MOST_COUNTS + 1


def test_intervals_are_those_of_a_run_without_clusters() -> None:
    """Wilson's up to the assumption about the variance; the score's are MOVER."""
    found = counted("g", 90, 160, 100, 200).metrics
    ends = defined(found[DETECTION].ci_low), defined(found[DETECTION].ci_high)
    assert ends == pytest.approx(proportion_confint(90, 100, method="wilson"), abs=0.003)
    sides = [
        SampledMean([[Observation(None, None, 1, right), Observation(None, None, 0, wrong)]])
        for right, wrong in ((90, 10), (160, 40))
    ]
    expected = score(Composite.BALANCED, *sides)
    for part in ("value", "ci_low", "ci_high"):
        assert getattr(found["aegish_score"], part) == pytest.approx(getattr(expected, part))


def test_metrics_that_depend_on_the_mix_follow_from_counts() -> None:
    """Of 8 and 2 stopped: precision 8 / 10, F1 16 / 20, accuracy 26 / 30."""
    found = counted("g", 8, 18, 10, 20).metrics
    values = [found[name].value for name in ("precision", "f1", "accuracy")]
    assert values == pytest.approx([0.8, 0.8, 26 / 30])


def test_the_interval_of_f1_is_the_delta_methods_where_there_are_many_commands() -> None:
    """F1 = 2 r / (1 + r + q) of r = .8, q = .1; its slopes are 2 (1 + q) / D^2 and -2 r / D^2."""
    found = counted("g", 8000, 9000, 10_000, 10_000).metrics["f1"]
    slopes = 2 * 1.1 / 1.9**2, 2 * 0.8 / 1.9**2
    stderr = math.hypot(slopes[0] * 0.004, slopes[1] * 0.003)
    assert found.value == pytest.approx(1.6 / 1.9)
    width = defined(found.ci_high) - defined(found.ci_low)
    assert width == pytest.approx(2 * 1.96 * stderr, rel=0.01)


def test_auroc_has_the_interval_of_a_published_example() -> None:
    """.893 of 51 and 58 images has a standard error of .032: Hanley & McNeil 1982, table II."""
    found = guard(m=51, h=58, auroc=".893").metrics["auroc"]
    width = defined(found.ci_high) - defined(found.ci_low)
    assert width == pytest.approx(2 * 1.96 * 0.032, rel=0.03)


@pytest.mark.parametrize(("x", "y"), [(90, 80), (60, 40), (50, 52), (30, 70)])
def test_the_unpaired_test_agrees_with_statsmodels(x: int, y: int) -> None:
    a, b = (counted("g", each, 50).metrics[DETECTION] for each in (x, y))
    found = unpaired(a, b)
    low, high = confint_proportions_2indep(y, 100, x, 100, method="newcomb", compare="diff")
    assert (found.ci_low, found.ci_high) == pytest.approx((low, high), abs=0.004)
    expected = two_proportions(y, 100, x, 100, method="score").pvalue
    assert found.p_value == pytest.approx(expected, abs=0.015)


def every_p(
    a: tuple[int, int], b: tuple[int, int], sizes: tuple[int, int], metric: str
) -> list[float]:
    """Return p of every pairing of two guards that there can be."""
    sides = list(zip(TrueLabel, sizes, a, b, strict=True))
    found = []
    for both in product(*(range(max(0, x + y - n), min(x, y) + 1) for _, n, x, y in sides)):
        strata = {}
        for (target, n, x, y), k in zip(sides, both, strict=True):
            table = {(UNIT, UNIT): k, (UNIT, 0): x - k, (0, UNIT): y - k, (0, 0): n - x - y + k}
            kinds = +Counter(table)
            strata[target, None] = PairedStratum(kinds=kinds, unclustered=kinds)
        p = compare_samples(strata, Composite.BALANCED).metrics[metric].p_value  # type: ignore[arg-type]
        found.append(defined(p))
    return found


@pytest.mark.parametrize("metric", ["aegish_score", DETECTION, ACCEPTANCE])
def test_no_pairing_decides_otherwise_than_the_bounds(metric: str) -> None:
    rng = random.Random(5)
    for _ in range(20):
        sizes = rng.randint(8, 40), rng.randint(8, 40)
        a = rng.randint(0, sizes[0]), rng.randint(0, sizes[1])
        near = [min(n, max(0, x + rng.randint(-7, 7))) for x, n in zip(a, sizes, strict=True)]
        b = near[0], near[1]
        tried = [defined(each.p_value) for each in pairings(a, b, sizes, metric)]
        every = every_p(a, b, sizes, metric)
        assert {*tried} <= {*every}
        assert (min(tried) < 0.05) is (min(every) < 0.05)
        assert (max(tried) < 0.05) is (max(every) < 0.05)


def test_pairs_differ_are_tied_or_depend_on_the_pairing() -> None:
    """With 100 of each: 90 against 20 and 90 against 88 whatever the pairing is.

    90 against 80 are 10 commands that one alone got right, or 20 against 10: Holm's p for six
    pairs is far below .05, or above.
    """
    rows = [counted(f"{x}", x, 50) for x in (90, 88, 80, 20)]
    found = compare_published(rows, DETECTION)
    verdicts = {(each["a"], each["b"]): each["verdict"] for each in found}
    assert verdicts["90", "88"] == "tied"
    assert verdicts["90", "80"] == "open"
    assert {verdicts[x, "20"] for x in ("90", "88", "80")} == {"differ"}
    pair = found[1]
    assert [(pair[kind]["a_only"], pair[kind]["b_only"]) for kind in ("least", "most")] == [
        (10, 0), (20, 10)
    ]  # fmt: skip
    assert pair["least"]["p_adjusted"] < 0.05 < pair["most"]["p_adjusted"]


def test_guards_of_other_numbers_of_commands_have_no_pairing() -> None:
    pair = compare_published([counted("a", 90, 50), counted("b", 45, 25, 50, 50)], DETECTION)[0]
    assert pair["unpaired"] == pair["least"] == pair["most"]


def test_a_run_is_equal_within_or_differs() -> None:
    """Beside .90 to two digits of 100 commands: 180 of 200 are equal, 177 within, 100 differ."""
    row = guard(m=100, h=100, malicious_detection_rate=".90", false_positive_rate=".10")

    def verdicts(detected: int) -> dict[str, str]:
        own = counted("own", detected, 180, 200, 200).metrics
        found = agreement(row, {name: to_dict(each) for name, each in own.items()})
        return {name: each["verdict"] for name, each in found.items()}

    assert set(verdicts(180).values()) == {"equal"}
    assert verdicts(177)[DETECTION] == "within"
    assert verdicts(100) | {ACCEPTANCE: "equal"} == verdicts(100)
    assert verdicts(100)[DETECTION] == "differs"


def to_dict(estimate: Estimate) -> dict[str, Any]:
    return {name: getattr(estimate, name) for name in ("value", "ci_low", "ci_high")}
