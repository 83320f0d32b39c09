"""Comparing models of a run, and runs, from the command line to the answer."""

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from aegish_dist.cli import EXIT_INCONCLUSIVE, EXIT_WORSE
from aegish_dist.core.model import CallParameters
from aegish_dist.core.run import Prompt
from aegish_dist.core.sample import Dataset
from tests.integration.command_line import CommandLine
from tests.integration.samples import ALLOWED, BLOCKED, LS, TAR
from tests.integration.stored_runs import Imported, a_model, stored_run, verdict_line

ACTIONS = {
    "malicious": {"r": "BLOCK", "w": "ALLOW", "e": "ALLOW"},
    "harmless": {"r": "ALLOW", "w": "BLOCK", "e": "ALLOW"},
}
Pattern = str  # one letter for each sample: r (right), w (wrong), - (no verdict), e (call failed)
GOOD = ("r" * 40, "r" * 40)
BAD = ("w" * 30 + "r" * 10, "r" * 38 + "ww")
TWO = "--models lab/a,lab/b"


def lines(model: str, target: str, pattern: Pattern) -> list[dict[str, Any]]:
    """Verdict lines; malicious samples in binaries of two, harmless ones in none."""
    found = []
    for number, letter in enumerate(pattern):
        if letter == "-":
            continue
        line = verdict_line(model, f"{target} {number}", target, ACTIONS[target][letter])
        if target == "malicious":
            line["cluster"] = f"bin{number // 2}"
        if letter == "e":
            line |= {"completion": None, "error_class": "server"}
        found.append(line)
    return found


RunOf = Callable[..., str]


@pytest.fixture
def run_of(imported: Imported) -> RunOf:
    """Import a run of models, each with its patterns of malicious and of harmless samples."""

    def stored(**models: tuple[Pattern, Pattern]) -> str:
        found = []
        for name, (malicious, harmless) in models.items():
            found += lines(f"lab/{name}", "malicious", malicious)
            found += lines(f"lab/{name}", "harmless", harmless)
        return imported(found)

    return stored


def test_differences_are_counted_on_samples_scored_on_both_sides(
    aegish: CommandLine, run_of: RunOf
) -> None:
    run = run_of(a=("rrrww-er", "rrrr"), b=("rwwrwrre", "rrw-"))
    found = aegish.ok("compare --json").json
    assert (found["scoring"], found["gate"]) == ("aegish-5.3", None)
    (pair,) = found["pairs"]
    assert pair["a"] == {"run_id": run, "model": "lab/a"}
    assert pair["b"] == {"run_id": run, "model": "lab/b"}
    assert pair["samples"] == 5 + 3
    detection = pair["metrics"]["malicious_detection_rate"]
    assert detection == detection | {
        "a": 3 / 5,
        "b": 2 / 5,
        "difference": pytest.approx(-1 / 5, abs=1e-15),
        "discordant": {"a_only": 2, "b_only": 1},
        "mcnemar_p": pytest.approx(1),
        "n": 5,
        "clusters": 3,
    }
    acceptance = pair["metrics"]["harmless_acceptance_rate"]
    assert acceptance == acceptance | {"a": 1, "b": pytest.approx(2 / 3), "n": 3, "clusters": 3}
    score = pair["metrics"]["aegish_score"]
    difference = pytest.approx((-1 / 5 - 1 / 3) / 2)
    assert score == score | {"difference": difference, "mcnemar_p": None}
    assert pair["categories"]["shell"]["n"] == 5


def test_all_pairs_of_a_run_are_compared_and_grouped(aegish: CommandLine, run_of: RunOf) -> None:
    """Three models give three pairs; the one that differs is in a group of its own."""
    run_of(a=GOOD, b=GOOD, c=BAD)
    everything = aegish.ok("compare --json").json
    results = {(p["a"]["model"], p["b"]["model"]): p["verdict"] for p in everything["pairs"]}
    assert results == {
        ("lab/a", "lab/b"): "tied",
        ("lab/a", "lab/c"): "worse",
        ("lab/b", "lab/c"): "worse",
    }
    assert everything["tie_groups"] == [["lab/a", "lab/b"], ["lab/c"]]
    score = everything["pairs"][1]["metrics"]["aegish_score"]
    assert score["p_adjusted"] == pytest.approx(3 * score["p_value"])
    (pair,) = aegish.ok("compare --models lab/c,lab/a --json").json["pairs"]
    assert (pair["a"]["model"], pair["verdict"]) == ("lab/c", "better")
    one = pair["metrics"]["aegish_score"]
    assert one["difference"] == -score["difference"]
    assert one["p_adjusted"] == one["p_value"] == pytest.approx(score["p_value"])


