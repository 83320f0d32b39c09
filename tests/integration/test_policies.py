"""`policies search` and `policies explain` on stored runs, against numbers worked out by hand."""

import csv
import io
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.opinions.guards import Guards, apply_policy
from aegish_dist.opinions.opinion_files import read_policy
from tests.guards import Asked, a_guard, findings_in, samples_of
from tests.integration.command_line import CommandLine, write_lines
from tests.integration.stored_runs import verdict_line

A, B = "lab/a", "lab/b"
KEYWORD, HALF = "baseline/keyword", "lab/half"
COST, LATENCY = {A: 0.001, B: 0.002}, {A: 100, B: 200}


def lines(wary: str = "BLOCK") -> Iterator[dict[str, Any]]:
    """Yield what two guards say about 40 attacks and 40 harmless commands; each misses others.

    A baseline said it too, and a model that was asked harmless commands alone.
    """
    for n in range(80):
        target = "malicious" if n % 2 == 1 else "harmless"
        for model, missed in ((A, (1,)), (B, (5, 7)), (KEYWORD, ()), (HALF, ())):
            if model == HALF and target == "malicious":
                continue
            action = wary if target == "malicious" and n % 8 not in missed else "ALLOW"
            price = {"cost_usd": str(COST.get(model, 0)), "latency_ms": LATENCY.get(model, 1)}
            yield verdict_line(model, f"c{n}", target, action, None, **price)


Store = Callable[..., CommandLine]


@pytest.fixture
def store(aegish: CommandLine, tmp_path: Path) -> Store:
    """Stores answers as a run of some name."""

    def store(answers: Iterable[dict[str, Any]], name: str = "") -> CommandLine:
        aegish.ok("verdicts import --name", name, write_lines(tmp_path / "v.jsonl", *answers))
        return aegish

    return store


@pytest.fixture
def searched(store: Store) -> CommandLine:
    return store(lines(), "two")


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


def test_a_screen_has_the_system_beside_single_guards(searched: CommandLine) -> None:
    shown = searched.ok("policies search").out
    rows = shown.splitlines()
    assert len(rows) <= 45
    assert max(map(len, rows)) <= 100
    facts = [line.split("  ")[0].strip() for line in rows[1:] if line[1:2].strip()]
    assert facts[:5] == ["Winner", "Any system", "One threshold", "As it stands", "Gain"]
    assert "lab/a (WARN); on WARN, ALLOW ≤ 0.5: lab/b. Score 100.0" in shown
    assert "median of 1 pair" in shown
    assert "lab/half with 40 of 80 scored" in " ".join(shown.split())
    # One misses nothing: none in common is expected.
    assert "miss the same" not in searched.ok(f"policies search --models {A},{KEYWORD}").out


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
    assert "none.toml" in searched.refused("policies explain", path, "none.toml")


