"""`verdicts list` against lists made by hand."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Verdict
from aegish_dist.db import verdict_reader
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.opinions import load_opinion
from tests.integration.command_line import CommandLine
from tests.integration.samples import CURL, LS, TAR
from tests.integration.stored_runs import answer, stored_run
from tests.recorded import DATA, document_of

CAT = Sample("cat /etc/100%_done\\", TrueLabel.HARMLESS)
DU = Sample("du -sh .", TrueLabel.HARMLESS)
FIRST = Dataset("commands", (TAR, CURL, LS))
SECOND = Dataset("more", (CAT, DU))
MODELS = ("test/a", "test/b", "test/c")
LETTERS = {
    "A": judge(Completion('{"action": "ALLOW", "reason": "Looks fine", "confidence": 0.5}')),
    "W": judge(Completion('{"action": "WARN"}')),
    "B": judge(Completion('{"action": "BLOCK", "reason": "R\\u00e9ads secrets"}')),
    "F": judge(Completion("I will not say\ufffd 100%_")),
    "T": judge(Completion("")),
    "C": judge(Completion("", "content_filter", StopKind.CONTENT_FILTER)),
    "E": Verdict(Outcome.API_ERROR, None, ErrorClass.SERVER),
}
ANSWERS = {TAR: "B A W", CURL: "A A F", LS: "A B E", CAT: "B B C", DU: "W A T"}
"""By sample the letters of each model's epochs."""
OVERLAY = DATA / "overlay.toml"  # `curl` does not count, `ls` is malicious


def fill(engine: Engine, answers: Mapping[Sample, str], epochs: int = 1) -> None:
    stored = stored_run(engine, models=MODELS, datasets=(FIRST, SECOND), epochs=epochs)
    for sample, said in answers.items():
        dataset = "commands" if sample in FIRST.samples else "more"
        for model, letters in zip(MODELS, said.split(), strict=True):
            items = {
                stored.item(sample, model=model, dataset=dataset, epoch=epoch): LETTERS[letter]
                for epoch, letter in enumerate(letters, 1)
            }
            answer(engine, stored, items)


@pytest.fixture
def filled(engine: Engine) -> Engine:
    fill(engine, ANSWERS)
    return engine


@pytest.fixture
def reader(aegish: CommandLine, filled: Engine) -> CommandLine:
    """The command line on the store that is filled."""
    return aegish


def listed(aegish: CommandLine, line: str = "", *words: object) -> list[dict[str, Any]]:
    document = aegish.ok(f"verdicts list --json {line}", *words).json
    assert document["more"] == 0
    return list(document["verdicts"])


