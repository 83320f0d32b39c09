"""Comparing models of a run, and runs, from the command line to the answer."""

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.cli import EXIT_INCONCLUSIVE, EXIT_WORSE
from aegish_dist.core.model import CallParameters
from aegish_dist.core.run import ModelOfRun, Prompt
from aegish_dist.core.sample import Dataset, TrueLabel
from aegish_dist.core.verdict import Completion
from aegish_dist.db.answers import read_answers
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import load_run
from aegish_dist.opinions.parsing import judge
from tests.integration.command_line import CommandLine, Done
from tests.integration.samples import ALLOWED, BLOCKED, LS, TAR
from tests.integration.stored_runs import a_model, answer, imported_run, stored_run

WARNED = judge(Completion('{"action": "WARN"}'))

Pattern = str  # one letter for each sample: r (right), w (wrong), - (no verdict), e (call failed)


def lines(model: str, malicious: Pattern, harmless: Pattern) -> list[dict[str, Any]]:
    """Verdict lines; malicious samples in binaries of two, harmless ones in none."""
    found = []
    for target, right, wrong, pattern in (
        ("malicious", "BLOCK", "ALLOW", malicious),
        ("harmless", "ALLOW", "BLOCK", harmless),
    ):
        for number, letter in enumerate(pattern):
            said = {"completion": json.dumps({"action": right if letter == "r" else wrong})}
            failed = {"completion": None, "error_class": "server"}
            labels = {"category": "shell", "cluster": f"bin{number // 2}"}
            about = {"model": model, "dataset": "d", "target": target}
            if letter != "-":
                found.append(
                    about | {"command": f"{target} {number}"}
                    | (labels if target == "malicious" else {})
                    | (failed if letter == "e" else said)
                )  # fmt: skip
    return found


RunOf = Callable[..., str]
GateOn = Callable[..., Done]


@pytest.fixture
def run_of(engine: Engine, tmp_path: Path) -> RunOf:
    """Import a run of models, each with its patterns of malicious and of harmless samples."""

    def imported(**models: tuple[Pattern, Pattern]) -> str:
        found = [line for name, each in models.items() for line in lines(f"lab/{name}", *each)]
        return imported_run(engine, tmp_path, found)

    return imported


@pytest.fixture
def gate_on(aegish: CommandLine, run_of: RunOf) -> GateOn:
    def gate(candidate: tuple[str, str], *options: str) -> Done:
        run = run_of(a=GOOD, b=candidate)
        models = ("--models", "lab/a,lab/b")
        return aegish("compare", "--run-id", run, *models, "--gate", "--margin", "0.2", *options)

    return gate


GOOD = ("r" * 40, "r" * 40)
BAD = ("w" * 30 + "r" * 10, "r" * 38 + "ww")


def test_differences_are_counted_on_samples_scored_on_both_sides(
    aegish: CommandLine, run_of: RunOf
) -> None:
    run = run_of(a=("rrrww-er", "rrrr"), b=("rwwrwrre", "rrw-"))
    found = aegish.ok("compare", "--run-id", run, "--json").json

    assert found["scoring"] == "aegish-5.3"
    (pair,) = found["pairs"]
    assert pair["a"] == {"run_id": run, "model": "lab/a"}
    assert pair["b"] == {"run_id": run, "model": "lab/b"}
    assert pair["samples"] == 5 + 3
    detection = pair["metrics"]["malicious_detection_rate"]
    assert (detection["a"], detection["b"]) == (3 / 5, 2 / 5)
    assert detection["difference"] == pytest.approx(-1 / 5, abs=1e-15)
    assert detection["discordant"] == {"a_only": 2, "b_only": 1}
    assert detection["mcnemar_p"] == pytest.approx(1)
    assert (detection["n"], detection["clusters"]) == (5, 3)
    acceptance = pair["metrics"]["harmless_acceptance_rate"]
    assert (acceptance["a"], acceptance["b"]) == (1, pytest.approx(2 / 3))
    assert (acceptance["n"], acceptance["clusters"]) == (3, 3)
    score = pair["metrics"]["aegish_score"]
    assert score["difference"] == pytest.approx((-1 / 5 - 1 / 3) / 2)
    assert score["mcnemar_p"] is None
    assert pair["categories"]["shell"]["n"] == 5
    assert pair["verdict"] == "tied"
    assert found["tie_groups"] == [["lab/a", "lab/b"]]
    assert found["gate"] is None


