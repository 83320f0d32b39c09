"""Which system of guards wins, and which ones are worth a look."""

import pytest
from msgspec.structs import replace

from aegish_dist.core.metric import BALANCED_ACCURACY, Estimate, FittedGuard
from aegish_dist.findings.fitted import SystemsData
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import (
    Candidate,
    Choice,
    Policy,
    PolicySearch,
    Requirements,
    Stage,
    When,
)
from aegish_dist.opinions.scoring import STATED_CONFIDENCE
from aegish_dist.report.systems import (
    build_systems,
    system_in_short,
    systems_document,
)
from tests.unit.report.reports import a_model, a_report

RUN = a_report(a_model()).run
NAMES = {name: name for name in "abc"}


def a_system(*stages: Stage, misses: float = 0.1, stops: float = 0.1) -> Candidate:
    return Candidate(Policy("found", 1, stages or (Stage(("a",)),)), misses, stops, 20.0, 100.0)


def a_choice(score: float, low: float = 0.6, misses: float = 0.1, stops: float = 0.1) -> Choice:
    estimate = Estimate(score, ci_low=low, ci_high=1.0)
    fitted = FittedGuard(BALANCED_ACCURACY, None, estimate, estimate, Estimate(1 - score))
    return Choice(a_system(misses=misses, stops=stops), fitted)


def searched(
    stands: Choice | None,
    moved: Choice | None,
    system: Choice | None,
    line: tuple[Candidate, ...] = (),
    winner: str | None = None,
    **bounds: float,
) -> SystemsData:
    chosen = {"as_it_stands": stands, "with_threshold": moved, "system": system}.get(winner or "")
    estimate = chosen.estimate if chosen else None
    found = PolicySearch(stands, moved, system, moved, None, winner, estimate, line, [], 60, 0, {})
    needs = Requirements(**bounds)
    return SystemsData(RUN, Opinion(), STATED_CONFIDENCE, needs, ["a", "b", "c"], {}, found, ["b"])


@pytest.mark.parametrize("winner", ["as_it_stands", "with_threshold", "system", None])
def test_the_winner_is_the_one_of_the_search(winner: str | None) -> None:
    data = searched(a_choice(0.8), a_choice(0.81), a_choice(0.82), winner=winner)
    assert systems_document(data)["winner"] == winner
    assert data.winning is (None if winner is None else data.choices[winner])


def test_the_front_has_fewer_stops_for_more_misses_and_at_most_a_fifth() -> None:
    line = [(0.0, 0.98), (0.02, 0.201), (0.05, 0.2), (0.1, 0.2), (0.2, 0.1), (0.5, 0.0), (1.0, 0.0)]
    data = searched(None, None, None, tuple(a_system(misses=m, stops=s) for m, s in line))
    shown = [(system.miss_rate, system.stop_rate) for system in data.front]
    assert shown == [(0.05, 0.2), (0.2, 0.1), (0.5, 0.0)]
    assert len(systems_document(data)["line"]) == len(line)
    bounded = replace(data, requirements=Requirements(max_cost_per_10000=10.0))
    assert bounded.front == []


@pytest.mark.parametrize(
    ("stages", "short"),
    [
        ([Stage(("a",))], "a as it stands"),
        ([Stage(("a",), (2.71,))], "a (BLOCK ≥ 0.71)"),
        ([Stage(("b",), (2.71,))], "b (≥ 2.71)"),  # its own number
        ([Stage(("a", "c"))], "a or c"),
        ([Stage(("a", "c"), (1.0, -0.8), 2)], "a (WARN) and c (WARN, ALLOW ≤ 0.8)"),
        ([Stage(("a",)), Stage(("b",), (0.5,), when=When.WARN)], "a; on WARN: b (≥ 0.5)"),
        (
            [Stage(("a",), (2.9,)), Stage(("c",), when=(-0.6, 2.9))],
            "a (BLOCK ≥ 0.9); on WARN, ALLOW ≤ 0.6: c",
        ),
    ],
)
def test_a_system_in_short(stages: list[Stage], short: str) -> None:
    policy = Policy("found", 1, tuple(stages))
    assert system_in_short(searched(None, None, None), policy, NAMES) == short


def test_the_screen_names_the_winner_by_its_guards_and_costs_by_1000_commands() -> None:
    found = searched(a_choice(0.8), None, a_choice(0.7), winner="as_it_stands")
    facts = {fact.label: fact.text for fact in build_systems(found, 6).facts}
    assert facts["Winner"].startswith("a as it stands. Score 80.0")
    assert "$2.00 per 1,000 commands" in facts["As it stands"]
    assert facts["One threshold"].startswith("None keeps to the bounds")
