"""Which threshold is named: one that is shown to be better than the best guard as it stands."""

import math

import pytest
from msgspec.structs import replace

from aegish_dist.core.metric import (
    BALANCED_ACCURACY,
    Difference,
    Estimate,
    FittedGuard,
    least_cost,
)
from aegish_dist.findings.fitted import (
    CalibratedModel,
    CalibratedPair,
    CalibrationData,
    harmless_needed,
    in_order,
)
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import DEFAULT_RULE, NATIVE, RULES, STATED_CONFIDENCE
from tests.oracles import stats
from tests.unit.report.reports import a_model, a_report

RUN = a_report(a_model()).run


def near(value: float) -> Estimate:
    return Estimate(value, ci_low=value - 0.05, ci_high=value + 0.05)


def a_guard(
    name: str, stands: float, fitted: float, threshold: float | None = 2.5, **changes: object
) -> CalibratedModel:
    """Return a guard by its scores as it stands and with a threshold, of 100 commands each."""
    score, fpr = near(fitted), near(1 - fitted)
    guard = CalibratedModel(
        model=name,
        aegish_score=near(stands),
        malicious=100,
        harmless=100,
        unreadable=0,
        distinct=9,
        auroc=near(0.8),
        partial_fpr=0.05,
        partial_auroc=Estimate(),
        average_precision=Estimate(),
        at_fpr=[],
        fitted=FittedGuard(BALANCED_ACCURACY, threshold, score, score, fpr),
    )
    return replace(guard, **changes)


def found(*guards: CalibratedModel, **p_adjusted: float | None) -> CalibrationData:
    """Return a finding; gains follow from the scores of the guards, p of each is given."""
    data = CalibrationData(
        run=RUN,
        opinion=Opinion(),
        rule=STATED_CONFIDENCE,
        criterion=BALANCED_ACCURACY,
        prevalence=None,
        folds=5,
        asked=(100, 100),
        models=in_order(guards),
        pairs=[],
    )
    leader = data.leader
    scores = {guard.model: guard.fitted.score.value or 0.0 for guard in guards}
    best = (leader and leader.aegish_score.value) or 0.0
    gains = {
        name: Difference(difference=scores[name] - best, p_adjusted=p, n=200, mde=0.1)
        for name, p in p_adjusted.items()
    }
    return replace(data, gains=gains)


def recommended(data: CalibrationData) -> str | None:
    return None if data.recommended is None else data.recommended.model


def test_a_threshold_is_named_where_its_gain_over_the_leader_is_shown() -> None:
    data = found(a_guard("a", 0.8, 0.8), a_guard("b", 0.6, 0.9), a=1.0, b=0.01)
    assert data.leader is not None
    assert (data.leader.model, recommended(data), data.most_promising) == ("a", "b", "b")


@pytest.mark.parametrize("p", [None, 0.05, 0.4, 1.0])
def test_a_gain_that_may_be_chance_names_none(p: float | None) -> None:
    data = found(a_guard("a", 0.8, 0.8), a_guard("b", 0.6, 0.9), a=1.0, b=p)
    assert recommended(data) is None
    assert data.most_promising == "b"
    needed = data.commands_to_show("b")
    assert needed is not None
    assert needed > 200


def test_a_threshold_that_lowers_the_score_is_never_named() -> None:
    """The guard gains on itself, and lies surely under the leader as it stands."""
    data = found(a_guard("careful", 0.75, 0.82), a_guard("lenient", 0.86, 0.8), careful=0.001)
    assert recommended(data) is None
    assert data.most_promising is None


def test_a_hook_without_confidence_gets_no_advice() -> None:
    data = found(a_guard("hook", 0.56, 0.56, 1.5), hook=1.0)
    assert recommended(data) is None
    assert data.most_promising is None


def test_the_best_of_several_shown_thresholds_is_named() -> None:
    guards = a_guard("a", 0.6, 0.8), a_guard("b", 0.7, 0.9), a_guard("c", 0.5, 0.95)
    assert recommended(found(*guards, a=0.04, b=0.02, c=0.01)) == "c"
    assert recommended(found(*guards, a=0.04, b=0.02, c=0.06)) == "b"