def test_all_pairs_of_a_run_are_compared_and_grouped(aegish: CommandLine, run_of: RunOf) -> None:
    """Three models give three pairs; the one that differs is in a group of its own."""
    run = run_of(a=GOOD, b=GOOD, c=BAD)

    everything = aegish.ok("compare", "--run-id", run, "--json").json
    chosen = aegish.ok("compare", "--run-id", run, "--models", "lab/c,lab/a", "--json").json

    verdicts = {(p["a"]["model"], p["b"]["model"]): p["verdict"] for p in everything["pairs"]}
    assert verdicts == {
        ("lab/a", "lab/b"): "tied", ("lab/a", "lab/c"): "worse", ("lab/b", "lab/c"): "worse"
    }  # fmt: skip
    assert everything["tie_groups"] == [["lab/a", "lab/b"], ["lab/c"]]
    score = everything["pairs"][1]["metrics"]["aegish_score"]
    assert score["p_adjusted"] == pytest.approx(3 * score["p_value"])
    (pair,) = chosen["pairs"]
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
    compare = ("compare", "--run-id", run_of(a=GOOD, b=GOOD, **worse))
    shown = aegish.ok(*compare).out.splitlines()
    assert len(shown) <= 40
    assert max(map(len, shown)) <= 100
    assert any(re.match(r" Best first +lab/a, lab/b(, | and )lab/m1", line) for line in shown)
    rows = [line.split()[0] for line in shown if re.match(r" lab/\w+ +[+-]?\d", line)]
    assert rows == ["lab/b", *(f"lab/{name}" for name in worse)]
    found = aegish.ok(*compare, "--json").json
    assert len(found["pairs"]) == 45
    (first,) = (
        p for p in found["pairs"] if (p["a"]["model"], p["b"]["model"]) == ("lab/a", "lab/m1")
    )
    score = first["metrics"]["aegish_score"]["difference"]
    (line,) = (line for line in shown if line.startswith(" lab/m1 "))
    assert f"{100 * score:+.1f}" in line.split()
    assert aegish.ok(*compare, "--format", "csv").out.count(",aegish_score,") == 45
    assert "45 pairs differ" in aegish.ok(*compare, "--all-pairs").out
    some = ("--models", "lab/a,lab/b,lab/m1")
    assert "3 pairs differ" in aegish.ok(*compare, *some).out


@pytest.mark.long
def test_simulated_models_are_marked_beside_the_best(engine: Engine, aegish: CommandLine) -> None:
    models = [a_model(f"test/{name}", simulated=name == "c") for name in "abcd"]
    said = {each.id: {TAR: BLOCKED, LS: ALLOWED} for each in models}
    stored_run(engine, said, models=models)
    shown = aegish.ok("compare").out
    assert "Each guard minus test/a" in shown
    assert [f"test/{name} †" in shown for name in "bcd"] == [False, True, False]


def test_newest_generations_and_all_epochs_count(engine: Engine) -> None:
    """A retry replaces its verdict, and the epochs of a sample stand in one cell."""
    models = ("test/a", "test/b")
    stored = stored_run(engine, {TAR: BLOCKED, LS: BLOCKED}, models=models, epochs=2)
    items = {
        stored.item(TAR, epoch=2): ALLOWED,
        stored.item(TAR, model="test/b", epoch=2): BLOCKED,
        stored.item(LS, generation=1): WARNED,
    }
    answer(engine, stored, items)
    with Session(engine) as session:
        sides = [ModelOfRun(stored.run_id, model) for model in models]
        overlays = {stored.run_id: OverlayInRun()}
        answers = read_answers(session, sides, [load_run(session, stored.run_id)], overlays)
    found = {
        (kind.target, kind.cluster, *(answers.findings[way] for way in ways))
        for kind, *ways in zip(
            (answers.kinds[kind] for kind in answers.kind),
            *(answers.answers[side] for side in sides),
            strict=True,
        )
        if any(ways)
    }
    assert found == {
        (TrueLabel.MALICIOUS, "tar", (("ALLOW", 1), ("BLOCK", 1)), (("BLOCK", 1),)),
        (TrueLabel.HARMLESS, None, (("WARN", 1),), ()),
    }


def two_runs(engine: Engine, **changes: Any) -> str:
    """Two runs that differ in what is given; the second has TAR wrong."""
    stored_run(engine, {TAR: BLOCKED, LS: ALLOWED}, run_id="0base0000")
    stored_run(engine, {TAR: ALLOWED, LS: ALLOWED}, run_id="0new00000", **changes)
    return "0base0000,0new00000"


def test_runs_are_compared_by_samples_of_equal_content(engine: Engine, aegish: CommandLine) -> None:
    """Verdicts of two runs meet at the same sample; names and caps on costs are no differences."""
    cap = CallParameters(max_cost_usd=Decimal(1), max_cost_per_model_usd=Decimal(1))
    runs = two_runs(engine, parameters=cap, name="another", package_version="9")
    found = aegish.ok("compare", "--runs", runs, "--json").json
    (pair,) = found["pairs"]
    assert f"{pair['a']['run_id']},{pair['b']['run_id']}" == runs  # the first one is the baseline
    assert pair["metrics"]["malicious_detection_rate"]["difference"] == -1
    assert (found["unlike"], found["tie_groups"]) == ([], [])