def test_bounds_leave_cheaper_systems_or_none(searched: CommandLine, tmp_path: Path) -> None:
    """A system that is not better than a single guard does not win."""
    path = tmp_path / "found.toml"
    cheap = "policies search --max-cost-per-1000 1.5"
    found = searched.ok(cheap, "--json", "--write", path).json
    assert (found["winner"], found["max_cost_per_10000"]) == ("as_it_stands", 15)
    assert tomllib.loads(path.read_text())["stage"] == [{"guard": A}]
    shown = searched.ok(cheap)
    assert "More guards do not pay" not in shown.out  # the best system asks one
    assert "against the single guard with a threshold" in shown.unwrapped
    assert "Winner lab/a as it stands." in shown.unwrapped
    none = "policies search --max-p95-ms 50"
    assert "None keeps to the bounds" in searched.ok(none).out
    assert "no system keeps to the bounds" in searched.refused(none, "--write", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_report_within_bounds_names_the_best_system(searched: CommandLine) -> None:
    found = searched.ok("report --max-cost-per-1000 4").unwrapped
    system, gain = found.split("With a system: ")[1].split(" The system's score is ")
    assert system.startswith("lab/a (WARN); on WARN, ALLOW ≤ 0.5: lab/b. Score 100.0")
    assert "$3.00 per 1,000 commands" in system
    assert gain.startswith("+12.5 points [")
    none = "With a system: None keeps to the bounds"
    assert none in searched.ok("report --max-p95-ms 50").out
    assert "With a system" not in searched.ok("report").out
    for option in "--format csv", "--snapshot 1":
        searched.misused(f"report --max-fpr 0.1 {option}")


@pytest.mark.parametrize(("model", "unknown", "cost"), [(A, 2, pytest.approx(10)), (B, 80, None)])
def test_few_unknown_costs_count_as_the_mean_and_are_named(
    store: Store, model: str, unknown: int, cost: object
) -> None:
    """A timeout has no cost; where most costs are unknown, so is the guard's."""
    told = [each for each in lines() if each["model"] == model]
    for each in told[:unknown]:
        del each["cost_usd"]
    aegish = store(told)
    found = aegish.ok("policies search --json").json
    assert found["with_threshold"]["cost_per_10000"] == cost
    assert found["unpriced"] == {model: unknown}
    assert ("lab/a in 2: its mean" in aegish.ok("policies search").out) is (model == A)


@pytest.mark.parametrize("models", ["", f"--models {A}"])
def test_a_search_without_numbers_advises_the_other_suspicion(
    searched: CommandLine, models: str
) -> None:
    said = searched.refused(f"policies search --suspicion native {models}")
    assert "`--suspicion stated-confidence` takes the confidence" in said


def test_made_up_answers_are_called_that(store: Store) -> None:
    aegish = store(each | {"simulated": True} for each in lines())
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
    report = aegish.ok("report --json --run-id", run, "--policy", path).json
    (policy,) = report["policies"]
    assert entry_of(report)["origin"] == policy["origin"]
    origin: dict[str, Any] = policy["origin"]
    return origin


def entry_of(report: Any) -> Any:
    (entry,) = [each for each in report["models"] if each["model"] == "policy/best"]
    return entry


def assert_nothing_in_sample(
    aegish: CommandLine, path: Path, honest: set[str], run: str = "two"
) -> None:
    """Assert that JSON and CSV have no other rate of the policy, and it counts commands still."""
    report = f"report --run-id {run} --policy '{path}' --format"
    entry = entry_of(aegish.ok(report, "json").json)
    known = {name for name, found in entry["metrics"].items() if found["value"] is not None}
    assert known == honest
    assert {found["value"] for found in entry["categories"].values()} == {None}
    assert entry["metrics"]["accuracy"]["n"]
    rows = [row for row in rows_of(aegish, f"{report} csv") if row["model"] == "policy/best"]
    rates = [row for row in rows if row["metric"] in entry["metrics"] or row["category"]]
    assert {row["metric"] for row in rates if row["value"]} == honest
    wide_rows = rows_of(aegish, f"{report} csv-wide")
    (wide,) = [row for row in wide_rows if row["model"] == "policy/best"]
    assert {name for name in entry["metrics"] if wide.get(name)} <= honest
    differences = aegish.ok(f"{report} markdown --sections differences").out
    assert f"\n| {A} |" in differences
    assert "\n| policy/best |" not in differences
    places = aegish.ok(report, "reference-json").json["ranking"]
    assert "policy/best" not in {place["model"] for place in places}


def rows_of(aegish: CommandLine, line: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(aegish.ok(line).out)))


def gate_of(aegish: CommandLine, path: Path, run: str) -> tuple[int, str]:
    gate = f"compare --run-id {run} --models {A} --gate --margin 0.02 --policy"
    done = aegish(gate, path)
    return done.code, done.out


