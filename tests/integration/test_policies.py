"""`policies search` and `policies explain` on stored runs, against numbers worked out by hand."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegish_dist.opinion_files import read_policy
from tests.integration.command_line import CommandLine, write_lines

A, B = "lab/a", "lab/b"
KEYWORD, HALF = "baseline/keyword", "lab/half"
COST, LATENCY = {A: 0.001, B: 0.002}, {A: 100, B: 200}


def lines(wary: str = "BLOCK") -> Iterator[dict[str, Any]]:
    """Yield what two guards say about 40 attacks and 40 harmless commands; each misses others.

    A baseline said it too, and a model that was asked harmless commands alone.
    """
    for n in range(80):
        dangerous = n % 2 == 1
        for model, missed in ((A, (1,)), (B, (5, 7)), (KEYWORD, ()), (HALF, ())):
            if model == HALF and dangerous:
                continue
            action = wary if dangerous and n % 8 not in missed else "ALLOW"
            about = {"command": f"c{n}", "target": "malicious" if dangerous else "harmless"}
            priced = {"cost_usd": str(COST.get(model, 0)), "latency_ms": LATENCY.get(model, 1)}
            said = {"model": model, "completion": f'{{"action": "{action}"}}'}
            yield about | ({"category": "shell"} if dangerous else {}) | said | priced


@pytest.fixture
def searched(aegish: CommandLine, tmp_path: Path) -> CommandLine:
    aegish.ok("verdicts", "import", "--name", "two", write_lines(tmp_path / "v.jsonl", *lines()))
    return aegish


def test_the_best_system_asks_a_second_guard_about_what_the_first_allows(
    searched: CommandLine,
) -> None:
    found = searched.ok("policies", "search", "--run-id", "two", "--json").json
    assert (found["models"], found["models_left_out"]) == ([A, B], [KEYWORD, HALF])
    assert (found["decisions"], found["left_out"], found["winner"]) == (80, 0, "system")
    system, single = found["system"], found["with_threshold"]
    assert [stage["guards"] for stage in system["stages"]] == [[A], [B]]
    assert (system["miss_rate"], system["stop_rate"], system["score"]["value"]) == (0, 0, 1)
    asked = 0.001 * 0.25 + 0.999  # B, about three quarters of the dangerous actions not
    assert system["cost_per_10000"] == pytest.approx(10 + 20 * asked)
    assert (system["p95_ms"], single["p95_ms"]) == (300, 100)
    assert [stage["guards"] for stage in single["stages"]] == [[A]]
    assert single["score"]["value"] == found["as_it_stands"]["score"]["value"] == 0.875
    assert found["gain"]["difference"] == 0.125
    overlap = {"a": A, "b": B, "misses_a": 10, "misses_b": 20, "both": 0, "expected": 5}
    assert found["overlaps"] == [overlap]


def test_a_screen_has_the_system_beside_single_guards(
    searched: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = searched.ok("policies", "search").out
    rows = shown.splitlines()
    assert len(rows) <= 45
    assert max(map(len, rows)) <= 100
    facts = [line.split("  ")[0].strip() for line in rows[1:] if line[1:2].strip()]
    assert facts[:4] == ["Systems searched", "One threshold", "As it stands", "Gain"]
    assert "lab/a ≥ 1; in [-0.5, 1]: lab/b. Score 100.0" in shown
    assert "lab/a as it stands. Score 87.5" in shown
    assert "median of 1 pair" in shown
    assert "lab/half with 40 of 80 scored" in " ".join(shown.split())
    blameless = ("--models", f"{A},{KEYWORD}")  # one misses nothing: none in common is expected
    assert "miss the same" not in searched.ok("policies", "search", *blameless).out


def test_the_winner_is_written_once_and_explained(searched: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "my winner.toml"
    done = searched.ok("policies", "search", "--write", path)
    assert f"written to {path}" in done.err
    policy = read_policy(path)
    assert (policy.name, policy.guards) == ("my-winner", [A, B])
    before = path.read_text()
    assert "edited by hand" in searched.refused("policies", "search", "--write", path)
    assert path.read_text() == before
    told = searched.ok("policies", "explain", path, path).out
    assert told.count("Policy 'my-winner', version 1") == 2
    assert "lab/b is asked where the suspicion so far is from -0.5 to 1.0." in told
    assert "none.toml" in searched.refused("policies", "explain", path, "none.toml")


def test_bounds_leave_cheaper_systems_or_none(searched: CommandLine, tmp_path: Path) -> None:
    """A system that is not better than a single guard does not win."""
    path = tmp_path / "found.toml"
    cheap = ("policies", "search", "--max-cost-per-10000", "15")
    found = searched.ok(*cheap, "--json", "--write", path).json
    assert (found["winner"], found["max_cost_per_10000"]) == ("as_it_stands", 15)
    assert tomllib.loads(path.read_text())["stage"] == [{"guard": A}]
    shown = searched.ok(*cheap).out
    assert "More guards do not pay" not in shown  # the best system asks one
    assert "against the single guard with a threshold" in " ".join(shown.split())
    assert "Winner            As it stands" in shown
    none = ("policies", "search", "--max-p95-ms", "50")
    assert "None keeps to the bounds" in searched.ok(*none).out
    assert "no system keeps to the bounds" in searched.refused(*none, "--write", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_report_within_bounds_names_the_best_system(searched: CommandLine) -> None:
    found = searched.ok("report", "--max-cost-per-10000", "40", "--json").json["decision"]
    system, gain = found["With a system"].split(" The system's score is ")
    assert system.startswith("lab/a ≥ 1; in [-0.5, 1]: lab/b. Score 100.0")
    assert "$29.99 per 10,000 actions" in system
    assert gain.startswith("+12.5 points [")
    none = searched.ok("report", "--max-p95-ms", "50").out
    assert "With a system     None keeps to the bounds" in none
    assert "With a system" not in searched.ok("report").out
    for options in ("--format", "csv"), ("--snapshot", "1"):
        assert searched("report", "--max-fpr", "0.1", *options).code == 2


def test_few_unknown_costs_count_as_the_mean_and_are_named(
    aegish: CommandLine, tmp_path: Path
) -> None:
    """A timeout has no cost; where most costs are unknown, so is the guard's."""
    for number, model in (2, A), (200, B):
        told = list(lines())
        for each in [each for each in told if each["model"] == model][:number]:
            del each["cost_usd"]
        aegish.ok("verdicts", "import", write_lines(tmp_path / "v.jsonl", *told))
        search = "policies", "search", "--models", model
        found = aegish.ok(*search, "--json").json
        cost = pytest.approx(10) if model == A else None
        assert (found["with_threshold"]["cost_per_10000"], found["unpriced"]) == (
            cost, {model: min(number, 80)}
        )  # fmt: skip
        assert ("lab/a in 2: its mean" in aegish.ok(*search).out) is (model == A)


