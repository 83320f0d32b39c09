"""`policies search` and `policies explain` on stored runs, against numbers worked out by hand."""

import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.opinions.opinion_files import read_policy
from aegish_dist.opinions.policy import apply_policy
from aegish_dist.opinions.suspicion import Decision, Guard, Guards
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
    aegish.ok("verdicts import --name two", write_lines(tmp_path / "v.jsonl", *lines()))
    return aegish


def test_the_best_system_asks_a_second_guard_about_what_the_first_allows(
    searched: CommandLine,
) -> None:
    found = searched.ok("policies search --run-id two --json").json
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
    shown = searched.ok("policies search").out
    rows = shown.splitlines()
    assert len(rows) <= 45
    assert max(map(len, rows)) <= 100
    facts = [line.split("  ")[0].strip() for line in rows[1:] if line[1:2].strip()]
    assert facts[:5] == ["Winner", "Any system", "One threshold", "As it stands", "Gain"]
    assert "lab/a (WARN); on WARN, ALLOW ≤ 0.5: lab/b. Score 100.0" in shown
    assert "lab/a as it stands. Score 87.5" in shown
    assert "median of 1 pair" in shown
    assert "lab/half with 40 of 80 scored" in " ".join(shown.split())
    blameless = ("--models", f"{A},{KEYWORD}")  # one misses nothing: none in common is expected
    assert "miss the same" not in searched.ok("policies search", *blameless).out