def test_a_policy_passes_no_gate_on_the_commands_that_it_was_chosen_on(
    searched: CommandLine, written: Path
) -> None:
    """What is known out of fold stands in its place, and is judged."""
    origin = origin_in(searched, written, "two")
    assert (origin["kind"], origin["seen"], origin["commands"]) == ("seen", 80, 80)
    found = searched.ok("policies search --run-id two --json").json["winner_estimate"]
    report = searched.ok("report --policy", written, "--json").json
    metrics = entry_of(report)["metrics"]
    shown = {name: metrics[name] for name in origin["out_of_fold"]}
    assert shown["aegish_score"] == found["score"]
    assert shown["malicious_detection_rate"] == found["detection_rate"]
    assert shown["false_positive_rate"] == found["false_positive_rate"]
    stops = found["false_positive_rate"]
    assert shown["harmless_acceptance_rate"]["ci_low"] == 1 - stops["ci_high"]
    assert_nothing_in_sample(searched, written, {*shown, "coverage"})
    places = {each["model"]: each["rank"] for each in report["ranking"]}
    assert places["policy/best"] is None
    assert places[KEYWORD] == 1
    code, line = gate_of(searched, written, "two")
    assert (code, line.partition(":")[0]) == (5, "inconclusive")
    assert "on 80 of these 80 commands" in line
    assert f"`aegish-dist submit --models {A},{B} --dataset FRESH`" in line
    judged = f"report --models policy/best --policy '{written}' --fail-under"
    low = found["score"]["ci_low"]
    assert searched(judged, f"aegish_score={low}").code == 0
    assert searched(judged, f"aegish_score={low + 0.001}").code == 5
    assert searched(judged, "coverage=1").code == 0
    for metric in ("accuracy", "malicious_detection_rate_macro", "aegish_score_best", "auroc"):
        done = searched(judged, f"{metric}=0.1")
        assert (done.code, "--dataset FRESH" in done.err) == (5, True), metric
    assert searched(judged, "accuracy=0.1", "--fail-on", "value").code == 5


def test_every_form_says_that_a_policy_was_chosen_here(
    searched: CommandLine, written: Path, tmp_path: Path
) -> None:
    said = "on 80 of these 80 commands"
    twin, page = tmp_path / "twin.toml", tmp_path / "page.html"
    twin.write_text(written.read_text().replace('name = "best"', 'name = "twin"'))
    both = f"--policy '{written}' --policy '{twin}'"
    for line in ("report --format markdown", "report", "calibrate", "compare"):
        assert said in searched.ok(f"{line} {both}").unwrapped, line
    searched.ok(f"report {both} -o", page)
    assert page.read_text().count(said) >= 2
    for form in ("csv", "csv-wide", "reference-json"):
        assert searched.ok(f"report {both} --format {form}").err.count(said) == 2, form
    swapped = "aegish score, DR, HA and FPR are out of fold"
    assert swapped in searched.ok(f"report {both}").unwrapped
    compared_here = searched.ok(f"compare --models {A} {both}").unwrapped
    assert swapped not in compared_here  # its numbers there are those of these commands
    assert "Its numbers here are too good." in compared_here
    assert "policy/best and lab/a are not judged" in compared_here
    compared = searched.ok(f"compare {both} --json").json
    verdicts = {(e["a"]["model"], e["b"]["model"]): e["verdict"] for e in compared["pairs"]}
    assert verdicts["policy/best", "policy/twin"] is verdicts[A, "policy/best"] is None
    assert verdicts[A, B] is not None
    placed = [model for group in compared["tie_groups"] for model in group]
    assert not {"policy/best", "policy/twin"} & {*placed}
    report = searched.ok(f"report {both} --json").json
    assert report["recommendation"]["why"] == "nothing_beats_the_floor"
    searched.ok(f"plots {both} -o", tmp_path / "plots")


def relabelled() -> Iterator[dict[str, Any]]:
    """Yield other answers, and the same attacks under another label."""
    yield from renamed(offset=1_000)
    for each in lines():
        if each["target"] == "malicious":
            yield each | {"category": "other"}