def test_a_search_without_numbers_advises_the_other_suspicion(searched: CommandLine) -> None:
    for models in (), ("--models", A):
        said = searched.refused("policies", "search", "--suspicion", "native", *models)
        assert "`--suspicion stated-confidence` takes the confidence" in said


def test_made_up_answers_are_called_that(aegish: CommandLine, tmp_path: Path) -> None:
    told = [each | {"simulated": True} for each in lines()]
    aegish.ok("verdicts", "import", write_lines(tmp_path / "v.jsonl", *told))
    assert "made up by the simulator" in aegish.ok("policies", "search").out


MINE = f'''name = "mine"
version = 2
[[stage]]
guard = "allowlist"
patterns = ["c0", "c1"]
[[stage]]
guard = "{A}"
[[stage]]
guard = "{B}"
when = [-0.5, 1.0]
'''
"""B is asked about what A allows; `c1` is an attack that passes."""


@pytest.fixture
def mine(searched: CommandLine, tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(MINE)
    return tmp_path / "mine.toml"


def test_a_policy_stands_among_the_models(searched: CommandLine, mine: Path) -> None:
    plain = searched.ok("report", "--json").json
    found = searched.ok("report", "--json", "--policy", mine).json
    *models, policy = found["models"]
    assert models == plain["models"]
    assert policy["metrics"]["malicious_detection_rate"]["value"] == 39 / 40
    assert (policy["counts"]["planned"], policy["counts"]["done"]) == (80, 80)
    # A is asked about 78 commands, B about the 39 harmless and 9 of the attacks that A allows.
    assert policy["cost"]["total_usd"] == pytest.approx(0.078 + 48 * 0.002)
    assert [policy["latency_ms"][name] for name in ("mean", "p50", "p99", "max")] == [
        *(pytest.approx((30 * 100 + 48 * 300) / 80), 300, 300, 300)
    ]
    ranks = {place["model"]: place["tie_group"] for place in found["ranking"]}
    assert ranks == {KEYWORD: 1, "policy/mine": 1, A: 2, B: 2, HALF: None}
    (told,) = found["policies"]
    assert (told["name"], told["version"], told["file"]) == ("mine", 2, str(mine))
    assert told["fingerprint"] == read_policy(mine).fingerprint
    pairs = {(pair["a"]["model"], pair["b"]["model"]) for pair in found["comparison"]["pairs"]}
    assert (A, "policy/mine") in pairs
    assert all(f"--policy {mine}" in command for command in found["commands"][:2])
    assert searched.ok("report", "--json").json == plain  # nothing of it is stored


def test_a_policy_is_compared_calibrated_and_judged(searched: CommandLine, mine: Path) -> None:
    of_models = searched.ok("compare", "--json", "--models", f"{A},{B}").json["pairs"][0]
    with_it = searched.ok("compare", "--json", "--models", f"{A},{B}", "--policy", mine).json
    first, second, _ = with_it["pairs"]
    assert second["b"]["model"] == "policy/mine"
    for each in first, of_models:  # p is adjusted for more pairs
        for found in (*each["metrics"].values(), *each["categories"].values()):
            del found["p_adjusted"]
    assert first == of_models
    gate = ("compare", "--models", A, "--policy", mine, "--gate", "--margin", "0.02")
    for metric in "aegish_score", "auroc":
        assert searched.ok(*gate, "--metric", metric).out.startswith("ships: policy/mine against")
    fitted = searched.ok("calibrate", "--json", "--policy", mine).json
    assert {each["model"] for each in fitted["models"]} == {A, B, KEYWORD, HALF, "policy/mine"}
    assert fitted["policies"] == with_it["policies"]
    said = searched.ok("calibrate", "--policy", mine).out
    assert "policy/mine: made of models" in said
    assert "policy/mine is best" not in said
    judged = ("report", "--policy", mine, "--models", "policy/mine", "--fail-under")
    assert "met: policy/mine" in searched.ok(*judged, "aegish_score=0.5,auroc=0.5").err
    page = searched.ok("report", "--policy", mine, "--format", "html", "-o", mine.parent / "r.html")
    assert "Policies are left out below" in page.err
    assert (mine.parent / "r.html").read_text().count("policy/mine") > 5


def test_policies_that_cannot_stand_among_the_models(searched: CommandLine, mine: Path) -> None:
    other = mine.parent / "other.toml"
    other.write_text(MINE.replace("lab/b", "lab/bb"))
    assert "is the policy of" in searched.refused("report", "--policy", mine, "--policy", other)
    other.write_text(MINE.replace("lab/b", "lab/bb").replace("mine", "other"))
    for command in "report", "compare", "calibrate":
        said = searched.refused(command, "--policy", other)
        assert "policy 'other' asks lab/bb" in said
        assert "did you mean 'lab/b'" in said
    said = searched.refused("report", "--models", "policy/x", "--fail-under", "coverage=1")
    assert "no model 'policy/x'" in said


def test_a_guard_at_chance_is_no_winner(aegish: CommandLine, tmp_path: Path) -> None:
    aegish.ok("verdicts", "import", write_lines(tmp_path / "v.jsonl", *lines("ALLOW")))
    found = aegish.ok("policies", "search", "--models", f"{A},{B}", "--json").json
    assert (found["winner"], found["as_it_stands"]["score"]["value"]) == (None, 0.5)
    refused = aegish.refused("policies", "search", "--write", tmp_path / "x.toml")
    assert "no system is surely better than chance" in refused
    assert not (tmp_path / "x.toml").exists()


@pytest.mark.parametrize(
    ("scoring", "stands", "fitted"), [("aegish-5.3", 0.5, 0.875), ("aegish-legacy", 0.75, 0.75)]
)
def test_the_scoring_rule_says_whether_a_warning_stops(
    aegish: CommandLine, tmp_path: Path, scoring: str, stands: float, fitted: float
) -> None:
    aegish.ok("verdicts", "import", write_lines(tmp_path / "v.jsonl", *lines("WARN")))
    found = aegish.ok("policies", "search", "--scoring", scoring, "--json").json
    assert found["as_it_stands"]["score"]["value"] == stands
    assert found["with_threshold"]["score"]["value"] == fitted
