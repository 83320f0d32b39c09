"""What a comparison decides, from estimates."""

import pytest
from msgspec.structs import replace

from aegish_dist.core.sample import TrueLabel
from aegish_dist.findings.comparison import (
    CHANGES,
    Change,
    GateVerdict,
    PairResult,
    differs,
    gate,
    result_of,
    run_names,
)
from tests.unit.report.reports import a_difference, a_report


@pytest.mark.parametrize(
    ("difference", "p", "result"),
    [
        (0.02, 0.049, PairResult.BETTER),
        (-0.02, 0.049, PairResult.WORSE),
        (0.02, 0.05, PairResult.TIED),
        (0.0, 0.001, PairResult.TIED),
        (None, 0.001, None),
        (0.02, None, None),
    ],
)
def test_a_pair_is_decided_by_the_adjusted_p(
    difference: float | None, p: float | None, result: PairResult | None
) -> None:
    found = replace(a_difference(difference, p), p_value=0.001)
    assert result_of(found) is result
    assert differs(found) is (result in (PairResult.BETTER, PairResult.WORSE))
    if result in (PairResult.BETTER, PairResult.WORSE):
        assert result_of(found.turned) is not result


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.019, 0.1, GateVerdict.SHIPS),
        (-0.02, 0.1, GateVerdict.INCONCLUSIVE),
        (-0.1, -0.02, GateVerdict.INCONCLUSIVE),
        (-0.1, -0.021, GateVerdict.WORSE),
        (None, None, GateVerdict.INCONCLUSIVE),
    ],
)
def test_a_gate_asks_where_the_interval_lies(
    low: float | None, high: float | None, verdict: GateVerdict
) -> None:
    assert gate(a_difference(ci_low=low, ci_high=high), 0.02) is verdict


def test_the_guard_that_stops_a_command_is_the_one_whose_reason_is_read() -> None:
    stops = {name: change.second_stops for change, name in CHANGES.items()}
    assert stops == {
        "newly_caught": True, "newly_missed": False,
        "newly_stopped": True, "no_longer_stopped": False,
    }  # fmt: skip
    assert CHANGES[Change(TrueLabel.HARMLESS, right=True)] == "no_longer_stopped"


def test_runs_have_their_names_where_these_tell_them_apart() -> None:
    run = a_report().run
    named = {"1": "before", "2": "after", "3": "same", "4": "same", "5": ""}
    runs = [replace(run, run_id=run_id, name=name) for run_id, name in named.items()]
    assert run_names(runs) == {"1": "before", "2": "after", "3": "3", "4": "4", "5": "5"}
    assert run_names(runs[:3])["3"] == "same"