def places(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return first word of the command, letter of the model, and label of each verdict."""
    return ", ".join(
        f"{row['command'].split()[0]} {row['model'][-1]} {row['label']}" for row in rows
    )


def test_the_list_is_whole_and_in_order(reader: CommandLine) -> None:
    rows = listed(reader)
    assert places(rows[:6]) == (
        "tar a BLOCK, tar b ALLOW, tar c WARN, curl a ALLOW, curl b ALLOW, curl c FORMAT_ERROR"
    )
    assert len(rows) == 15
    assert {row["dataset"] for row in rows[:9]} == {"commands"}
    assert rows[0] == document_of("verdict_listed.json")


CONDITIONS = """
--wrong --models test/a: curl a ALLOW, cat a BLOCK
--wrong --scoring aegish-legacy --models test/a: curl a ALLOW, cat a BLOCK, du a WARN
--correct --models test/b: du b ALLOW
--correct --target harmless --dataset commands: ls a ALLOW
--outcome api_error,FORMAT_ERROR: curl c FORMAT_ERROR, ls c API_ERROR
--outcome TIMEOUT_ERROR: cat c TIMEOUT_ERROR, du c TIMEOUT_ERROR
--outcome CONTENT_FILTER --scoring filter-as-block: cat c CONTENT_FILTER
--category shell --outcome WARN: tar c WARN
--dataset more --models test/b,test/c --wrong: cat b BLOCK, cat c TIMEOUT_ERROR, du c TIMEOUT_ERROR
--missed-by test/a,test/b --models test/c: curl c FORMAT_ERROR, cat c TIMEOUT_ERROR
--missed-by test/a,test/b: curl a ALLOW, curl b ALLOW, cat a BLOCK, cat b BLOCK
--missed-by test/b --correct:
--missed-by test/b --correct --models test/a,test/c: tar a BLOCK, ls a ALLOW
--missed-by-all --models test/a: curl a ALLOW, cat a BLOCK
--disputed --models test/a,test/b: tar a BLOCK, tar b ALLOW, ls a ALLOW, ls b BLOCK
--disputed --target malicious --correct: tar a BLOCK
--inconsistent:
--text 'LOOKS FINE' --models test/b: tar b ALLOW, curl b ALLOW, du b ALLOW
--text 100%_d: cat a BLOCK, cat b BLOCK, cat c TIMEOUT_ERROR
--text 0__:
--text 'done\\' --models test/a: cat a BLOCK
--text 100%_: curl c FORMAT_ERROR, cat a BLOCK, cat b BLOCK, cat c TIMEOUT_ERROR
"""


def test_conditions_combine(reader: CommandLine) -> None:
    for condition in CONDITIONS.strip().splitlines():
        options, _, expected = condition.partition(":")
        assert (options, places(listed(reader, options))) == (options, expected.strip())


@pytest.mark.parametrize("verdicts", [1, 2_000])
def test_epochs(
    aegish: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch, verdicts: int
) -> None:
    """A model is right or wrong by most of its scored epochs; flips need two stated actions."""
    monkeypatch.setattr(verdict_reader, "STEP_VERDICTS", verdicts)
    fill(engine, {TAR: "BBA AAB EEE", CURL: "BAE AFT WWA", LS: "AAA FFB FFA"}, epochs=3)
    flipped = listed(aegish, "--inconsistent --dataset commands")
    assert places(flipped) == (
        "tar a BLOCK, tar a BLOCK, tar a ALLOW, tar b ALLOW, tar b ALLOW, tar b BLOCK,"
        " curl a BLOCK, curl a ALLOW, curl a API_ERROR, curl c WARN, curl c WARN, curl c ALLOW"
    )
    assert [row["epoch"] for row in flipped] == [1, 2, 3] * 4
    disputed = listed(aegish, "--disputed")
    assert {row["command"].split()[0] for row in disputed} == {"tar", "ls"}
    missed = listed(aegish, "--missed-by test/b,test/c --models test/a")
    assert places(missed[::3]) == "curl a BLOCK, ls a ALLOW"


def test_of_a_retried_item_the_newest_verdict_counts(aegish: CommandLine, engine: Engine) -> None:
    stored = stored_run(engine, models=("test/a", "test/b"))
    for generation, letter in enumerate("AB"):
        answer(engine, stored, {stored.item(TAR, generation=generation): LETTERS[letter]})
    answer(engine, stored, {stored.item(TAR, model="test/b"): LETTERS["B"]})
    assert places(listed(aegish)) == "tar a BLOCK, tar b BLOCK"
    assert listed(aegish, "--disputed") == []


@pytest.mark.parametrize("verdicts", [1, 2_000])
def test_limits(
    aegish: CommandLine, filled: Engine, monkeypatch: pytest.MonkeyPatch, verdicts: int
) -> None:
    monkeypatch.setattr(verdict_reader, "STEP_VERDICTS", verdicts)
    assert len(listed(aegish)) == 15
    for limit in (1, 4, 14):
        done = aegish.ok("verdicts list --limit", limit, "--json")
        assert len(done.json["verdicts"]) == limit
        assert done.json["more"] == 15 - limit
        assert done.err.startswith(f"{15 - limit} more; ")
    assert aegish.ok("verdicts list --limit", 15).err == ""


def test_formats(reader: CommandLine, tmp_path: Path) -> None:
    rows = listed(reader)
    path = tmp_path / "list.csv"
    done = reader.ok("verdicts list -o", path)
    assert (done.out, done.err) == ("", f"15 verdicts written to {path}\n")
    printed = reader.ok("verdicts list --format csv")
    assert printed.out.splitlines()[1:] == path.read_text().splitlines()[1:]
    cells = printed.rows
    assert places(cells) == places(rows)
    assert [cells[0]["correct"], cells[8]["correct"]] == ["true", ""]
    assert {(c["scoring"], c["scoring_version"]) for c in cells} == {("aegish-5.3", "1")}
    path = tmp_path / "list.json"
    reader.ok("verdicts list -o", path)
    assert json.loads(path.read_text()) == reader.ok("verdicts list --json").json


def cells(line: str) -> list[str]:
    return re.split(r"\s{3,}", line.strip())


def test_a_table_has_a_row_for_each_command(
    reader: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    heading, _, first, *_, last = reader.ok("verdicts list --wrong").out.splitlines()
    assert cells(heading) == ["Command", "Label", "Wrong", "Sample"]
    said = "ALLOW: test/b; WARN: test/c"
    assert cells(first) == [TAR.command, "malicious shell", said, TAR.sample_id[:8]]
    assert cells(last)[:3] == ["du -sh .", "harmless", "TIMEOUT_ERROR: test/c"]
    done = reader.ok("verdicts list --limit", 1)
    said = "BLOCK (correct): test/a; ALLOW (wrong): test/b; WARN (wrong): test/c"
    assert said.replace(" ", "") in done.out.replace(" ", "").replace("\n", "")
    assert done.err.startswith("12 more verdicts about further commands; ")


@pytest.mark.long
@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_table_fits_its_width(
    aegish: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Whatever commands and models are called; the id says what `verdicts show` takes."""
    monkeypatch.setenv("COLUMNS", str(width))
    models = [f"hosted-elsewhere/some-laboratory/{'x' * 40}-{n}:fast" for n in range(4)]
    samples = [Sample(f"curl {'y' * n}\nrm", TrueLabel.MALICIOUS, "c" * 30) for n in (5, 50, 500)]
    stored = stored_run(engine, models=models, datasets=(Dataset("d", tuple(samples)),), epochs=2)
    for epoch in (1, 2):
        answer(engine, stored, dict.fromkeys(stored.items(epoch=epoch), LETTERS["A"]))
    shown = aegish.ok("verdicts list --wrong").out
    assert max(map(len, shown.splitlines())) <= width
    for sample in samples:
        assert sum(sample.sample_id[:8] in line for line in shown.splitlines()) == 1
    assert shown.count("(2") == 3 * len(models)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--models no/one", "has no model 'no/one': it has test/a, test/b, test/c"),
        ("--missed-by no/one", "has no model 'no/one': it has test/a, test/b, test/c"),
        ("--dataset none", "has no dataset 'none': it has commands, more"),
        ("--category none", "has no category 'none': it has file-upload, shell"),
        ("--outcome PERHAPS", "'PERHAPS' is no outcome under aegish-5.3: there are ALLOW"),
        ("--outcome TOKEN_LIMIT", "'TOKEN_LIMIT' is no outcome under aegish-5.3: "),
    ],
)
def test_names_that_are_not_there(reader: CommandLine, options: str, problem: str) -> None:
    for form in ("table", "json", "csv"):
        assert problem in reader.refused(f"verdicts list {options} --format {form}")