@pytest.mark.long
def test_many_models_are_compared_with_the_best(
    aegish: CommandLine, run_of: RunOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one screen; every pair is in JSON and CSV, and in a table that asks for them."""
    monkeypatch.setenv("COLUMNS", "100")
    worse = {f"m{n}": ("w" * 4 * n + "r" * (40 - 4 * n), "r" * 38 + "ww") for n in range(1, 9)}
    run_of(a=GOOD, b=GOOD, **worse)
    shown = aegish.ok("compare").out.splitlines()
    assert len(shown) <= 40
    assert max(map(len, shown)) <= 100
    assert any(re.match(r" Best first +lab/a, lab/b(, | and )lab/m1", line) for line in shown)
    rows = [line.split() for line in shown if re.match(r" lab/\w+ +[+-]?\d", line)]
    assert [row[0] for row in rows] == ["lab/b", *(f"lab/{name}" for name in worse)]
    pairs = aegish.ok("compare --json").json["pairs"]
    differences = {
        (p["a"]["model"], p["b"]["model"]): p["metrics"]["aegish_score"]["difference"]
        for p in pairs
    }
    assert len(differences) == len(pairs) == 45
    assert f"{100 * differences['lab/a', 'lab/m1']:+.1f}" in rows[1]
    assert aegish.ok("compare --format csv").out.count(",aegish_score,") == 45
    assert "45 pairs differ" in aegish.ok("compare --all-pairs").out
    assert "3 pairs differ" in aegish.ok("compare --models lab/a,lab/b,lab/m1").out


@pytest.mark.long
def test_simulated_models_are_marked_beside_the_best(engine: Engine, aegish: CommandLine) -> None:
    models = [a_model(f"test/{name}", simulated=name == "c") for name in "abcd"]
    said = {each.id: {TAR: BLOCKED, LS: ALLOWED} for each in models}
    stored_run(engine, said, models=models)
    shown = aegish.ok("compare").out
    assert "Each guard minus test/a" in shown
    assert [f"test/{name} †" in shown for name in "bcd"] == [False, True, False]


def two_runs(engine: Engine, **changes: Any) -> str:
    """Two runs that differ in what is given; the second has TAR wrong."""
    stored_run(engine, {TAR: BLOCKED, LS: ALLOWED}, run_id="0base0000")
    stored_run(engine, {TAR: ALLOWED, LS: ALLOWED}, run_id="0new00000", **changes)
    return "compare --runs 0base0000,0new00000"


def test_runs_are_compared_by_samples_of_equal_content(engine: Engine, aegish: CommandLine) -> None:
    """Verdicts of two runs meet at the same sample; names and caps on costs are no differences."""
    cap = CallParameters(max_cost_usd=Decimal(1), max_cost_per_model_usd=Decimal(1))
    compare = two_runs(engine, parameters=cap, name="another", package_version="9")
    found = aegish.ok(f"{compare} --json").json
    (pair,) = found["pairs"]
    # The first one is the baseline.
    assert (pair["a"]["run_id"], pair["b"]["run_id"]) == ("0base0000", "0new00000")
    assert pair["metrics"]["malicious_detection_rate"]["difference"] == -1
    assert (found["unlike"], found["tie_groups"]) == ([], [])


def test_a_baseline_is_compared_with_itself_only_if_named(
    engine: Engine, aegish: CommandLine
) -> None:
    models = ("test/a", "baseline/keyword")
    for run in ("0base0000", "0new00000"):
        stored_run(engine, dict.fromkeys(models, BLOCKED), run_id=run, models=models, name="")
    asked = "compare --runs 0base0000,0new00000 --json"
    for named, compared in (("", "test/a"), ("--models baseline/keyword", "baseline/keyword")):
        (pair,) = aegish.ok(f"{asked} {named}").json["pairs"]
        assert pair["b"]["model"] == compared


def test_unlike_runs_are_refused_with_their_differences(
    engine: Engine, aegish: CommandLine
) -> None:
    """One line lists each difference; with --force every form of output says it."""
    model = a_model("test/a", parameters={"reasoning_effort": "low"}, simulated=True)
    compare = two_runs(
        engine,
        datasets=(Dataset("commands", (TAR, LS)),),
        prompt=Prompt("mine", "You.", "{command}"),
        parameters=CallParameters(seed=None, temperature=0.5),
        models=(model,),
    )
    refused = aegish.refused(compare)
    for difference in (
        "samples of 'commands': 3 (",
        "against 2 (",
        "prompt: 'guard' (",
        "against 'mine' (",
        "seed: 42 against none",
        "temperature: none against 0.5",
        'parameters of test/a: {} against {"reasoning_effort": "low"}',
        "answers of test/a: real against simulated",
    ):
        assert difference in refused
    (pair, *_) = aegish.ok(f"{compare} --force --json").json["pairs"]
    assert pair["metrics"]["malicious_detection_rate"]["difference"] == -1
    for form in ("table", "markdown", "csv", "json"):
        said = aegish.ok(f"{compare} --force --format", form).unwrapped
        assert "seed: 42 against none" in said
    gate = aegish(f"{compare} --force --gate --margin 0.1").out
    assert "unlike runs" in gate
    assert gate.count("\n") == 1


def test_two_models_in_two_runs_are_told_how_a_gate_is_asked(
    aegish: CommandLine, run_of: RunOf
) -> None:
    refused = aegish("compare --runs", f"{run_of(a=GOOD)},{run_of(b=BAD)}").err
    assert "the same guard in two runs" in refused
    assert "`extend --run-id R --models B`" in refused


@pytest.mark.parametrize(
    ("candidate", "code", "result"),
    [
        (GOOD, 0, "ships"),
        (BAD, EXIT_WORSE, "worse"),
        (("rrw-", "rr--"), EXIT_INCONCLUSIVE, "inconclusive"),
        (("", "rr"), EXIT_INCONCLUSIVE, "inconclusive"),
    ],
)
def test_a_gate_answers_in_one_line_and_its_exit_code(
    aegish: CommandLine, run_of: RunOf, candidate: tuple[str, str], code: int, result: str
) -> None:
    run_of(a=GOOD, b=candidate)
    gate = f"compare {TWO} --gate --margin 0.2"
    done = aegish(gate)
    assert (done.code, done.err) == (code, "")
    assert done.out.startswith(f"{result}: lab/b against lab/a")
    assert done.out.count("\n") == 1
    document = aegish(f"{gate} --json")
    assert (document.code, document.json["pairs"][0]["verdict"]) == (code, result)
    assert document.err == done.out
    (only,) = document.json["gate"]
    assert (only["commands_missing"] is None) == (only["commands_needed"] is None)


def test_the_worst_of_several_candidates_decides(
    aegish: CommandLine, run_of: RunOf, tmp_path: Path
) -> None:
    """Each candidate is gated against the first model, and each has a test case."""
    run_of(a=GOOD, b=GOOD, c=BAD)
    junit = tmp_path / "gate.xml"
    done = aegish("compare --gate --margin 0.2 --models lab/a,lab/b,lab/c --junit", junit)
    assert done.code == EXIT_WORSE
    (line,) = done.out.splitlines()
    assert line.startswith("worse: lab/c against lab/a: aegish_score -40.0 points [")
    cases = junit.read_text()
    assert (cases.count("<testcase "), cases.count("<failure ")) == (2, 1)


def test_other_metrics_decide_where_one_label_is_missing(
    aegish: CommandLine, run_of: RunOf
) -> None:
    """Without harmless samples the score is undefined, and the detection rate is not."""
    run_of(a=("r" * 40, ""), b=("r" * 40, ""))
    undefined = aegish.ok("compare --json").json
    assert (undefined["pairs"][0]["verdict"], undefined["tie_groups"]) == (None, [])
    metric = "--metric malicious_detection_rate"
    defined = aegish.ok(f"compare --json {metric}").json
    assert defined["tie_groups"] == [["lab/a", "lab/b"]]
    gate = f"compare {TWO} --gate --margin 0.2"
    assert aegish(gate).code == EXIT_INCONCLUSIVE
    assert aegish(f"{gate} {metric}").code == 0


def test_no_verdict_at_all_is_undefined(engine: Engine, aegish: CommandLine) -> None:
    """A run whose models have not answered yet gives pairs of no samples."""
    stored_run(engine, models=("test/a", "test/b"))
    (pair,) = aegish.ok("compare --json").json["pairs"]
    assert (pair["samples"], pair["verdict"]) == (0, None)
    assert pair["metrics"]["aegish_score"]["difference"] is None
    aegish.ok("compare")


@pytest.mark.parametrize(
    ("least", "code", "notes"),
    [
        ("aegish_score=0.5", 0, ["met: lab/a: aegish_score 1.000 ["]),
        (
            "malicious_detection_rate=0.95,harmless_acceptance_rate=0.2",
            EXIT_WORSE,
            ["undecided: lab/a: malicious_detection_rate 1.000 [", "below: lab/b: mal"],
        ),
        (
            "harmless_acceptance_rate=0.97",
            EXIT_INCONCLUSIVE,
            ["undecided: lab/a: harmless_acceptance_rate", "undecided: lab/b: harmless_acc"],
        ),
    ],
)
def test_a_report_fails_under_thresholds(
    aegish: CommandLine, run_of: RunOf, least: str, code: int, notes: list[str]
) -> None:
    """The report is printed all the same; a line names each model that misses a threshold."""
    run_of(a=GOOD, b=BAD)
    done = aegish("report --format csv --fail-under", least)
    assert (done.code, done.out[:7]) == (code, "run_id,")
    for line, start in zip(done.err.splitlines(), notes, strict=True):
        assert line.startswith(start)
    if not code:
        assert line.endswith("] is at least 0.5; and 1 more")


def test_thresholds_are_of_the_models_named_and_of_values_on_request(
    aegish: CommandLine, run_of: RunOf
) -> None:
    run_of(a=GOOD, b=BAD)
    under = "report --fail-under malicious_detection_rate=0.5 --models"
    codes = [aegish(under, models).code for models in ("lab/a", "lab/b", "lab/a,lab/b")]
    assert codes == [0, EXIT_WORSE, EXIT_WORSE]
    assert "has no model 'lab/x'" in aegish.refused(under, "lab/x")
    undecided = "report --fail-under harmless_acceptance_rate=0.97 --fail-on"
    codes = [aegish(undecided, number).code for number in ("interval", "value")]
    assert codes == [EXIT_INCONCLUSIVE, EXIT_WORSE]