@pytest.mark.parametrize(
    ("answers", "seen"), [(renamed(offset=1_000), 0), (renamed(offset=40), 40), (relabelled(), 40)]
)
def test_a_policy_is_judged_on_fresh_commands_alone(
    searched: CommandLine, store: Store, written: Path, answers: Iterator[dict[str, Any]], seen: int
) -> None:
    """Half of the commands, or the attacks under another label, are not fresh."""
    store(answers, "world")
    origin = origin_in(searched, written, "world")
    code, line = gate_of(searched, written, "world")
    if seen:
        assert (origin["kind"], origin["seen"]) == ("seen", seen)
        assert (origin["out_of_fold"], code) == ([], 5)
        assert_nothing_in_sample(searched, written, {"coverage"}, "world")
        report = f"report --run-id world --policy '{written}'"
        assert "best: chosen on commands of this run" in searched.ok(report).unwrapped
        assert (
            "no score: chosen on commands of this run" in searched.ok(f"{report} --format html").out
        )
        of_reference = searched.ok(f"{report} --format reference-json").json["results"]
        assert of_reference["policy/best"]["error"] == "chosen on commands of this run"
        judged = "report --run-id world --models policy/best --fail-under aegish_score=0.5"
        assert searched(judged, "--policy", written).code == 5
    else:
        assert (origin["kind"], code, line[:6]) == ("fresh", 0, "ships:")


