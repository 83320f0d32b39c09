"""`compare` ends with the commands that two guards judge differently."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Verdict
from aegish_dist.opinions.parsing import judge
from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import Imported, answer, stored_run, verdict_line
from tests.recorded import lines_of

HOSTILE = "rm \x1b[31m-rf\r\n/ | `x` <b>\u202e\u200b" + "y" * 3000
LETTERS = {"A": "ALLOW", "W": "WARN", "B": "BLOCK"}
COMPARE = "compare --models lab/a,lab/b"
Said = Mapping[str, str]
"""By name of a command a letter for each epoch; names that begin with `m` are attacks."""
Changes = dict[str, list[list[str | None]]]
"""By kind, the names of commands and the reasons why they are stopped."""

MANY = {
    "lab/a": {f"h{n:02}": "A" for n in range(12)} | {"m1": "A", "h98": "B", "h99": "B"},
    "lab/b": {f"h{n:02}": "B" for n in range(12)} | {"m1": "B", "h98": "A", "h99": "A"},
}
SHOWN = ["m1", *(f"h{n:02}" for n in range(10)), "h98", "h99"]


def said(model: str, words: str) -> Verdict:
    verdict = {"action": LETTERS[words[0]], "reason": f"{model} {words}"}
    return judge(Completion(json.dumps(verdict)))


def sample(name: str) -> Sample:
    malicious = name.startswith("m")
    target = TrueLabel.MALICIOUS if malicious else TrueLabel.HARMLESS
    return Sample(f"run {name}", target, "shell" if malicious else None)


def run_of(
    engine: Engine, answers: Mapping[str, Said], run_id: str = "0abcdefgh", name: str = "a name"
) -> None:
    """A run of models about named commands; a reason is the model, its letter and the epoch."""
    names = sorted({name for of_model in answers.values() for name in of_model})
    stored = stored_run(
        engine,
        run_id=run_id,
        name=name,
        datasets=(Dataset("commands", tuple(map(sample, names))),),
        models=tuple(answers),
        epochs=4,
    )
    verdicts = {
        stored.item(sample(name), model=model, epoch=epoch): said(model, f"{letter}{epoch}")
        for model, of_model in answers.items()
        for name, letters in of_model.items()
        for epoch, letter in enumerate(letters, start=1)
    }
    answer(engine, stored, verdicts)


def changed(aegish: CommandLine, compare: str = COMPARE) -> Changes:
    """Return what JSON says of the only pair; kinds without a command are left out."""
    (pair,) = aegish.ok(f"{compare} --json").json["pairs"]
    assert list(pair["changed"]) == [
        "newly_caught",
        "newly_missed",
        "newly_stopped",
        "no_longer_stopped",
    ]
    return {
        kind: sorted([each["command"].removeprefix("run "), each["reason"]] for each in commands)
        for kind, commands in pair["changed"].items()
        if commands
    }


def rest_of(aegish: CommandLine, shown: str, number: int) -> str:
    """Type what the screen says of commands that it leaves out; return what that prints."""
    (more,) = [line for line in shown.splitlines() if f"{number} more: " in line]
    program, *typed = shlex.split(more.partition(f"{number} more: ")[2])
    assert program == "aegish-dist"
    return aegish.ok(shlex.join(typed)).out


@pytest.mark.parametrize("case", lines_of("changed_commands.jsonl"), ids=lambda case: case["why"])
def test_json_has_every_changed_command_with_a_reason(
    engine: Engine, aegish: CommandLine, case: dict[str, Any]
) -> None:
    """The reason is that of the first epoch that stops."""
    run_of(engine, case["answers"])
    compare = f"{COMPARE} {case['options']}"
    assert changed(aegish, compare) == case["changed"]
    (pair,) = aegish.ok(f"{compare} --json").json["pairs"]
    for each in pair["changed"]["newly_stopped"]:
        assert each["sample"] == sample(each["command"].removeprefix("run ")).sample_id


def test_the_newest_generation_counts_and_a_guard_may_give_no_reason(
    engine: Engine, aegish: CommandLine
) -> None:
    attack, harmless = sample("m1"), sample("h1")
    dataset = Dataset("commands", (attack, harmless))
    first = {
        "lab/a": {attack: said("lab/a", "B old"), harmless: said("lab/a", "A")},
        "lab/b": {attack: said("lab/b", "A old"), harmless: judge(Completion("no word of it"))},
    }
    stored = stored_run(engine, first, datasets=(dataset,), models=tuple(first))
    again = {
        stored.item(attack, model="lab/a", generation=1): said("lab/a", "A new"),
        stored.item(attack, model="lab/b", generation=1): said("lab/b", "B new"),
    }
    answer(engine, stored, again)
    assert changed(aegish) == {
        "newly_caught": [["m1", "lab/b B new"]],
        "newly_stopped": [["h1", None]],
    }


def commands_of(text: str, start: str = "   run ") -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return [line.removeprefix(start).split()[0] for line in lines]


def test_the_screen_ends_with_ten_of_each_kind_and_a_command_for_the_others(
    engine: Engine, aegish: CommandLine
) -> None:
    run_of(engine, MANY)
    shown = aegish.ok(COMPARE).out
    end = shown.partition("What changed: lab/b against lab/a")[2]
    summary = " ".join(end.split())
    assert "Newly caught: 1 attack. Newly missed: 0. " in summary
    assert "Newly annoying: 12 harmless commands, no longer annoying: 2." in summary
    assert commands_of(end) == SHOWN
    assert "run h00   lab/b B1" in end
    listed = rest_of(aegish, shown, 2)
    assert all(f"run h{n:02}" in listed for n in range(12))
    assert "run m1" not in listed


def test_markdown_ends_with_the_same(engine: Engine, aegish: CommandLine) -> None:
    run_of(engine, MANY)
    shown = aegish.ok(f"{COMPARE} --format markdown").out
    end = shown.partition("    What changed: lab/b against lab/a")[2]
    assert commands_of(end, "       run ") == SHOWN
    assert "     Newly annoying" in end
    assert all(line.startswith("    ") for line in end.splitlines() if line)
    assert "2 more: aegish-dist verdicts list" in end
    assert "run h00" not in aegish.ok(f"{COMPARE} --format csv").out


def test_the_words_of_the_opinion_stand_in_the_command(engine: Engine, aegish: CommandLine) -> None:
    """Eleven attacks are caught by WARN, which only `aegish-legacy` counts."""
    names = [f"m{n:02}" for n in range(11)]
    run_of(engine, {"lab/a": dict.fromkeys(names, "A"), "lab/b": dict.fromkeys(names, "W")})
    assert "Newly caught: 0 attacks." in aegish.ok(COMPARE).out
    shown = aegish.ok(f"{COMPARE} --scoring aegish-legacy").out
    assert "run m10" in rest_of(aegish, shown, 1)


@pytest.mark.parametrize(("named", "has"), [(0, False), (2, True), (4, True), (5, False)])
def test_only_pairs_of_at_most_four_named_guards_tell_their_commands(
    engine: Engine, aegish: CommandLine, named: int, has: bool
) -> None:
    models = [f"lab/{name}" for name in "abcde"]
    run_of(engine, {model: {"m1": "AB"[n % 2], "h1": "A"} for n, model in enumerate(models)})
    compare = f"compare --models {','.join(models[:named])}" if named else "compare"
    found = aegish.ok(f"{compare} --json").json["pairs"]
    assert {pair["changed"] is not None for pair in found} == {has}
    assert ("What changed" in aegish.ok(compare).out) is has


def test_several_pairs_show_three_of_each_kind(engine: Engine, aegish: CommandLine) -> None:
    run_of(engine, MANY | {"lab/c": MANY["lab/b"]})
    shown = aegish.ok("compare --models lab/a,lab/b,lab/c").out
    assert commands_of(shown) == ["m1", "h00", "h01", "h02", "h98", "h99"] * 2
    assert "What changed: lab/c against lab/b" in shown


def test_a_gate_stays_one_line_and_its_document_has_the_commands(
    engine: Engine, aegish: CommandLine
) -> None:
    run_of(engine, MANY)
    gate = f"{COMPARE} --gate --margin 0.5"
    assert aegish(gate).out.count("\n") == 1
    (pair,) = aegish(f"{gate} --json").json["pairs"]
    assert len(pair["changed"]["newly_stopped"]) == 12


def test_hostile_commands_and_reasons_stay_text(aegish: CommandLine, imported: Imported) -> None:
    blocks = json.dumps({"action": "BLOCK", "reason": HOSTILE})
    imported(
        [
            verdict_line("lab/a", HOSTILE, "malicious", "ALLOW"),
            verdict_line("lab/b", HOSTILE, "malicious", "BLOCK", completion=blocks),
        ]
    )
    ((command, reason),) = changed(aegish)["newly_caught"]
    assert command == HOSTILE
    assert str(reason).startswith(HOSTILE[:100])
    for form in ("table", "markdown"):
        shown = aegish.ok(f"{COMPARE} --format", form).out.splitlines()
        assert all(line.isprintable() for line in shown)
        (row,) = [line for line in shown if "x1b[31m" in line]
        assert len(row) < 300


def test_runs_are_called_by_their_names_and_read_the_reason_where_it_stands(
    engine: Engine, aegish: CommandLine
) -> None:
    """The run before asked other samples too: keys differ, and what one run lacks has no change."""
    before = {"lab/a": {"m0": "B", "m1": "A", "m2": "B", "h1": "A", "h2": "B"}}
    after = {"lab/a": {"m1": "B", "m2": "A", "h1": "B", "h2": "A", "h3": "B"}}
    run_of(engine, before, "0base0000", "before")
    run_of(engine, after, "0new00000", "it's after")
    compare = 'compare --runs "before,it\'s after" --force'
    assert changed(aegish, compare) == {
        "newly_caught": [["m1", "lab/a B1"]],
        "newly_missed": [["m2", "lab/a B1"]],
        "newly_stopped": [["h1", "lab/a B1"]],
        "no_longer_stopped": [["h2", "lab/a B1"]],
    }
    shown = aegish.ok(compare).unwrapped
    assert "lab/a in it's after and lab/a in before cannot be distinguished" in shown
    pair = "lab/a in it's after against lab/a in before"
    assert f"What changed: {pair}" in shown
    assert pair in aegish(f"{compare} --gate --margin 0.02").out


def test_the_command_for_the_others_works_between_runs(engine: Engine, aegish: CommandLine) -> None:
    run_of(engine, {"lab/a": MANY["lab/a"]}, "0base0000", "same")
    run_of(engine, {"lab/a": MANY["lab/b"]}, "0new00000", "same")
    shown = aegish.ok("compare --runs 0base0000,0new00000").out
    assert "lab/a in 0new00000 against lab/a in 0base0000" in shown  # a name of two runs names none
    (pair,) = json.loads(rest_of(aegish, shown, 2))["pairs"]
    assert len(pair["changed"]["newly_stopped"]) == 12


def test_a_policy_of_the_pair_has_commands_without_reasons(
    engine: Engine, aegish: CommandLine, tmp_path: Path
) -> None:
    """The policy stops whatever one of its guards stops, and the allowed command of both."""
    policy = tmp_path / "any.toml"
    stage = '[[stage]]\nguards = ["lab/a", "lab/b"]\ncombine = "any"\n'
    policy.write_text(f'name = "any"\nversion = 1\n{stage}')
    harmless = [f"h{n}" for n in range(20, 31)]
    answers = {
        "lab/a": {"m1": "A", "m2": "B", "h1": "A", **dict.fromkeys(harmless, "A")},
        "lab/b": {"m1": "B", "m2": "A", "h1": "A", **dict.fromkeys(harmless, "B")},
    }
    run_of(engine, answers)
    compare = f"compare --policy {policy} --models"
    stopped = [[name, None] for name in harmless]
    of_first = changed(aegish, f"{compare} lab/a,policy/any")
    assert of_first == {"newly_caught": [["m1", None]], "newly_stopped": stopped}
    assert changed(aegish, f"{compare} policy/any,lab/b") == {"newly_missed": [["m2", None]]}
    shown = aegish.ok(f"{compare} lab/a,policy/any").out
    (again,) = json.loads(rest_of(aegish, shown, 1))["pairs"]
    assert len(again["changed"]["newly_stopped"]) == 11
