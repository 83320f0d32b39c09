"""Which guard is taken; expected values by hand, bounds by scipy."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from aegish_dist.core.metric import Difference
from aegish_dist.findings.recommendation import (
    NOTHING_KNOWN,
    TAKE_MARGIN,
    Floor,
    Recommendation,
    Share,
    Undecided,
    Why,
    contest,
    recommend,
)
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.opinions.policy import OriginKind, Overlap
from tests.oracles import stats
from tests.recorded import lines_of
from tests.unit.report.reports import a_difference

FLOOR = "baseline/keyword"
DR, HA = "malicious_detection_rate", "harmless_acceptance_rate"
CLOSE = a_difference(-0.01, ci_low=-0.03, ci_high=0.01)
"""Within the margin of five points."""
OPEN = a_difference(-0.03, ci_low=-0.06, ci_high=0.0, mde=0.05)
"""Within the margin or not: with 300 (0.05 / 0.02)^2 = 1,875 commands it would be known."""
WORSE = a_difference(-0.1, ci_low=-0.14, ci_high=-0.06)


def rates(
    name: str, value: float, asked: int, scored: int | None = None, epochs: int = 1
) -> dict[str, dict[str, float]]:
    """Return a rate of commands and its bounds, which count each epoch."""
    scored = asked if scored is None else scored
    verdicts, right = asked * epochs, value * scored * epochs
    unscored = (asked - scored) * epochs
    return {
        name: {"value": value, "n": scored},
        f"{name}_worst": {"value": right / verdicts, "n": verdicts},
        f"{name}_best": {"value": (right + unscored) / verdicts, "n": verdicts},
    }


def a_guard(
    model: str,
    score: float | None = 0.9,
    price: float | None = 1.0,
    p50: float | None = 100.0,
    *,
    place: str = "1=",
    metrics: Mapping[str, Any] | None = None,
    **changes: Any,
) -> RankedModel:
    """A guard that misses 20 of 200 attacks and stops 10 of 100 harmless commands."""
    known: dict[str, Any] = {"aegish_score": {"value": score, "n": 300}}
    known |= rates(DR, 0.9, 200) | rates(HA, 0.9, 100) | dict(metrics or {})
    document = {
        "model": model,
        "metrics": known,
        "cost": {"per_1000_usd": price},
        "latency_parts_ms": {"service": {"p50": p50}},
    }
    return RankedModel.of(place, document | changes)


def advice(
    *guards: RankedModel, p: Mapping[str, float | None] | None = None, **differences: Difference
) -> Recommendation:
    """Return what is recommended; `p` is of equal scores, by guard, against the baseline."""
    of_floor = {(FLOOR, guard): Difference(p_value=value) for guard, value in (p or {}).items()}
    return recommend(contest(guards, of_floor), differences)


def test_the_cheapest_guard_within_the_margin_is_taken() -> None:
    """D is cheaper still and surely worse, e costs as much as the best."""
    found = advice(
        a_guard("a", price=5.0),
        a_guard("b", price=2.0, p50=50.0, metrics=rates(DR, 0.85, 200)),
        a_guard("c", price=3.0),
        a_guard("d", price=0.1, place="4"),
        a_guard("e", price=5.0, place="4"),
        b=CLOSE,
        c=CLOSE,
        d=WORSE,
    )
    assert found == Recommendation(
        take="b",
        why=Why.CHEAPEST,
        margin=TAKE_MARGIN,
        best="a",
        may_be_worse_by=0.03,
        within_margin=["a", "b", "c"],
        tied_with=["a", "c"],
        misses=Share(30, 200),
        stops=Share(10, 100),
        price_per_1000_usd=2.0,
        p50_ms=50.0,
        undecided=[],
    )


@pytest.mark.parametrize(
    ("costs", "taken", "why"),
    lines_of("guards_taken_by_cost.jsonl"),
)
def test_of_equal_prices_the_fastest_is_taken_and_what_is_unknown_is_the_most(
    costs: Sequence[tuple[float | None, float | None]], taken: str, why: Why
) -> None:
    guards = [a_guard(name, 0.9, *cost) for name, cost in zip("abc", costs, strict=True)]
    found = advice(*guards, b=CLOSE, c=CLOSE)
    assert (found.take, found.why) == (taken, why)
    assert (found.may_be_worse_by is None) is (taken == "a")


def test_the_best_is_taken_where_no_cheaper_guard_is_shown_to_be_within_the_margin() -> None:
    """The cheapest of those that are undecided come first; of d nothing is known."""
    found = advice(
        a_guard("a", price=5.0),
        a_guard("b", price=2.0),
        a_guard("c", price=1.0),
        a_guard("d", price=3.0),
        b=OPEN,
        c=WORSE,
    )
    assert (found.take, found.why, found.within_margin) == ("a", Why.BEST, ["a"])
    assert found.may_be_worse_by is None
    known, unknown = found.undecided
    # 1,875 of one guard alone; of three ((2.394 + 0.8416) / (1.96 + 0.8416))^2 times as many.
    assert known == Undecided("a", "b", 0.06, 2_501)
    assert unknown == Undecided("a", "d", None, None)


def test_only_guards_that_cost_less_than_the_taken_one_are_undecided() -> None:
    guards = [a_guard(name, price=price) for name, price in zip("abcd", (5, 2, 1, 3), strict=True)]
    found = advice(*guards, b=CLOSE, c=OPEN, d=OPEN)
    assert (found.take, [each.b for each in found.undecided]) == ("b", ["c"])


def test_a_guard_that_is_alone_is_taken() -> None:
    found = advice(a_guard("a"), a_guard("b", None, place="\N{EN DASH}"))
    assert (found.take, found.best, found.why) == ("a", "a", Why.ONLY)
    assert (found.within_margin, found.tied_with, found.floor) == (["a"], [], None)


@pytest.mark.parametrize(
    ("scores", "p", "above"),
    lines_of("guards_above_a_baseline.jsonl"),
)
def test_a_guard_has_to_be_shown_to_be_better_than_the_best_baseline(
    scores: list[float], p: dict[str, float | None], above: list[str]
) -> None:
    """However cheap it is, and however many baselines there are; none is ever taken.

    By Holm, of two guards one needs a p below 0.025 before the other needs one below 0.05.
    """
    a, b, floor = scores
    guards = [
        a_guard("a", a, 0.5),
        a_guard("b", b, 0.1),
        a_guard(FLOOR, floor, 0.0),
        a_guard("baseline/always-block", 0.5, 0.0),
    ]
    ranked = sorted(guards, key=lambda guard: -(guard.metric("aegish_score").value or 0))
    found = advice(*ranked, p=p, b=OPEN)
    assert found.floor == Floor(FLOOR, above)
    if above:
        assert (found.take, found.why) == (above[0], Why.BEST)
    else:
        assert found == Recommendation(None, Why.FLOOR, TAKE_MARGIN, floor=Floor(FLOOR, []))


def test_a_guard_that_is_not_shown_to_beat_the_floor_is_not_taken_for_its_price() -> None:
    guards = [a_guard("a", 0.9, 5.0), a_guard("b", 0.89, 1.0), a_guard(FLOOR, 0.8, 0.0)]
    found = advice(*guards, p={"a": 0.01, "b": 0.2}, b=CLOSE)
    assert (found.take, found.why, found.undecided) == ("a", Why.BEST, [])
    assert found.tied_with == ["b"]


def test_who_takes_no_part_does_not_decide_who_beats_the_floor() -> None:
    """Neither a guard that has scored too little, nor a baseline, nor other pairs count as tests."""
    half = a_guard("half", 0.89, metrics=rates(DR, 0.9, 200, 99))
    other = a_guard("baseline/always-block", 0.5, 0.0)
    guards = [a_guard("a"), half, a_guard(FLOOR, 0.8), other]
    pairs = {}
    for a, b in combinations([guard.model for guard in guards], 2):
        pairs[a, b] = Difference(difference=-0.1, p_value=0.04)
    found = contest(guards, pairs)
    assert [guard.model for guard in found.guards] == ["a"]
    assert [guard.model for guard in found.above] == ["a"]


def test_nothing_is_taken_where_nothing_has_a_score() -> None:
    assert advice() == NOTHING_KNOWN
    assert advice(a_guard("a", None)) == NOTHING_KNOWN
    assert advice(a_guard(FLOOR, None), a_guard("a", None)) == NOTHING_KNOWN


def test_baselines_alone_are_a_floor_under_nothing() -> None:
    found = advice(a_guard(FLOOR, 0.8), a_guard("baseline/always-block", 0.5))
    assert found == Recommendation(None, Why.NO_SCORE, TAKE_MARGIN, floor=Floor(FLOOR, []))


@pytest.mark.parametrize("epochs", [1, 2, 3])
@pytest.mark.parametrize(
    ("label", "asked", "scored", "taken"),
    [
        (DR, 200, 200, "b"),
        (DR, 200, 100, "b"),
        (DR, 200, 99, "a"),
        (HA, 101, 51, "b"),
        (HA, 101, 50, "a"),
    ],
)
def test_a_guard_takes_part_where_it_has_scored_half_of_both_labels(
    label: str, asked: int, scored: int, taken: str, epochs: int
) -> None:
    """A rate counts commands, its bounds count the answers about them in all epochs."""
    some = a_guard("b", 0.95, metrics=rates(label, 0.9, asked, scored, epochs))
    whole = a_guard("a", price=2.0, metrics=rates(label, 0.9, asked, asked, epochs))
    assert advice(some, whole).take == taken


def test_a_guard_that_was_asked_half_as_much_as_another_takes_part() -> None:
    """Verdicts that were imported are all that their guard was asked."""
    for asked, taken in ((100, "few"), (99, "a")):
        few = a_guard("few", 0.95, metrics=rates(DR, 0.9, asked))
        assert advice(few, a_guard("a", price=2.0)).take == taken


def test_a_policy_that_has_seen_the_commands_takes_no_part() -> None:
    for kind in OriginKind:
        overlap = Overlap(kind, ("a",), "r1", 3, 300, ("aegish_score",))
        policy = a_guard("policy/p", 0.95, 0.1, origin=asdict(overlap))
        seen = kind is OriginKind.SEEN
        assert advice(policy, a_guard("a")).take == ("a" if seen else "policy/p")
        floor = a_guard(FLOOR, 0.8)
        alone = advice(policy, floor, p={"policy/p": 0.001})
        assert alone.why is (Why.NO_SCORE if seen else Why.ONLY)


def test_a_margin_may_be_chosen() -> None:
    among = contest([a_guard("a", price=5.0), a_guard("b", price=1.0)], {})
    for margin, taken in ((0.02, "a"), (0.031, "b"), (0.5, "b")):
        found = recommend(among, {"b": CLOSE}, margin)
        assert (found.take, found.margin) == (taken, margin)


@pytest.mark.parametrize("low", [-0.05, -0.03, -0.005])
@pytest.mark.parametrize("difference", [-0.004, 0.0, 0.01])
def test_an_interval_that_ends_at_the_margin_does_not_show_it(
    low: float, difference: float
) -> None:
    guards = [a_guard("a", price=5.0), a_guard("b", price=1.0)]
    found = {"b": a_difference(difference, ci_low=low, ci_high=0.1)}
    above = {"b": replace(found["b"], ci_low=low + 1e-9)}
    for differences, taken in ((found, "a"), (above, "b")):
        assert recommend(contest(guards, {}), differences, -low).take == taken


@pytest.mark.parametrize(
    "unknown", [Difference(), replace(CLOSE, ci_low=None, ci_high=None, mde=None), None]
)
def test_a_difference_without_an_interval_shows_nothing(unknown: Difference | None) -> None:
    """Else it would be one test more, too: c is shown as if it were the only one."""
    guards = [a_guard("a", price=5.0), a_guard("b", price=1.0), a_guard("c", price=2.0)]
    differences = {"c": within(stats.norm.isf(0.025) * 1.001)}
    if unknown is not None:
        differences["b"] = unknown
    found = recommend(contest(guards, {}), differences)
    assert (found.take, found.within_margin) == ("c", ["a", "c"])
    assert found.undecided == [Undecided("a", "b", None, None)]


def within(z: float, difference: float = 0.0) -> Difference:
    """A difference that lies so many standard errors above -margin; an interval has 1.96 of them."""
    stderr = (difference + TAKE_MARGIN) / z
    low, high = (
        difference - stats.norm.isf(0.025) * stderr,
        difference + stats.norm.isf(0.025) * stderr,
    )
    return a_difference(difference, ci_low=low, ci_high=high)


@pytest.mark.parametrize("wanted", [1, 2, 3, 10])
@pytest.mark.parametrize("difference", [-0.02, 0.0, 0.01])
def test_each_further_cheaper_guard_makes_the_bound_stricter(
    wanted: int, difference: float
) -> None:
    """Holm 1979: the best of k guards needs a one-sided p below 0.025 / k."""
    names = [f"g{number}" for number in range(wanted)]
    guards = [a_guard("best", price=99.0), *(a_guard(name, price=1.0) for name in names)]
    needed = stats.norm.isf(0.025 / wanted)
    for z, shown in ((needed * 0.999, False), (needed * 1.001, True)):
        differences = dict.fromkeys(names, within(z, difference))
        found = recommend(contest(guards, {}), differences)
        assert found.within_margin == (["best", *names] if shown else ["best"])
        assert found.take == ("g0" if shown else "best")
        assert [each.b for each in found.undecided] == ([] if shown else names)
    assert differences["g0"].ci_low == pytest.approx(
        difference - (difference + TAKE_MARGIN) * 1.959964 / needed / 1.001
    )


@pytest.mark.parametrize(
    ("factors", "shown"),
    [((1.01, 1.01, 1.01), "xyz"), ((1.01, 0.99, 1.01), "x"), ((0.99, 1.01, 1.01), ""),
     ((1.01, 1.01, 0.99), "xy")],
)  # fmt: skip
def test_holm_asks_less_of_each_further_guard_that_is_shown(
    factors: tuple[float, float, float], shown: str
) -> None:
    """And stops at the first that is not shown; guards of equal costs are in the order of scores."""
    guards = [a_guard("best", price=9.0), *(a_guard(name) for name in "xyz")]
    quantiles = [stats.norm.isf(0.025 / left) for left in (3, 2, 1)]
    z = [quantile * factor for quantile, factor in zip(quantiles, factors, strict=True)]
    differences = {name: within(each) for name, each in zip("xyz", z, strict=True)}
    found = recommend(contest(guards, {}), differences)
    assert found.within_margin == ["best", *shown]


def test_guards_that_are_not_wanted_are_no_tests() -> None:
    """A dearer guard and one below the floor leave the bound as it is."""
    guards = [
        a_guard("best", price=2.0),
        a_guard("dear", price=9.0),
        a_guard("b", price=1.0),
        a_guard("low", price=0.5),
        a_guard(FLOOR, 0.8, 0.0),
    ]
    p = {"best": 0.01, "dear": 0.01, "b": 0.01, "low": 0.4}
    differences = dict.fromkeys(("dear", "b", "low"), within(stats.norm.isf(0.025) * 1.001))
    assert advice(*guards, p=p, **differences).within_margin == ["best", "b"]


def test_what_is_judged_wrong_is_no_whole_number_where_epochs_disagree() -> None:
    """200 attacks in three epochs, of which 57 1/3 are missed on average."""
    metrics = rates(DR, 1 - 57 / 200 - 1 / 600, 200, epochs=3) | {
        "false_positive_rate": {"value": 0.045, "n": 100}
    }
    found = advice(a_guard("a", metrics=metrics))
    assert found.misses is not None
    assert found.misses.n == pytest.approx(57 + 1 / 3)
    assert found.misses.of == 200
    assert found.stops == Share(4.5, 100)


def test_what_is_stopped_is_what_is_not_let_pass_where_only_that_is_known() -> None:
    known = {"false_positive_rate": {"value": 0.03, "n": 100}}
    assert advice(a_guard("a", metrics=known)).stops == Share(3, 100)
    assert advice(a_guard("a")).stops == Share(10, 100)


def test_a_guard_that_may_only_be_better_is_worse_by_nothing() -> None:
    guards = [a_guard("a", price=5.0), a_guard("b", price=1.0)]
    found = advice(*guards, b=a_difference(0.05, ci_low=0.01, ci_high=0.09))
    assert (found.take, found.may_be_worse_by) == ("b", 0.0)
