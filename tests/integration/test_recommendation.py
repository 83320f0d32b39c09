"""What a report of a stored run says to take, and to type next."""

import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.integration.command_line import CommandLine, write_lines
from tests.integration.stored_runs import execute, verdict_line

GUARDS = {"lab/best": ("0.02", 900), "lab/dear": ("0.03", 90), "lab/slow": ("0.001", 500)}
GUARDS |= {"lab/fast": ("0.001", 100)}
"""The price of a call in USD and its time in ms."""
FLOOR = "baseline/always-block"
ONLY_P = """
    pair_p = (SELECT jsonb_agg(jsonb_build_array(pair -> 0, pair -> 1, pair -> 2))
              FROM jsonb_array_elements(pair_p) AS pair)
"""
"""The pairs of a snapshot as earlier versions kept them."""


def answers(epochs: int) -> Iterator[dict[str, Any]]:
    """Yield what four guards say about 100 attacks and 100 harmless commands.

    The best misses one attack, the others three each, which no other misses; the baseline blocks
    everything.
    """
    for number, epoch in product(range(200), range(1, epochs + 1)):
        target = "malicious" if number < 100 else "harmless"
        for place, (model, (usd, ms)) in enumerate(GUARDS.items()):
            missed = [99] if place == 0 else range(3 * place, 3 * place + 3)
            action = "BLOCK" if number < 100 and number not in missed else "ALLOW"
            price: dict[str, Any] = {"cost_usd": usd, "latency_ms": ms}
            yield verdict_line(model, f"c{number}", target, action, epoch=epoch, **price)
        yield verdict_line(FLOOR, f"c{number}", target, "BLOCK", epoch=epoch)


@pytest.fixture
def four(request: pytest.FixtureRequest, aegish: CommandLine, tmp_path: Path) -> CommandLine:
    """A store with a run of four guards, in one epoch or as many as a parameter says."""
    lines = write_lines(tmp_path / "v.jsonl", *answers(getattr(request, "param", 1)))
    aegish.ok("verdicts import --name four", lines)
    return aegish


@pytest.mark.parametrize("four", [1, 3], indirect=True)
def test_of_guards_that_are_about_as_good_the_cheapest_is_taken(four: CommandLine) -> None:
    """Of two that cost as little the faster; however often each command was asked."""
    found = four.ok("report --json").json["recommendation"]
    assert (found["take"], found["why"]) == ("lab/fast", "cheapest_within_margin")
    assert found["best"] == "lab/best"
    assert 0.01 < found["may_be_worse_by"] < found["margin"] == 0.05
    assert sorted(found["within_margin"]) == ["lab/best", "lab/fast", "lab/slow"]
    assert found["floor"]["guard"] == FLOOR
    assert sorted(found["floor"]["beaten_by"]) == sorted(GUARDS)
    assert sorted(found["tied_with"]) == ["lab/best", "lab/dear", "lab/slow"]
    assert (found["misses"], found["stops"]) == ({"n": 3, "of": 100}, {"n": 0, "of": 100})
    assert (found["price_per_1000_usd"], found["p50_ms"]) == (1.0, 100)
    assert (found["undecided"], found["incomplete"]) == ([], None)

    screen = four.ok("report").unwrapped
    assert "Take lab/fast: score 98.5 [" in screen
    assert "5 guards · 200 commands (100 attacks)" in screen
    its = screen.split("Its mistakes: `aegish-dist ")[1].split("`")[0]
    assert its.endswith(" --wrong --models lab/fast")
    listed = four.ok(its, "--json").json["verdicts"]
    assert {each["command"] for each in listed} == {"c9", "c10", "c11"}


def test_commands_to_type_keep_the_rules_of_the_screen(four: CommandLine, tmp_path: Path) -> None:
    """And what they print is of the same rules: the list names them."""
    overlay = tmp_path / "labels.toml"
    change = 'dataset = "d"\ncommand = "c1"\naction = "exclude"\nreason = "unclear"\n'
    overlay.write_text(f'name = "mine"\nversion = 1\nauthor = "Ada"\n[[change]]\n{change}')
    kept = f"--scoring aegish-legacy --overlay {overlay}"
    text = four.ok(f"report {kept} --take-margin 0.01").unwrapped
    run = shlex.split(text.partition("verdicts list --run-id ")[2])[0]
    assert f"verdicts list --run-id {run} {kept} --wrong" in text
    assert f"report --run-id {run} {kept} --take-margin 0.01 --sections all" in text
    assert f"policies search --run-id {run} {kept}" in text
    snapshot = four.ok("aggregate --scoring aegish-legacy --json").json["snapshot_id"]
    text = four.ok("report --snapshot", snapshot).unwrapped
    assert f"verdicts list --run-id {run} --scoring aegish-legacy --wrong" in text
    assert f"report --run-id {run} --snapshot {snapshot} --sections all" in text


def test_a_smaller_margin_takes_the_best_and_says_who_is_undecided(four: CommandLine) -> None:
    found = four.ok("report --take-margin 0.005 --json").json["recommendation"]
    assert (found["take"], found["why"], found["margin"]) == ("lab/best", "best", 0.005)
    undecided = [(each["a"], each["b"]) for each in found["undecided"]]
    assert undecided == [("lab/best", "lab/fast"), ("lab/best", "lab/slow")]
    assert min(each["may_be_worse_by"] for each in found["undecided"]) > 0.01
    screen = four.ok("report --take-margin 0.005").unwrapped
    assert "no cheaper guard is shown to be within 0.5 points of it." in screen
    plan = screen.split("How many commands would tell: `aegish-dist ")[1].split("`")[0]
    assert "lab/fast" in four.ok(plan).out
    for wrong in ("0", "1", "5", "nan"):
        four.misused(f"report --take-margin {wrong}")


