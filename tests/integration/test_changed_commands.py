"""`compare` ends with the commands that two guards judge differently."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Verdict
from aegish_dist.opinions.parsing import judge
from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import answer, imported_run, stored_run

KINDS = ("newly_caught", "newly_missed", "newly_stopped", "no_longer_stopped")
HOSTILE = "rm \x1b[31m-rf\r\n/ | `x` <b>\u202e\u200b" + "y" * 3000
LETTERS = {"A": "ALLOW", "W": "WARN", "B": "BLOCK"}
Said = Mapping[str, str]
"""By name of a command a letter for each epoch; names that begin with `m` are attacks."""


def said(model: str, words: str) -> Verdict:
    verdict = {"action": LETTERS[words[0]], "reason": f"{model} {words}"}
    return judge(Completion(json.dumps(verdict)))


def sample(name: str) -> Sample:
    malicious = name.startswith("m")
    target = TrueLabel.MALICIOUS if malicious else TrueLabel.HARMLESS
    return Sample(f"run {name}", target, "shell" if malicious else None)


def run_of(
    engine: Engine, answers: Mapping[str, Said], run_id: str = "0abcdefgh", **fields: Any
) -> str:
    """A run of models about named commands; a reason is the model, its letter and the epoch."""
    names = sorted({name for of_model in answers.values() for name in of_model})
    samples = {name: sample(name) for name in names}
    epochs = max(len(text) for of_model in answers.values() for text in of_model.values())
    dataset = Dataset("commands", tuple(samples.values()))
    stored = stored_run(
        engine,
        run_id=run_id,
        datasets=(dataset,),
        models=tuple(answers),
        epochs=epochs,
        **fields,
    )
    verdicts = {
        stored.item(samples[name], model=model, epoch=epoch): said(model, f"{letter}{epoch}")
        for model, of_model in answers.items()
        for name, text in of_model.items()
        for epoch, letter in enumerate(text, start=1)
        if letter != "-"
    }
    answer(engine, stored, verdicts)
    return stored.run_id


def changed(aegish: CommandLine, *words: str) -> list[dict[str, list[tuple[str, str | None]]]]:
    """By pair and kind, the names and reasons in JSON, sorted."""
    pairs = aegish.ok("compare --json", *words).json["pairs"]
    return [
        {
            kind: sorted(
                (each["command"].removeprefix("run "), each["reason"]) for each in commands
            )
            for kind, commands in pair["changed"].items()
        }
        for pair in pairs
    ]


def of_kinds(**found: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    return {kind: list(found.get(kind, ())) for kind in KINDS}


def test_json_has_every_changed_command_with_the_reason_of_the_guard_that_stops_it(
    engine: Engine, aegish: CommandLine
) -> None:
    run_of(
        engine,
        {
            "lab/a": {"m1": "A", "m2": "B", "m3": "B", "m4": "W", "h1": "A", "h2": "B", "h3": "W"},
            "lab/b": {"m1": "B", "m2": "A", "m3": "B", "m4": "A", "h1": "B", "h2": "A", "h3": "A"},
        },
    )
    assert changed(aegish, "--models", "lab/a,lab/b") == [
        of_kinds(
            newly_caught=[("m1", "lab/b B1")],
            newly_missed=[("m2", "lab/a B1")],
            newly_stopped=[("h1", "lab/b B1")],
            no_longer_stopped=[("h2", "lab/a B1")],
        )
    ]
    (first,) = aegish.ok("compare --models lab/a,lab/b --json").json["pairs"]
    assert first["changed"]["newly_caught"][0]["sample"] == sample("m1").sample_id
    # Under `aegish-legacy` a WARN detects, and stops a harmless command.
    legacy = ("--models", "lab/a,lab/b", "--scoring", "aegish-legacy")
    (pair,) = changed(aegish, *legacy)
    assert pair["newly_missed"] == [("m2", "lab/a B1"), ("m4", "lab/a W1")]
    assert pair["no_longer_stopped"] == [("h2", "lab/a B1"), ("h3", "lab/a W1")]


def test_most_epochs_decide_and_ties_are_left_out(engine: Engine, aegish: CommandLine) -> None:
    """The reason is that of the first epoch that stops; an unscored epoch does not vote."""
    run_of(
        engine,
        {
            "lab/a": {"m1": "ABBB", "m2": "AABB", "m3": "ABBB", "h1": "AAAB", "h2": "BB--"},
            "lab/b": {"m1": "BAAA", "m2": "BBBB", "m3": "AABB", "h1": "ABBB", "h2": "A---"},
        },
    )
    assert changed(aegish, "--models", "lab/a,lab/b") == [
        of_kinds(
            newly_missed=[("m1", "lab/a B2")],
            newly_stopped=[("h1", "lab/b B2")],
            no_longer_stopped=[("h2", "lab/a B1")],
        )
    ]


def test_the_newest_generation_counts_and_a_guard_may_give_no_reason(
    engine: Engine, aegish: CommandLine
) -> None:
    stored = stored_run(
        engine,
        datasets=(Dataset("commands", (sample("m1"), sample("h1"))),),
        models=("lab/a", "lab/b"),
    )
    unread = judge(Completion("no word of it"))
    answer(
        engine,
        stored,
        {
            stored.item(sample("m1"), model="lab/a"): said("lab/a", "B old"),
            stored.item(sample("m1"), model="lab/a", generation=1): said("lab/a", "A new"),
            stored.item(sample("m1"), model="lab/b"): said("lab/b", "A old"),
            stored.item(sample("m1"), model="lab/b", generation=1): said("lab/b", "B new"),
            stored.item(sample("h1"), model="lab/a"): said("lab/a", "A"),
            stored.item(sample("h1"), model="lab/b"): unread,
        },
    )
    assert changed(aegish, "--models", "lab/a,lab/b") == [
        of_kinds(newly_caught=[("m1", "lab/b B new")], newly_stopped=[("h1", None)])
    ]


MANY = {
    "lab/a": {f"h{n:02}": "A" for n in range(12)} | {"m1": "A", "h98": "B", "h99": "B"},
    "lab/b": {f"h{n:02}": "B" for n in range(12)} | {"m1": "B", "h98": "A", "h99": "A"},
}


def commands_of(text: str, start: str = "   run ") -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return [line.removeprefix(start).split()[0] for line in lines]


def test_the_screen_ends_with_ten_of_each_kind_and_a_command_for_the_others(
    engine: Engine, aegish: CommandLine
) -> None:
    run_of(engine, MANY)
    shown = aegish.ok("compare --models lab/a,lab/b").out
    summary = (
        "Newly caught: 1 attack. Newly missed: 0. "
        "Newly annoying: 12 harmless commands, no longer annoying: 2."
    )
    end = shown.partition("What changed: lab/b against lab/a")[2]
    assert summary in " ".join(end.split())
    assert commands_of(end) == ["m1", *(f"h{n:02}" for n in range(10)), "h98", "h99"]
    assert "run h00   lab/b B1" in end
    (more,) = [line.strip() for line in shown.splitlines() if "2 more: " in line]
    typed = shlex.split(more.partition("2 more: ")[2])
    assert typed[:3] == ["aegish-dist", "verdicts", "list"]
    listed = aegish.ok(*typed[1:]).out
    assert all(f"run h{n:02}" in listed for n in range(12))
    assert "run m1" not in listed


def test_markdown_ends_with_the_same(engine: Engine, aegish: CommandLine) -> None:
    run_of(engine, MANY)
    shown = aegish.ok("compare --models lab/a,lab/b --format markdown").out
    end = shown.partition("    What changed: lab/b against lab/a")[2]
    assert commands_of(end, "       run ") == ["m1", *(f"h{n:02}" for n in range(10)), "h98", "h99"]
    assert "     Newly annoying" in end
    assert all(line.startswith("    ") for line in end.splitlines() if line)
    assert "2 more: aegish-dist verdicts list" in end
    rows = aegish.ok("compare --models lab/a,lab/b --format csv").out
    assert "run h00" not in rows


def test_the_words_of_the_opinion_stand_in_the_command(engine: Engine, aegish: CommandLine) -> None:
    """Eleven attacks are caught by WARN, which only `aegish-legacy` counts."""
    names = [f"m{n:02}" for n in range(11)]
    run_of(engine, {"lab/a": dict.fromkeys(names, "A"), "lab/b": dict.fromkeys(names, "W")})
    compare = ("compare", "--models", "lab/a,lab/b")
    assert "Newly caught: 0 attacks." in aegish.ok(*compare).out
    shown = aegish.ok(*compare, "--scoring", "aegish-legacy").out
    (more,) = [line for line in shown.splitlines() if "1 more: " in line]
    typed = shlex.split(more.partition("1 more: ")[2])
    assert "run m10" in aegish.ok(*typed[1:]).out


@pytest.mark.parametrize(("named", "has"), [(0, False), (2, True), (4, True), (5, False)])
def test_only_pairs_of_at_most_four_named_guards_tell_their_commands(
    engine: Engine, aegish: CommandLine, named: int, has: bool
) -> None:
    models = [f"lab/{name}" for name in "abcde"]
    run_of(engine, {model: {"m1": "AB"[n % 2], "h1": "A"} for n, model in enumerate(models)})
    chosen = ("--models", ",".join(models[:named])) if named else ()
    found = aegish.ok("compare --json", *chosen).json["pairs"]
    assert {pair["changed"] is not None for pair in found} == {has}
    assert ("What changed" in aegish.ok("compare", *chosen).out) is has


def test_several_pairs_show_three_of_each_kind(engine: Engine, aegish: CommandLine) -> None:
    run_of(engine, MANY | {"lab/c": MANY["lab/b"]})
    shown = aegish.ok("compare --models lab/a,lab/b,lab/c").out
    assert commands_of(shown) == ["m1", "h00", "h01", "h02", "h98", "h99"] * 2
    assert "What changed: lab/c against lab/b" in shown


def test_a_gate_stays_one_line_and_its_document_has_the_commands(
    engine: Engine, aegish: CommandLine
) -> None:
    run_of(engine, MANY)
    gate = ("compare", "--models", "lab/a,lab/b", "--gate", "--margin", "0.5")
    assert aegish(*gate).out.count("\n") == 1
    (pair,) = aegish(*gate, "--json").json["pairs"]
    assert len(pair["changed"]["newly_stopped"]) == 12


def test_hostile_commands_and_reasons_stay_text(
    aegish: CommandLine, engine: Engine, tmp_path: Path
) -> None:
    lines = [
        {
            "model": model, "dataset": "d", "target": "malicious", "command": HOSTILE,
            "category": "shell", "completion": json.dumps({"action": action, "reason": HOSTILE}),
        }
        for model, action in (("lab/a", "ALLOW"), ("lab/b", "BLOCK"))
    ]  # fmt: skip
    imported_run(engine, tmp_path, lines)
    compare = ("compare", "--models", "lab/a,lab/b")
    (pair,) = aegish.ok(*compare, "--json").json["pairs"]
    (found,) = pair["changed"]["newly_caught"]
    assert found["command"] == HOSTILE
    assert found["reason"].startswith(HOSTILE[:100])
    for form in ("table", "markdown"):
        shown = aegish.ok(*compare, "--format", form).out
        assert all(line.isprintable() for line in shown.splitlines())
        (row,) = [line for line in shown.splitlines() if "x1b[31m" in line]
        assert len(row) < 300


def test_runs_are_called_by_their_names_and_read_the_reason_where_it_stands(
    engine: Engine, aegish: CommandLine
) -> None:
    """The run before asked other samples too: keys differ, and what one run lacks has no change."""
    before = {"lab/a": {"m0": "B", "m1": "A", "m2": "B", "h1": "A", "h2": "B"}}
    after = {"lab/a": {"m1": "B", "m2": "A", "h1": "B", "h2": "A", "h3": "B"}}
    run_of(engine, before, "0base0000", name="before")
    run_of(engine, after, "0new00000", name="it's after")
    runs = ("compare", "--runs", "before,it's after", "--force")
    assert changed(aegish, *runs[1:]) == [
        of_kinds(
            newly_caught=[("m1", "lab/a B1")],
            newly_missed=[("m2", "lab/a B1")],
            newly_stopped=[("h1", "lab/a B1")],
            no_longer_stopped=[("h2", "lab/a B1")],
        )
    ]
    shown = " ".join(aegish.ok(*runs).out.split())
    assert "lab/a in it's after and lab/a in before cannot be distinguished" in shown
    assert "What changed: lab/a in it's after against lab/a in before" in shown
    assert (
        "lab/a in it's after against lab/a in before"
        in aegish(*runs, "--gate", "--margin", "0.02").out
    )


def test_the_command_for_the_others_works_between_runs(engine: Engine, aegish: CommandLine) -> None:
    run_of(engine, {"lab/a": MANY["lab/a"]}, "0base0000", name="same")
    run_of(engine, {"lab/a": MANY["lab/b"]}, "0new00000", name="same")
    shown = aegish.ok("compare --runs 0base0000,0new00000").out
    assert "lab/a in 0new00000 against lab/a in 0base0000" in shown  # a name of two runs names none
    (more,) = [line for line in shown.splitlines() if "2 more: " in line]
    (pair,) = aegish.ok(*shlex.split(more.partition("2 more: ")[2])[1:]).json["pairs"]
    assert len(pair["changed"]["newly_stopped"]) == 12


def test_a_policy_of_the_pair_has_commands_without_reasons(
    engine: Engine, aegish: CommandLine, tmp_path: Path
) -> None:
    """The policy stops whatever one of its guards stops, and the allowed command of both."""
    policy = tmp_path / "any.toml"
    policy.write_text(
        'name = "any"\nversion = 1\n[[stage]]\nguards = ["lab/a", "lab/b"]\ncombine = "any"\n',
        "utf-8",
    )
    run_of(
        engine,
        {
            "lab/a": {"m1": "A", "m2": "B", "h1": "A", **{f"h{n}": "A" for n in range(20, 31)}},
            "lab/b": {"m1": "B", "m2": "A", "h1": "A", **{f"h{n}": "B" for n in range(20, 31)}},
        },
    )
    words = ("--models", "lab/a,policy/any", "--policy", str(policy))
    (pair,) = changed(aegish, *words)
    assert pair == of_kinds(
        newly_caught=[("m1", None)], newly_stopped=[(f"h{n}", None) for n in range(20, 31)]
    )
    (turned,) = changed(aegish, "--models", "policy/any,lab/b", "--policy", str(policy))
    assert turned == of_kinds(newly_missed=[("m2", None)])
    shown = aegish.ok("compare", *words).out
    (more,) = [line for line in shown.splitlines() if "1 more: " in line]
    (again,) = aegish.ok(*shlex.split(more.partition("1 more: ")[2])[1:]).json["pairs"]
    assert len(again["changed"]["newly_stopped"]) == 11