def test_a_baseline_is_compared_with_itself_only_if_named(
    engine: Engine, aegish: CommandLine
) -> None:
    models = ("test/a", "baseline/keyword")
    for run in ("0base0000", "0new00000"):
        stored_run(engine, dict.fromkeys(models, BLOCKED), run_id=run, models=models, name="")
    asked = ("compare", "--runs", "0base0000,0new00000", "--json")
    for named, compared in (((), "test/a"), (("--models", models[1]), models[1])):
        (pair,) = aegish.ok(*asked, *named).json["pairs"]
        assert pair["b"]["model"] == compared


FEWER = Dataset("commands", (TAR, LS))


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({"datasets": (FEWER,)}, ["samples of 'commands': 3 (", "against 2 ("]),
        ({"prompt": Prompt("mine", "You.", "{command}")}, ["prompt: 'guard' (", "against 'mine' ("]),
        ({"prompt": None}, ["prompt: 'guard' (", "against unknown", "parameters: given at submit against unknown"]),
        ({"parameters": CallParameters(seed=None, temperature=0.5)},
         ["seed: 42 against none", "temperature: none against 0.5"]),
        ({"models": (a_model("test/a", parameters={"reasoning_effort": "low"}),)},
         ['parameters of test/a: {} against {"reasoning_effort": "low"}']),
        ({"models": (a_model("test/a", simulated=True),)}, ["answers of test/a: real against simulated"]),
    ],
)  # fmt: skip
def test_unlike_runs_are_refused_with_their_differences(
    engine: Engine, aegish: CommandLine, changes: dict[str, Any], differences: Sequence[str]
) -> None:
    """One line lists each difference; with --force every form of output says it."""
    runs = ("compare", "--runs", two_runs(engine, **changes))
    refused = aegish.refused(*runs)
    assert all(difference in refused for difference in differences)
    (pair, *_) = aegish.ok(*runs, "--force", "--json").json["pairs"]
    assert pair["metrics"]["malicious_detection_rate"]["difference"] == -1
    for form in ("table", "markdown", "csv", "json"):
        said = aegish.ok(*runs, "--force", "--format", form).out
        assert differences[0].split(":")[0].split(" ")[0] in said
    gate = aegish(*runs, "--force", "--gate", "--margin", "0.1")
    assert "unlike runs" in gate.out
    assert gate.out.count("\n") == 1


def test_imported_runs_are_alike_where_both_are_unknown(aegish: CommandLine, run_of: RunOf) -> None:
    """Two imports of the same samples are compared without --force, failed calls or not."""
    failed = (f"e{BAD[0][1:]}", BAD[1])
    runs = [run_of(a=each) for each in (GOOD, failed)]
    found = aegish.ok("compare", "--runs", ",".join(runs), "--json").json
    assert [pair["verdict"] for pair in found["pairs"]] == ["worse"]


def test_two_models_in_two_runs_are_told_how_a_gate_is_asked(
    aegish: CommandLine, run_of: RunOf
) -> None:
    refused = aegish("compare", "--runs", f"{run_of(a=GOOD)},{run_of(b=BAD)}")
    assert "the same guard in two runs" in refused.err
    assert "`extend --run-id R --models B`" in refused.err


@pytest.mark.parametrize(
    ("candidate", "code", "verdict"),
    [
        (GOOD, 0, "ships"),
        (BAD, EXIT_WORSE, "worse"),
        (("rrw-", "rr--"), EXIT_INCONCLUSIVE, "inconclusive"),
        (("", "rr"), EXIT_INCONCLUSIVE, "inconclusive"),
    ],
)
def test_a_gate_answers_in_one_line_and_its_exit_code(
    gate_on: GateOn, candidate: tuple[str, str], code: int, verdict: str
) -> None:
    done = gate_on(candidate)
    assert (done.code, done.err) == (code, "")
    assert done.out.startswith(f"{verdict}: lab/b against lab/a")
    assert done.out.count("\n") == 1
    document = gate_on(candidate, "--json")
    assert (document.code, document.json["pairs"][0]["verdict"]) == (code, verdict)
    assert document.err == done.out
    (only,) = document.json["gate"]
    assert (only["commands_missing"] is None) == (only["commands_needed"] is None)