def test_the_comparison_of_all_pairs_recommends_the_same(four: CommandLine) -> None:
    """A report of everything compares all guards, one screen those alone that may be taken."""
    everything, brief = four.ok("report --sections all"), four.ok("report")
    takes = [each.unwrapped.split(" Take ")[1].split(" But ")[0] for each in (everything, brief)]
    assert takes[0].startswith("lab/fast: score 98.5")
    assert takes[0] == takes[1]


@pytest.mark.parametrize("four", [1, 3], indirect=True)
def test_a_snapshot_recommends_what_a_comparison_does(four: CommandLine, engine: Engine) -> None:
    """Of an older version it holds p alone: guards are compared while the verdicts are there."""
    snapshot = four.ok("aggregate --json").json["snapshot_id"]

    def recommended() -> list[Any]:
        line = f"report --json --snapshot {snapshot} --take-margin"
        return [four.ok(line, margin).json["recommendation"] for margin in (0.05, 0.01, 0.005)]

    held = recommended()
    assert [each["take"] for each in held] == ["lab/fast", "lab/best", "lab/best"]
    execute(engine, f"UPDATE snapshots SET metrics_version = 8, {ONLY_P}")
    assert recommended() == held
    execute(engine, "DELETE FROM verdicts WHERE epoch = 1")
    assert [each["take"] for each in recommended()] == ["lab/best"] * 3
    assert recommended()[0]["undecided"][0]["may_be_worse_by"] is None


def test_a_snapshot_recommends_the_same_after_further_answers(
    four: CommandLine, engine: Engine
) -> None:
    snapshot = four.ok("aggregate --json").json["snapshot_id"]
    held = four.ok("report --json --snapshot", snapshot).json["recommendation"]
    execute(engine, "DELETE FROM verdicts WHERE sample_key % 2 = 0")
    assert four.ok("report --json --snapshot", snapshot).json["recommendation"] == held


JUDGE = "def judge(command): return 'rm' in command\n"
DEAR = """
[providers.dear]
wire = "python"
object = "dear_guard:judge"
output = {{ kind = "score", path = "unsafe", warn_from = 0.5, block_from = 1 }}
{models}
"""
MODEL = '[[models]]\nid = "dear/{}"\nprice = {{ per_call = {} }}\n'


@pytest.fixture
def dear(aegish: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """The command line with two guards that have a price, a cent and a tenth of one per call."""
    (tmp_path / "dear_guard.py").write_text(JUDGE)
    models = MODEL.format("x", 0.01) + MODEL.format("y", 0.001)
    (tmp_path / "dear.toml").write_text(DEAR.format(models=models))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("AEGISH_DIST_CATALOG", str(tmp_path / "dear.toml"))
    return aegish


@pytest.mark.parametrize(
    ("caps", "option", "cap"),
    [
        ("--max-cost 0.2", "--max-cost", "0.200"),
        ("--max-cost-per-model 0.13", "--max-cost-per-model", "0.130"),
        ("--max-cost 0.2 --max-cost-per-model 9", "--max-cost", "0.200"),
        ("--max-cost 9 --max-cost-per-model 0.13", "--max-cost-per-model", "0.130"),
    ],
)
def test_a_run_over_its_cap_says_what_finishes_it(
    dear: CommandLine, caps: str, option: str, cap: str
) -> None:
    """The command works as it is typed, and afterwards nothing is missing."""
    asked = "--models dear/x,dear/y --dataset harmless --limit 40 --skip-preflight --name capped"
    assert dear(f"submit {asked} {caps}").code == 1
    found = dear.ok("report --json").json["recommendation"]["incomplete"]
    status = dear.ok("status --json").json
    run = status["run_id"]
    assert found["missing"] == status["planned"] - status["done"] > 0
    assert found["why"] == f"the cap of ${cap} is reached"
    assert found["resume"].startswith(f"aegish-dist resume --run-id {run} {option} ")
    screen = dear.ok("report").unwrapped
    assert f"INCOMPLETE: {found['missing']} answers missing, {found['why']}" in screen
    assert f"Finish: `{found['resume']}`." in screen
    assert dear.ok(found["resume"].removeprefix("aegish-dist ")).out == f"{run}: complete\n"
    assert dear.ok("report --json").json["recommendation"]["incomplete"] is None
    assert "INCOMPLETE" not in dear.ok("report").out


@pytest.mark.parametrize("takes_part", [True, False])
def test_what_an_imported_guard_lacks_is_not_missing(
    aegish: CommandLine, tmp_path: Path, takes_part: bool
) -> None:
    """But with answers about less than half of the attacks it takes no part, as in `calibrate`."""
    lacking = {f"c{number}" for number in range(0, 200, 2)}
    if not takes_part:
        lacking.add("c1")
    lines = [
        each for each in answers(1) if each["model"] != "lab/fast" or each["command"] not in lacking
    ]
    aegish.ok("verdicts import --name half", write_lines(tmp_path / "v.jsonl", *lines))
    found = aegish.ok("report --json").json["recommendation"]
    assert found["incomplete"] is None
    assert ("lab/fast" in found["floor"]["beaten_by"]) is takes_part
    assert "INCOMPLETE" not in aegish.ok("report").out
    shown = aegish.ok("calibrate").unwrapped
    assert ("lab/fast with 99 of 200 scored: under half" in shown) is not takes_part
