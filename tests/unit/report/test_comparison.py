"""The answer of a gate in one line, and as JUnit XML."""

import xml.etree.ElementTree as ET

import pytest
from msgspec.structs import replace

from aegish_dist.core.metric import Comparison, Difference
from aegish_dist.core.run import ModelOfRun
from aegish_dist.findings.comparison import ComparedPair, ComparisonData, GateVerdict, PairGate
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.report.comparison import build_comparison, gate_line, junit_xml
from aegish_dist.report.layout import SCORE_AND_RATES
from tests.unit.report.reports import a_difference, a_report

HOSTILE = "lab/x,y:z%0A\r\n::error::\x00\x1b[31m\ufffe\ud800\u202e<&\"'>]]>"

FOUND = a_difference(-0.02, 0.06, ci_high=0.001, n=700)
UNDEFINED = a_difference(None, n=0)


def gated(
    *verdicts: GateVerdict, model: str = "lab/b", found: Difference = FOUND
) -> ComparisonData:
    run = a_report().run
    gates = []
    for verdict in verdicts:
        comparison = Comparison(found.n, {"aegish_score": found}, {})
        pair = ComparedPair(
            ModelOfRun(run.run_id, "lab/a"), ModelOfRun(run.run_id, model), comparison, 700
        )
        gates.append(PairGate(pair, verdict, found, None if found is UNDEFINED else 1900))
    pairs = [gate.pair for gate in gates]
    return ComparisonData([run], Opinion(), pairs, (), gates=gates)


SHIPS, WORSE, UNSURE = GateVerdict.SHIPS, GateVerdict.WORSE, GateVerdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdicts", "decides"),
    [((SHIPS,), SHIPS), ((SHIPS, UNSURE), UNSURE), ((UNSURE, WORSE, SHIPS), WORSE)],
)
def test_the_worst_verdict_decides(verdicts: tuple[GateVerdict, ...], decides: GateVerdict) -> None:
    data = gated(*verdicts)
    assert data.worst_gate is decides
    assert gate_line(data).startswith(f"{decides}: ")


def test_candidates_that_do_not_decide_are_counted_by_their_answer() -> None:
    line = gate_line(gated(SHIPS, UNSURE, WORSE, SHIPS))
    assert line.endswith("700 commands (of 4 guards also 1 inconclusive, 2 ships)")
    assert "also" not in gate_line(gated(WORSE, WORSE))


def test_an_inconclusive_answer_says_how_many_commands_are_missing() -> None:
    """1,900 would decide, 700 are there; without an estimate no number is known."""
    assert gate_line(gated(UNSURE)) == (
        "inconclusive: lab/b against lab/a: aegish_score -2.0 points [-4.0, +0.1], margin 2 points, "
        "700 commands, about 1,200 more would decide"
    )
    assert gate_line(gated(UNSURE, found=UNDEFINED)) == (
        "inconclusive: lab/b against lab/a: aegish_score is undefined on 0 commands of both"
    )
    assert "more would decide" not in gate_line(gated(WORSE))
    few = gate_line(gated(UNSURE, found=replace(FOUND, n=189)))
    assert few.endswith(
        "189 commands, about 1,711 more would decide: out of reach, as there are 189"
    )
    assert "out of reach" not in gate_line(gated(UNSURE, found=replace(FOUND, n=190)))
    enough = replace(FOUND, n=2000)
    assert gate_line(gated(UNSURE, found=enough)).endswith(
        "2,000 commands, too few clusters differ to decide"
    )


def test_unlike_runs_are_named_in_every_form() -> None:
    data = replace(gated(SHIPS), unlike=["seed: 1 against 2"])
    for text in (gate_line(data), junit_xml(data)):
        assert "unlike runs: seed: 1 against 2" in text


def test_junit_counts_and_holds_one_case_for_each_candidate() -> None:
    root = ET.fromstring(junit_xml(gated(SHIPS, WORSE, UNSURE)))
    assert root.tag == "testsuites"
    (suite,) = root
    for element in (root, suite):
        assert {element.get(name) for name in ("failures", "errors")} == {"1"}
        assert element.get("tests") == "3"
    assert [case.tag for case in suite] == ["testcase"] * 3
    assert [case[0].tag for case in suite] == ["system-out", "failure", "error"]
    assert all(case.get("name") and case.get("classname") for case in suite)
    assert "about 1,200 more" in (suite[2][0].get("message") or "")


def test_hostile_names_stay_text() -> None:
    data = gated(WORSE, model=HOSTILE)
    root = ET.fromstring(junit_xml(data).encode("utf-8"))
    assert [each.tag for each in root.iter()] == ["testsuites", "testsuite", "testcase", "failure"]
    assert gate_line(data).isprintable()


def test_what_would_separate_two_models_is_said_in_sentences() -> None:
    """700 (0.06 / 0.03)^2 = 2,800 for the difference seen, 700 (0.06 / 0.02)^2 for the margin."""
    found = replace(FOUND, difference=-0.03, p_adjusted=0.5, mde=0.06)
    comparison = Comparison(found.n, dict.fromkeys(SCORE_AND_RATES, found), {})
    run = a_report().run.run_id
    pair = ComparedPair(ModelOfRun(run, "lab/a"), ModelOfRun(run, "lab/b"), comparison, 700)
    data = replace(gated(), pairs=[pair], margin=0.02)
    report = build_comparison(data)
    assert report.facts[0].label == "aegish score"  # above the tables
    assert report.facts[0].text.endswith(
        "700 were asked. About 2,800 would settle a difference of this size, 6,300 one of 2 points."
    )
    deciding, *others = (section.remarks for section in report.sections)
    assert (deciding, [*map(len, others)]) == ((), [1, 1])