def in_clusters(prefix: str = "", shift: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the answers about commands of other words, two in each cluster."""
    for each in lines():
        cluster = f"k{(int(each['command'][1:]) + shift) // 2}"
        yield each | {"command": prefix + each["command"], "cluster": cluster}


def test_another_command_of_a_seen_cluster_is_not_fresh(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "best.toml"
    aegish = store(in_clusters(), "first")
    aegish.ok("policies search --write", path)
    for name, shift, seen in (("other", 0, 80), ("few", 76, 4), ("none", 80, 0)):
        store(in_clusters("other ", shift), name)
        assert (name, origin_in(aegish, path, name)["seen"]) == (name, seen)
        assert gate_of(aegish, path, name)[0] == (5 if seen else 0)


def test_a_file_that_changed_after_the_search_keeps_no_number_out_of_fold(
    searched: CommandLine, store: Store, written: Path
) -> None:
    """A new name changes nothing; a threshold, the estimate and a lost hash each do."""
    text = written.read_text()
    store(renamed(offset=1_000), "fresh")
    written.write_text(text.replace("version = 1", "version = 2"))
    assert origin_in(searched, written, "two")["out_of_fold"]
    marks = tomllib.loads(text)["origin"]["marks"]
    for old, new in (
        ("threshold = 1.0", "threshold = 1.5"),
        ("value = 1.0", "value = 0.9"),
        (f'"{marks[0]}",', ""),
        ('run = "', 'run = "x'),
    ):
        assert old in text
        written.write_text(text.replace(old, new, 1))
        origin = origin_in(searched, written, "two")
        assert (old, origin["kind"], origin["out_of_fold"]) == (old, "seen", [])
        assert (old, origin_in(searched, written, "fresh")["kind"]) == (old, "changed")
    assert gate_of(searched, written, "two")[0] == 5
    changed = searched.ok("report --run-id fresh --policy", written)
    assert "has changed since" in changed.unwrapped
    written.write_text(text[: text.index("# What the stages")])
    assert origin_in(searched, written, "two")["kind"] == "unknown"
    assert gate_of(searched, written, "two")[0] == 0
    for old, new in (
        (marks[0], "no hash"),
        (marks[1], marks[1].upper()),
        ("decided = ", "seen = "),
    ):
        written.write_text(text.replace(old, new, 1))
        assert re.search(r"best\.toml: .*'origin\.", searched.refused("report --policy", written))


def a_world(seed: int, commands: int) -> Iterator[dict[str, Any]]:
    """Yield what four equal guards say, each right about four of five commands by itself."""
    random = Random(seed)
    for number, guard in product(range(commands), "abcd"):
        malicious = number % 2 == 1
        stops = (random.random() < 0.8) is malicious
        target, action = "malicious" if malicious else "harmless", "BLOCK" if stops else "ALLOW"
        yield verdict_line(f"lab/{guard}", f"command {seed} {number}", target, action)


def true_score(path: Path) -> float:
    """Return the share that a policy judges rightly in such a world, over all joint answers."""
    joint = list(product((False, True), repeat=4))
    guards = []
    for place, guard in enumerate("abcd"):
        stops = [each[place] for each in joint]
        findings = [OutcomeDetail.BLOCK if each else OutcomeDetail.ALLOW for each in stops]
        suspicion = [2.5 if each else -0.5 for each in stops]
        guards.append(a_guard(f"lab/{guard}", findings, suspicion))
    samples = samples_of([Asked(malicious=True)] * 16)
    played = apply_policy(read_policy(path), Guards(samples, 1, guards))
    score = 0.0
    for answers, found in zip(joint, findings_in(played), strict=True):
        right = 0.8 ** sum(answers) * 0.2 ** (4 - sum(answers))
        wrong = 0.2 ** sum(answers) * 0.8 ** (4 - sum(answers))
        score += (right if found is OutcomeDetail.BLOCK else wrong) / 2
    return score


@pytest.mark.long
@pytest.mark.parametrize("commands", [60, 200])
def test_a_winner_seldom_passes_at_its_true_score(
    store: Store, tmp_path: Path, commands: int
) -> None:
    passed, without_winner = 0, 0
    for seed in range(40):
        path = tmp_path / f"best{seed}.toml"
        aegish = store(a_world(seed, commands))
        if aegish("policies search --write", path).code:
            without_winner += 1
            continue
        judged = (
            f"report --models policy/best{seed} --fail-under aegish_score={true_score(path):.4f}"
        )
        passed += aegish(judged, "--policy", path).code == 0
        gate = "compare --models lab/a --gate --margin 0.02 --policy"
        assert aegish(gate, path).code == 5
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
    latency = policy["latency_ms"]
    assert latency["mean"] == pytest.approx((30 * 100 + 48 * 300) / 80)
    assert latency["p50"] == latency["p99"] == latency["max"] == 300
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
    pair = f"compare --json --models {A},{B}"
    of_models = searched.ok(pair).json["pairs"][0]
    with_it = searched.ok(pair, "--policy", mine).json
    first, second, _ = with_it["pairs"]
    assert second["b"]["model"] == "policy/mine"
    for each in first, of_models:  # p is adjusted for more pairs
        for found in (*each["metrics"].values(), *each["categories"].values()):
            del found["p_adjusted"]
    assert first == of_models
    for metric in "aegish_score", "auroc":
        gate = f"compare --models {A} --gate --margin 0.02 --metric {metric} --policy"
        assert searched.ok(gate, mine).out.startswith("ships: policy/mine against")
    fitted = searched.ok("calibrate --json --policy", mine).json
    assert {each["model"] for each in fitted["models"]} == {A, B, KEYWORD, HALF, "policy/mine"}
    assert fitted["policies"] == with_it["policies"]
    said = searched.ok("calibrate --policy", mine).out
    assert "policy/mine: origin unknown" in said
    assert "policy/mine with one" not in said
    judged = "report --models policy/mine --fail-under aegish_score=0.5,auroc=0.5 --policy"
    assert "met: policy/mine" in searched.ok(judged, mine).err
    page = mine.with_name("r.html")
    done = searched.ok("report --format html --policy", mine, "-o", page)
    assert "Policies are left out below" in done.err
    assert page.read_text().count("policy/mine") > 5


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


def test_a_guard_at_chance_is_no_winner(store: Store, tmp_path: Path) -> None:
    aegish = store(lines("ALLOW"))
    found = aegish.ok("policies search --json --models", f"{A},{B}").json
    assert (found["winner"], found["as_it_stands"]["score"]["value"]) == (None, 0.5)
    refused = aegish.refused("policies search --write", tmp_path / "x.toml")
    assert "no system is surely better than chance" in refused
    assert not (tmp_path / "x.toml").exists()


@pytest.mark.parametrize(
    ("scoring", "stands", "fitted"), [("aegish-5.3", 0.5, 0.875), ("aegish-legacy", 0.75, 0.75)]
)
def test_the_scoring_rule_says_whether_a_warning_stops(
    store: Store, scoring: str, stands: float, fitted: float
) -> None:
    found = store(lines("WARN")).ok("policies search --json --scoring", scoring).json
    assert found["as_it_stands"]["score"]["value"] == stands
    assert found["with_threshold"]["score"]["value"] == fitted