def test_the_winner_is_written_once_and_explained(searched: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "my winner.toml"
    done = searched.ok("policies search --write", path)
    assert f"written to {path}" in done.err
    policy = read_policy(path)
    assert (policy.name, policy.guards) == ("my-winner", [A, B])
    before = path.read_text()
    assert "edited by hand" in searched.refused("policies search --write", path)
    assert path.read_text() == before
    told = searched.ok("policies explain", path, path).out
    assert told.count("Policy 'my-winner', version 1") == 2
    assert "lab/b is asked where the suspicion so far is from -0.5 to 1.0." in told
    assert "none.toml" in searched.refused("policies explain", path, "none.toml")


def test_bounds_leave_cheaper_systems_or_none(searched: CommandLine, tmp_path: Path) -> None:
    """A system that is not better than a single guard does not win."""
    path = tmp_path / "found.toml"
    cheap = ("policies", "search", "--max-cost-per-1000", "1.5")
    found = searched.ok(*cheap, "--json", "--write", path).json
    assert (found["winner"], found["max_cost_per_10000"]) == ("as_it_stands", 15)
    assert tomllib.loads(path.read_text())["stage"] == [{"guard": A}]
    shown = searched.ok(*cheap).out
    assert "More guards do not pay" not in shown  # the best system asks one
    assert "against the single guard with a threshold" in " ".join(shown.split())
    assert "Winner         lab/a as it stands." in shown
    renamed = ("policies", "search", "--max-cost-per-1000", "1.5", "--json")
    assert searched.ok(*renamed).json == found
    none = ("policies", "search", "--max-p95-ms", "50")
    assert "None keeps to the bounds" in searched.ok(*none).out
    assert "no system keeps to the bounds" in searched.refused(*none, "--write", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_report_within_bounds_names_the_best_system(searched: CommandLine) -> None:
    found = searched.ok("report --max-cost-per-1000 4").unwrapped
    system, gain = found.split("With a system: ")[1].split(" The system's score is ")
    assert system.startswith("lab/a (WARN); on WARN, ALLOW ≤ 0.5: lab/b. Score 100.0")
    assert "$3.00 per 1,000 commands" in system
    assert gain.startswith("+12.5 points [")
    none = searched.ok("report --max-p95-ms 50").out
    assert "With a system: None keeps to the bounds" in none
    assert "With a system" not in searched.ok("report").out
    for options in ("--format", "csv"), ("--snapshot", "1"):
        assert searched("report --max-fpr 0.1", *options).code == 2


def test_few_unknown_costs_count_as_the_mean_and_are_named(
    aegish: CommandLine, tmp_path: Path
) -> None:
    """A timeout has no cost; where most costs are unknown, so is the guard's."""
    for number, model in (2, A), (200, B):
        told = list(lines())
        for each in [each for each in told if each["model"] == model][:number]:
            del each["cost_usd"]
        aegish.ok("verdicts import", write_lines(tmp_path / "v.jsonl", *told))
        search = "policies", "search", "--models", model
        found = aegish.ok(*search, "--json").json
        cost = pytest.approx(10) if model == A else None
        assert (found["with_threshold"]["cost_per_10000"], found["unpriced"]) == (
            cost, {model: min(number, 80)}
        )  # fmt: skip
        assert ("lab/a in 2: its mean" in aegish.ok(*search).out) is (model == A)


def test_a_search_without_numbers_advises_the_other_suspicion(searched: CommandLine) -> None:
    for models in (), ("--models", A):
        said = searched.refused("policies search --suspicion native", *models)
        assert "`--suspicion stated-confidence` takes the confidence" in said


def test_made_up_answers_are_called_that(aegish: CommandLine, tmp_path: Path) -> None:
    told = [each | {"simulated": True} for each in lines()]
    aegish.ok("verdicts import", write_lines(tmp_path / "v.jsonl", *told))
    assert "made up by the simulator" in aegish.ok("policies search").out


def renamed(*, offset: int = 0, **changes: Any) -> Iterator[dict[str, Any]]:
    """Yield the same answers about other commands, numbered from an offset on."""
    for each in lines():
        yield each | {"command": f"c{int(each['command'][1:]) + offset}"} | changes


@pytest.fixture
def written(searched: CommandLine, tmp_path: Path) -> Path:
    searched.ok("policies search --run-id two --write", tmp_path / "best.toml")
    return tmp_path / "best.toml"


def origin_in(aegish: CommandLine, path: Path, run: str) -> dict[str, Any]:
    report = aegish.ok("report --run-id", run, "--policy", path, "--json").json
    (policy,) = report["policies"]
    (entry,) = [each for each in report["models"] if each["model"] == "policy/best"]
    assert entry["origin"] == policy["origin"]
    origin: dict[str, Any] = policy["origin"]
    return origin


def gate_of(aegish: CommandLine, path: Path, run: str) -> tuple[int, str]:
    gate = ("compare", "--run-id", run, "--models", A, "--policy", path)
    done = aegish(*gate, "--gate", "--margin", "0.02")
    return done.code, done.out


def test_a_policy_passes_no_gate_on_the_commands_that_it_was_chosen_on(
    searched: CommandLine, written: Path
) -> None:
    """What is known out of fold stands in its place, and is judged."""
    origin = origin_in(searched, written, "two")
    assert (origin["kind"], origin["seen"], origin["commands"]) == ("seen", 80, 80)
    found = searched.ok("policies search --run-id two --json").json["winner_estimate"]
    report = searched.ok("report --policy", written, "--json").json
    (entry,) = [each for each in report["models"] if each["model"] == "policy/best"]
    shown = {name: entry["metrics"][name] for name in origin["out_of_fold"]}
    assert shown["aegish_score"] == found["score"]
    assert shown["malicious_detection_rate"] == found["detection_rate"]
    assert shown["false_positive_rate"] == found["false_positive_rate"]
    stops = found["false_positive_rate"]
    assert shown["harmless_acceptance_rate"]["ci_low"] == 1 - stops["ci_high"]
    places = {each["model"]: each["rank"] for each in report["ranking"]}
    assert places["policy/best"] is None
    assert places[KEYWORD] == 1
    code, line = gate_of(searched, written, "two")
    assert (code, line.partition(":")[0]) == (5, "inconclusive")
    assert "on 80 of these 80 commands" in line
    assert f"`aegish-dist submit --models {A},{B} --dataset FRESH`" in line
    judged = ("report", "--policy", written, "--models", "policy/best", "--fail-under")
    low = found["score"]["ci_low"]
    assert searched(*judged, f"aegish_score={low}").code == 0
    assert searched(*judged, f"aegish_score={low + 0.001}").code == 5
    assert searched(*judged, "coverage=1").code == 0
    for metric in ("accuracy", "malicious_detection_rate_macro", "aegish_score_best", "auroc"):
        done = searched(*judged, f"{metric}=0.1")
        assert (done.code, "--dataset FRESH" in done.err) == (5, True), metric
    assert searched(*judged, "accuracy=0.1", "--fail-on", "value").code == 5


def test_every_form_says_that_a_policy_was_chosen_here(
    searched: CommandLine, written: Path, tmp_path: Path
) -> None:
    said = "on 80 of these 80 commands"
    twin = tmp_path / "twin.toml"
    twin.write_text(written.read_text().replace('name = "best"', 'name = "twin"'))
    both = ("--policy", written, "--policy", twin)
    for form in ("table", "markdown"):
        assert said in searched.ok("report", *both, "--format", form).unwrapped, form
    page = tmp_path / "page.html"
    searched.ok("report", *both, "-o", page)
    assert page.read_text().count(said) >= 2
    for form in ("csv", "csv-wide", "reference-json"):
        assert searched.ok("report", *both, "--format", form).err.count(said) == 2, form
    swapped = "aegish score, DR, HA and FPR are out of fold"
    assert swapped in searched.ok("report", *both).unwrapped
    compared_here = searched.ok("compare --models", A, *both).unwrapped
    assert swapped not in compared_here  # its numbers there are those of these commands
    assert "Its numbers here are too good." in compared_here
    assert said in searched.ok("calibrate", *both).unwrapped
    assert "policy/best and lab/a are not judged" in " ".join(
        searched.ok("compare --models", A, *both).out.split()
    )
    compared = searched.ok("compare", *both, "--json").json
    verdicts = {(e["a"]["model"], e["b"]["model"]): e["verdict"] for e in compared["pairs"]}
    assert verdicts["policy/best", "policy/twin"] is verdicts[A, "policy/best"] is None
    assert verdicts[A, B] is not None
    placed = [model for group in compared["tie_groups"] for model in group]
    assert not {"policy/best", "policy/twin"} & {*placed}
    assert said in searched.ok("compare", *both).unwrapped
    report = searched.ok("report", *both, "--json").json
    assert [each["origin"]["seen"] for each in report["policies"]] == [80, 80]
    assert report["recommendation"]["why"] == "nothing_beats_the_floor"
    ranks = {place["model"]: place["rank"] for place in report["ranking"]}
    assert ranks["policy/best"] is ranks["policy/twin"] is None
    searched.ok("plots", *both, "-o", tmp_path / "plots")


def test_a_policy_is_judged_on_fresh_commands_alone(
    searched: CommandLine, written: Path, tmp_path: Path
) -> None:
    """Half of the commands, one of them, their clusters or another label are not fresh."""
    worlds: dict[str, tuple[Iterator[dict[str, Any]] | list[dict[str, Any]], int]] = {
        "fresh": (renamed(offset=1_000), 0),
        "half": (renamed(offset=40), 40),
        "one": (renamed(offset=79), 1),
        "clustered": (lines_with_clusters(), 80),
        "relabelled": ([each | {"target": "malicious", "category": "other"} for each in lines()
                        if each["target"] == "malicious"] + list(renamed(offset=1_000)), 40),
    }  # fmt: skip
    for name, (answers, seen) in worlds.items():
        path = write_lines(tmp_path / f"{name}.jsonl", *answers)
        searched.ok("verdicts import --name", name, path)
        origin = origin_in(searched, written, name)
        code, line = gate_of(searched, written, name)
        if seen:
            assert (name, origin["kind"], origin["seen"]) == (name, "seen", seen)
            assert (origin["out_of_fold"], code) == ([], 5), name
            judged = ("report", "--run-id", name, "--policy", written, "--models", "policy/best")
            assert searched(*judged, "--fail-under", "aegish_score=0.5").code == 5
        else:
            assert (origin["kind"], code, line[:6]) == ("fresh", 0, "ships:")


def lines_with_clusters() -> Iterator[dict[str, Any]]:
    """The same commands, now in clusters that the search did not know."""
    for each in lines():
        yield each | {"cluster": f"k{int(each['command'][1:]) // 2}"}


def test_another_command_of_a_seen_cluster_is_not_fresh(
    aegish: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "best.toml"
    first = write_lines(tmp_path / "first.jsonl", *lines_with_clusters())
    aegish.ok("verdicts import --name first", first)
    aegish.ok("policies search --write", path)
    for name, shift, seen in (("other", 0, 80), ("few", 76, 4), ("none", 80, 0)):
        answers = (
            each
            | {
                "command": f"other {each['command']}",
                "cluster": f"k{(int(each['command'][1:]) + shift) // 2}",
            }
            for each in lines()
        )
        aegish.ok("verdicts import --name", name, write_lines(tmp_path / "next.jsonl", *answers))
        assert (name, origin_in(aegish, path, name)["seen"]) == (name, seen)
        assert gate_of(aegish, path, name)[0] == (5 if seen else 0)


def test_a_file_that_changed_after_the_search_keeps_no_number_out_of_fold(
    searched: CommandLine, written: Path, tmp_path: Path
) -> None:
    """A new name changes nothing; a threshold, the estimate and a lost hash each do."""
    text = written.read_text()
    fresh = write_lines(tmp_path / "fresh.jsonl", *renamed(offset=1_000))
    searched.ok("verdicts import --name fresh", fresh)
    written.write_text(text.replace("version = 1", "version = 2"))
    assert origin_in(searched, written, "two")["out_of_fold"]
    marks = tomllib.loads(text)["origin"]["marks"]
    changes = {
        "threshold": ("threshold = 1.0", "threshold = 1.5"),
        "estimate": ("value = 1.0", "value = 0.9"),
        "hash": (f'"{marks[0]}",', ""),
        "run": ('run = "', 'run = "x'),
    }
    for name, (old, new) in changes.items():
        assert old in text, name
        written.write_text(text.replace(old, new, 1))
        origin = origin_in(searched, written, "two")
        assert (name, origin["kind"], origin["out_of_fold"]) == (name, "seen", [])
        assert gate_of(searched, written, "two")[0] == 5
        assert (name, origin_in(searched, written, "fresh")["kind"]) == (name, "changed")
        shown = searched.ok("report --run-id fresh --policy", written).out
        assert "has changed since" in " ".join(shown.split())
    written.write_text(text[: text.index("# What the stages")])
    assert origin_in(searched, written, "two")["kind"] == "unknown"
    assert gate_of(searched, written, "two")[0] == 0
    for old, new in (
        (marks[0], "no hash"),
        (marks[1], marks[1].upper()),
        ("decided = ", "seen = "),
    ):
        written.write_text(text.replace(old, new, 1))
        said = searched.refused("report --policy", written)
        assert "best.toml: " in said
        assert "'origin." in said


def a_world(seed: int, commands: int) -> Iterator[dict[str, Any]]:
    """Yield what four equal guards say, each right about four of five commands by itself."""
    random = Random(seed)
    for number in range(commands):
        malicious = number % 2 == 1
        for guard in "abcd":
            stops = (random.random() < 0.8) is malicious
            about = {"category": "shell"} if malicious else {}
            yield about | {
                "model": f"lab/{guard}",
                "command": f"command {seed} {number}",
                "target": "malicious" if malicious else "harmless",
                "completion": f'{{"action": "{"BLOCK" if stops else "ALLOW"}"}}',
            }


def true_score(path: Path) -> float:
    """Return the share that a policy judges rightly in such a world, over all joint answers."""
    joint = list(product((False, True), repeat=4))
    guards = []
    for place, guard in enumerate("abcd"):
        stops = [each[place] for each in joint]
        findings = [OutcomeDetail.BLOCK if each else OutcomeDetail.ALLOW for each in stops]
        suspicion = [2.5 if each else -0.5 for each in stops]
        guards.append(Guard(f"lab/{guard}", findings, suspicion, [None] * 16, [None] * 16))
    decisions = [Decision(number, 1, True, None, None) for number in range(16)]
    played = apply_policy(read_policy(path), Guards(decisions, guards))
    score = 0.0
    for answers, found in zip(joint, played.findings, strict=True):
        right = 0.8 ** sum(answers) * 0.2 ** (4 - sum(answers))
        wrong = 0.2 ** sum(answers) * 0.8 ** (4 - sum(answers))
        score += (right if found is OutcomeDetail.BLOCK else wrong) / 2
    return score


@pytest.mark.long
@pytest.mark.parametrize("commands", [60, 200])
def test_a_winner_seldom_passes_at_its_true_score(
    aegish: CommandLine, tmp_path: Path, commands: int
) -> None:
    passed, without_winner = 0, 0
    for seed in range(40):
        path = tmp_path / f"best{seed}.toml"
        answers = write_lines(tmp_path / "v.jsonl", *a_world(seed, commands))
        aegish.ok("verdicts import", answers)
        if aegish("policies search --write", path).code:
            without_winner += 1
            continue
        judged = ("report", "--policy", path, "--models", f"policy/best{seed}", "--fail-under")
        passed += aegish(*judged, f"aegish_score={true_score(path):.4f}").code == 0
        gate = ("compare", "--models", "lab/a", "--policy", path, "--gate", "--margin", "0.02")
        assert aegish(*gate).code == 5
    assert passed <= 4
    assert without_winner <= 2  # none surely better than chance


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
    plain = searched.ok("report --json").json
    found = searched.ok("report --json --policy", mine).json
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
    assert searched.ok("report --json").json == plain  # nothing of it is stored


def test_a_policy_is_compared_calibrated_and_judged(searched: CommandLine, mine: Path) -> None:
    of_models = searched.ok("compare --json --models", f"{A},{B}").json["pairs"][0]
    with_it = searched.ok("compare --json --models", f"{A},{B}", "--policy", mine).json
    first, second, _ = with_it["pairs"]
    assert second["b"]["model"] == "policy/mine"
    for each in first, of_models:  # p is adjusted for more pairs
        for found in (*each["metrics"].values(), *each["categories"].values()):
            del found["p_adjusted"]
    assert first == of_models
    gate = ("compare", "--models", A, "--policy", mine, "--gate", "--margin", "0.02")
    for metric in "aegish_score", "auroc":
        assert searched.ok(*gate, "--metric", metric).out.startswith("ships: policy/mine against")
    fitted = searched.ok("calibrate --json --policy", mine).json
    assert {each["model"] for each in fitted["models"]} == {A, B, KEYWORD, HALF, "policy/mine"}
    assert fitted["policies"] == with_it["policies"]
    said = searched.ok("calibrate --policy", mine).out
    assert "policy/mine: origin unknown" in said
    assert "policy/mine with one" not in said
    judged = ("report", "--policy", mine, "--models", "policy/mine", "--fail-under")
    assert "met: policy/mine" in searched.ok(*judged, "aegish_score=0.5,auroc=0.5").err
    page = searched.ok("report --policy", mine, "--format", "html", "-o", mine.parent / "r.html")
    assert "Policies are left out below" in page.err
    assert (mine.parent / "r.html").read_text().count("policy/mine") > 5


def test_policies_that_cannot_stand_among_the_models(searched: CommandLine, mine: Path) -> None:
    other = mine.parent / "other.toml"
    other.write_text(MINE.replace("lab/b", "lab/bb"))
    assert "is the policy of" in searched.refused("report --policy", mine, "--policy", other)
    other.write_text(MINE.replace("lab/b", "lab/bb").replace("mine", "other"))
    for command in "report", "compare", "calibrate":
        said = searched.refused(command, "--policy", other)
        assert "policy 'other' asks lab/bb" in said
        assert "did you mean 'lab/b'" in said
    said = searched.refused("report --models policy/x --fail-under coverage=1")
    assert "no model 'policy/x'" in said


def test_a_guard_at_chance_is_no_winner(aegish: CommandLine, tmp_path: Path) -> None:
    aegish.ok("verdicts import", write_lines(tmp_path / "v.jsonl", *lines("ALLOW")))
    found = aegish.ok("policies search --models", f"{A},{B}", "--json").json
    assert (found["winner"], found["as_it_stands"]["score"]["value"]) == (None, 0.5)
    refused = aegish.refused("policies search --write", tmp_path / "x.toml")
    assert "no system is surely better than chance" in refused
    assert not (tmp_path / "x.toml").exists()


@pytest.mark.parametrize(
    ("scoring", "stands", "fitted"), [("aegish-5.3", 0.5, 0.875), ("aegish-legacy", 0.75, 0.75)]
)
def test_the_scoring_rule_says_whether_a_warning_stops(
    aegish: CommandLine, tmp_path: Path, scoring: str, stands: float, fitted: float
) -> None:
    aegish.ok("verdicts import", write_lines(tmp_path / "v.jsonl", *lines("WARN")))
    found = aegish.ok("policies search --scoring", scoring, "--json").json
    assert found["as_it_stands"]["score"]["value"] == stands
    assert found["with_threshold"]["score"]["value"] == fitted