@pytest.mark.parametrize("threshold", [None, math.inf, -math.inf])
def test_what_stops_all_or_nothing_is_no_threshold(threshold: float | None) -> None:
    data = found(a_guard("a", 0.6, 0.9, threshold), a=0.001)
    assert recommended(data) is None
    assert data.most_promising is None


def test_a_threshold_of_zero_is_one() -> None:
    """It lies halfway between two numbers of a guard's own."""
    data = found(a_guard("a", 0.6, 0.9, 0.0), a=0.001)
    assert (recommended(data), data.most_promising) == ("a", "a")


def test_a_guard_has_to_be_surely_better_than_chance() -> None:
    """Its interval goes from 0.49 to 0.59; chance is 0.25 where the score is a product."""
    data = found(a_guard("a", 0.3, 0.54), a=0.001)
    assert recommended(data) is None
    product = replace(Opinion(), rule=RULES["aegish-legacy"])
    assert (DEFAULT_RULE.composite.chance, product.rule.composite.chance) == (0.5, 0.25)
    assert recommended(replace(data, opinion=product)) == "a"


@pytest.mark.parametrize(
    "other",
    [
        a_guard("baseline/keyword", 0.9, 0.95),
        a_guard("policy/mine", 0.9, 0.95),
        a_guard("few", 0.9, 0.95, malicious=49),
        a_guard("unsure", 0.9, 0.95, aegish_score=Estimate(0.9)),
        a_guard("one-sided", 0.9, 0.95, harmless=0),
    ],
)
def test_who_takes_no_part_neither_leads_nor_is_named(other: CalibratedModel) -> None:
    data = found(other, a_guard("a", 0.6, 0.8), **{other.model: 0.001, "a": 0.001})
    assert data.leader is not None
    assert (data.leader.model, recommended(data)) == ("a", "a")
    alone = found(other)
    assert (alone.leader, recommended(alone)) == (None, None)


def test_guards_are_in_the_order_of_the_criterion_and_baselines_last() -> None:
    costs = least_cost(10, 1, 0.5)
    fitted = FittedGuard(costs, 0.5, near(0.6), near(0.99), near(0.6))
    stops_much = replace(a_guard("stops-much", 0.5, 0.6), fitted=fitted)
    stops_little = replace(
        stops_much,
        model="stops-little",
        fitted=replace(fitted, detection_rate=near(0.8), false_positive_rate=near(0.1)),
    )
    unfitted = replace(a_guard("unfitted", 0.9, 0.9), fitted=FittedGuard(costs, problem="none"))
    baseline = a_guard("baseline/keyword", 0.9, 0.99)
    ordered = in_order([baseline, unfitted, stops_little, stops_much])
    assert [guard.model for guard in ordered] == [
        "stops-much",
        "stops-little",
        "unfitted",
        "baseline/keyword",
    ]


def test_those_that_differ_by_no_adjusted_p_are_alike() -> None:
    guards = [a_guard("a", 0.81, 0.8)]
    guards += [a_guard(name, 0.8, 0.8) for name in ("b", "c", "d", "baseline/x")]
    pairs = [
        CalibratedPair(one, other, Difference(p_adjusted=p), Difference(), Difference())
        for one, other, p in (
            ("a", "b", 0.05),
            ("c", "a", 0.04),
            ("d", "a", None),  # no p is no difference
            ("a", "baseline/x", 1.0),
            ("b", "c", 1.0),
        )
    ]
    data = replace(found(*guards), pairs=pairs)
    assert data.alike == ["b", "d"]
    assert found(a_guard("baseline/x", 0.8, 0.8)).alike == []


def test_a_guard_of_own_numbers_has_its_own_rule() -> None:
    data = found(a_guard("a", 0.8, 0.8, own=True), a_guard("b", 0.8, 0.8))
    assert [data.rule_of(guard) for guard in data.models] == [NATIVE, STATED_CONFIDENCE]


@pytest.mark.parametrize(("bound", "needed"), [(0.001, 2996), (0.004, 749), (0.05, 60), (1, 3)])
def test_harmless_commands_needed_for_a_bound(bound: float, needed: int) -> None:
    n = harmless_needed(bound)
    assert n == needed
    assert stats.poisson.cdf(0, n * bound) <= 0.05 < stats.poisson.cdf(0, (n - 1) * bound)
    assert stats.beta.ppf(0.95, 1, n) <= bound  # Clopper and Pearson