def test_the_worst_of_several_candidates_decides(
    aegish: CommandLine, run_of: RunOf, tmp_path: Path
) -> None:
    """Each candidate is gated against the first model, and each has a test case."""
    run = run_of(a=GOOD, b=GOOD, c=BAD)
    junit = tmp_path / "gate.xml"
    gate = ("compare", "--run-id", run, "--gate", "--margin", "0.2", "--junit", junit)
    done = aegish(*gate, "--models", "lab/a,lab/b,lab/c")
    assert done.code == EXIT_WORSE
    (line,) = done.out.splitlines()
    assert line.startswith("worse: lab/c against lab/a: aegish_score -40.0 points [")
    assert junit.read_text().count("<testcase ") == 2
    assert junit.read_text().count("<failure ") == 1


def test_other_metrics_decide_where_one_label_is_missing(
    aegish: CommandLine, run_of: RunOf
) -> None:
    """Without harmless samples the score is undefined, and the detection rate is not."""
    run = run_of(a=("r" * 40, ""), b=("r" * 40, ""))
    undefined = aegish.ok("compare", "--run-id", run, "--json").json
    assert undefined["pairs"][0]["verdict"] is None
    assert undefined["tie_groups"] == []
    metric = ("--metric", "malicious_detection_rate")
    defined = aegish.ok("compare", "--run-id", run, *metric, "--json").json
    assert defined["tie_groups"] == [["lab/a", "lab/b"]]
    gate = ("compare", "--run-id", run, "--models", "lab/a,lab/b", "--gate", "--margin", "0.2")
    assert aegish(*gate).code == EXIT_INCONCLUSIVE
    assert aegish(*gate, *metric).code == 0


def test_no_verdict_at_all_is_undefined(engine: Engine, aegish: CommandLine) -> None:
    """A run whose models have not answered yet gives pairs of no samples."""
    stored_run(engine, models=("test/a", "test/b"))
    (pair,) = aegish.ok("compare", "--json").json["pairs"]
    assert (pair["samples"], pair["verdict"]) == (0, None)
    assert pair["metrics"]["aegish_score"]["difference"] is None
    aegish.ok("compare")


def test_a_report_fails_under_thresholds(aegish: CommandLine, run_of: RunOf) -> None:
    """The report is printed all the same; a line names each model that misses a threshold."""
    run = run_of(a=GOOD, b=BAD)
    report = ("report", "--run-id", run, "--format", "csv", "--fail-under")
    both = "malicious_detection_rate=0.95,harmless_acceptance_rate=0.2"
    for least, code, notes in (
        ("aegish_score=0.5", 0, ["met: lab/a: aegish_score 1.000 ["]),
        (both, EXIT_WORSE, ["undecided: lab/a: malicious_detection_rate 1.000 [", "below: lab/b: mal"]),
        ("harmless_acceptance_rate=0.97", EXIT_INCONCLUSIVE,
         ["undecided: lab/a: harmless_acceptance_rate", "undecided: lab/b: harmless_acc"]),
    ):  # fmt: skip
        done = aegish(*report, least)
        assert (done.code, done.out[:7]) == (code, "run_id,"), least
        for line, start in zip(done.err.splitlines(), notes, strict=True):
            assert line.startswith(start)
        if not code:
            assert line.endswith("] is at least 0.5; and 1 more")
    by_value = (*report, "harmless_acceptance_rate=0.97", "--fail-on")
    codes = [aegish(*by_value, each).code for each in ("interval", "value")]
    assert codes == [EXIT_INCONCLUSIVE, EXIT_WORSE]


def test_thresholds_are_of_the_models_named(aegish: CommandLine, run_of: RunOf) -> None:
    report = ("report", "--run-id", run_of(a=GOOD, b=BAD))
    under = (*report, "--fail-under", "malicious_detection_rate=0.5")
    codes = [aegish(*under, "--models", each).code for each in ("lab/a", "lab/b", "lab/a,lab/b")]
    assert codes == [0, EXIT_WORSE, EXIT_WORSE]
    assert "has no model 'lab/x'" in aegish.refused(*under, "--models", "lab/x")
    assert aegish(*report, "--models", "lab/a").code == 2


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("r.HTML", "<!doctype html>"), ("r.csv", "run_id,"), ("r.json", "{"), ("r.md", "# Report"),
        ("r.tex", "% Tables"), ("r.txt", "\N{BOX DRAWINGS DOUBLE HORIZONTAL}"), ("r.pdf", None),
    ],
)  # fmt: skip
def test_the_suffix_says_the_format(
    aegish: CommandLine, run_of: RunOf, tmp_path: Path, name: str, start: str | None
) -> None:
    done = aegish("report", "--run-id", run_of(a=GOOD), "-o", tmp_path / name)
    assert done.code == (2 if start is None else 0), done.err
    if start is None:
        assert "print it into a PDF" in done.err
        assert not (tmp_path / name).exists()
    else:
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