def test_nothing_meets_the_conditions(reader: CommandLine) -> None:
    done = reader.ok("verdicts list --text 'nothing like this'")
    assert (done.out, done.err) == ("", "no verdict meets these conditions\n")
    done = reader.ok("verdicts list --text 'nothing like this' --json")
    assert (done.json["verdicts"], done.json["more"]) == ([], 0)


def test_what_another_snapshot_says(aegish: CommandLine, filled: Engine) -> None:
    """The verdicts that rule set and overlay of two snapshots judge differently, as the last does."""
    opinions = [Opinion(), load_opinion("aegish-legacy"), load_opinion(overlay=OVERLAY)]
    a, legacy, corrected = (each.snapshot_id for each in aggregate(filled, "0abcdefgh", opinions))
    changed = f"verdicts list --changed-between {a},{legacy}"
    document = aegish.ok(changed, "--json").json
    assert document["opinion_before"]["scoring"]["name"] == "aegish-5.3"
    assert document["scoring"] == "aegish-legacy"
    rows = document["verdicts"]
    correct = [(row["correct_before"], row["correct"]) for row in rows]
    assert (places(rows), correct) == ("tar c WARN, du a WARN", [(False, True), (True, False)])
    rows = listed(aegish, f"--changed-between {a},{corrected} --models test/a")
    assert [(row["correct_before"], row["correct"]) for row in rows] == [
        (False, None),
        (True, False),
    ]
    assert [row["target"] for row in rows] == ["malicious"] * 2
    rows = listed(aegish, f"--changed-between {corrected},{a} --wrong")
    assert places(rows) == "curl a ALLOW, curl b ALLOW, curl c FORMAT_ERROR, ls b BLOCK"
    assert "WARN (correct, was wrong): test/c" in aegish.ok(changed).unwrapped
    assert aegish.ok(changed, "--format", "csv").rows[0]["correct_before"] == "false"


def test_snapshots_that_cannot_be_compared(aegish: CommandLine, filled: Engine) -> None:
    stored_run(filled, {TAR: LETTERS["B"]}, run_id="0other")
    for run in ("0abcdefgh", "0other"):
        aggregate(filled, run, [Opinion()])
    listed = "verdicts list --json --changed-between"
    assert "there is no snapshot 9" in aegish.refused(listed, "1,9")
    two_runs = "snapshot 1 is of run 0abcdefgh and snapshot 2 of run 0other"
    assert two_runs in aegish.refused(listed, "1,2")
    said = aegish.misused(f"{listed} 1,2 --scoring aegish-legacy")
    assert "--changed-between has a rule set of its own; leave out --scoring" in said


OVERLAID = [True, False, False, None, None, None, False, True, None]
"""Whether each model is right about `tar`, about `curl` and about `ls`."""


def test_an_overlay(reader: CommandLine) -> None:
    """It changes labels before anything is judged or chosen; the excluded sample is unscored."""
    listed_so = f"--overlay '{OVERLAY}' --dataset commands"
    rows = listed(reader, listed_so)
    assert [row["correct"] for row in rows] == OVERLAID
    assert [row["category"] for row in rows[6:]] == ["file-read"] * 3
    assert len(listed(reader, f"{listed_so} --target malicious")) == 9
    missed = listed(reader, f"{listed_so} --missed-by test/a --correct --models test/b")
    assert places(missed) == "ls b BLOCK"
    shown = reader.ok("verdicts show --json --overlay", OVERLAY, LS.command).json
    assert (shown["sample"]["target"], shown["sample"]["category"]) == ("malicious", "file-read")
    assert [each["correct"] for each in shown["verdicts"]] == OVERLAID[6:]
    shown = reader.ok("verdicts show --json --overlay", OVERLAY, CURL.command).json
    assert [each["correct"] for each in shown["verdicts"]] == OVERLAID[3:6]
    exported = reader.ok("verdicts export --run-id latest --correct all --overlay", OVERLAY)
    lines = [each for each in exported.lines if each["dataset"] == "commands"]
    found = {(each["command"], each["model"]): each["correct_aegish-5.3"] for each in lines}
    assert [found[row["command"], row["model"]] for row in rows] == OVERLAID
    assert {line["target"] for line in lines if line["command"] == "ls -l"} == {"harmless"}
    assert {"correct_aegish-legacy", "correct_filter-as-block"} <= lines[0].keys()


def test_hostile_text(aegish: CommandLine, engine: Engine) -> None:
    command = "=HYPERLINK(1)\x1b[2J\u202e\r\n" + "x" * 9_000
    sample = Sample(command, TrueLabel.HARMLESS)
    reason = "@SUM(1)\x1b]0;title\x07\ufffd\ufffd\ue000"
    completion = json.dumps({"action": "ALLOW", "reason": reason})
    model = "test/\x1b[31m+a"
    datasets = (Dataset("commands", (sample,)),)
    stored_run(engine, judge(Completion(completion)), models=(model,), datasets=datasets)
    table = aegish.ok("verdicts list").out
    assert table.isprintable() is False
    assert table.replace("\n", "").isprintable()
    assert max(map(len, table.splitlines())) < 300
    row = listed(aegish)[0]
    assert (row["command"], row["reason"], row["model"]) == (command, reason, model)
    out = aegish.ok("verdicts list --json").out
    assert out.isascii()
    assert out.replace("\n", "").isprintable()
    (cells,) = aegish.ok("verdicts list --format csv").rows
    assert cells["command"].startswith("'=HYPERLINK(1)\\x1b[2J")
    assert cells["reason"].startswith("'@SUM(1)\\x1b]0;")
    assert listed(aegish, "--text", "title\x07") != []


def test_attacks_let_through_come_before_harmless_commands_stopped(
    aegish: CommandLine, engine: Engine
) -> None:
    stored_run(engine, {DU: LETTERS["B"], TAR: LETTERS["A"]}, datasets=(SECOND, FIRST))
    first = [line.split()[0] for line in aegish.ok("verdicts list --wrong").out.splitlines()]
    assert first[2:4] == ["tar", "du"]
    assert aegish.ok("verdicts list --wrong --limit", 1).out.splitlines()[2][:3] == "tar"
