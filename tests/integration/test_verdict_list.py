"""`verdicts list` against lists made by hand."""

import csv
import io
import json
import re
from collections.abc import Mapping
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
from tests.integration.stored_runs import a_model, answer, stored_run
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
ANSWERS = {
    TAR: {"test/a": "B", "test/b": "A", "test/c": "W"},
    CURL: {"test/a": "A", "test/b": "A", "test/c": "F"},
    LS: {"test/a": "A", "test/b": "B", "test/c": "E"},
    CAT: {"test/a": "B", "test/b": "B", "test/c": "C"},
    DU: {"test/a": "W", "test/b": "A", "test/c": "T"},
}
"""By sample and model the letters of its epochs."""
OVERLAY = DATA / "overlay.toml"  # `curl` does not count, `ls` is malicious


def fill(engine: Engine, answers: Mapping[Sample, Mapping[str, str]], epochs: int = 1) -> None:
    stored = stored_run(engine, models=MODELS, datasets=(FIRST, SECOND), epochs=epochs)
    for sample, by_model in answers.items():
        dataset = "commands" if sample in FIRST.samples else "more"
        for model, letters in by_model.items():
            items = {
                stored.item(sample, model=model, dataset=dataset, epoch=epoch): LETTERS[letter]
                for epoch, letter in enumerate(letters, 1)
            }
            answer(engine, stored, items)


@pytest.fixture
def filled(engine: Engine) -> Engine:
    fill(engine, ANSWERS)
    return engine


def listed(aegish: CommandLine, *arguments: object) -> list[dict[str, Any]]:
    document = aegish.ok("verdicts list", *arguments, "--json").json
    assert document["more"] == 0
    return list(document["verdicts"])


def places(rows: list[dict[str, Any]]) -> list[str]:
    """Return first word of the command, letter of the model, and label of each verdict."""
    return [f"{row['command'].split()[0]} {row['model'][-1]} {row['label']}" for row in rows]


@pytest.mark.usefixtures("filled")
def test_the_list_is_whole_and_in_order(aegish: CommandLine) -> None:
    rows = listed(aegish)
    assert places(rows[:6]) == [
        "tar a BLOCK", "tar b ALLOW", "tar c WARN", "curl a ALLOW", "curl b ALLOW",
        "curl c FORMAT_ERROR",
    ]  # fmt: skip
    assert len(rows) == 15
    assert {row["dataset"] for row in rows[:9]} == {"commands"}
    assert rows[0] == document_of("verdict_listed.json")


CONDITIONS: list[tuple[list[str], list[str]]] = [
        (["--wrong", "--models", "test/a"], ["curl a ALLOW", "cat a BLOCK"]),
        (
            ["--wrong", "--scoring", "aegish-legacy", "--models", "test/a"],
            ["curl a ALLOW", "cat a BLOCK", "du a WARN"],
        ),
        (["--correct", "--models", "test/b"], ["du b ALLOW"]),
        (["--correct", "--target", "harmless", "--dataset", "commands"], ["ls a ALLOW"]),
        (["--outcome", "api_error,FORMAT_ERROR"], ["curl c FORMAT_ERROR", "ls c API_ERROR"]),
        (["--outcome", "TIMEOUT_ERROR"], ["cat c TIMEOUT_ERROR", "du c TIMEOUT_ERROR"]),
        (["--outcome", "CONTENT_FILTER", "--scoring", "filter-as-block"], ["cat c CONTENT_FILTER"]),
        (["--category", "shell", "--outcome", "WARN"], ["tar c WARN"]),
        (["--dataset", "more", "--models", "test/b,test/c", "--wrong"],
         ["cat b BLOCK", "cat c TIMEOUT_ERROR", "du c TIMEOUT_ERROR"]),
        (["--missed-by", "test/a,test/b", "--models", "test/c"],
         ["curl c FORMAT_ERROR", "cat c TIMEOUT_ERROR"]),
        (["--missed-by", "test/a,test/b"],
         ["curl a ALLOW", "curl b ALLOW", "cat a BLOCK", "cat b BLOCK"]),
        (["--missed-by", "test/b", "--correct"], []),
        (["--missed-by", "test/b", "--correct", "--models", "test/a,test/c"],
         ["tar a BLOCK", "ls a ALLOW"]),
        (["--missed-by-all", "--models", "test/a"], ["curl a ALLOW", "cat a BLOCK"]),
        (["--disputed", "--models", "test/a,test/b"],
         ["tar a BLOCK", "tar b ALLOW", "ls a ALLOW", "ls b BLOCK"]),
        (["--disputed", "--target", "malicious", "--correct"], ["tar a BLOCK"]),
        (["--inconsistent"], []),
        (["--text", "LOOKS FINE", "--models", "test/b"],
         ["tar b ALLOW", "curl b ALLOW", "du b ALLOW"]),
        (["--text", "100%_d"], ["cat a BLOCK", "cat b BLOCK", "cat c TIMEOUT_ERROR"]),
        (["--text", "0__"], []),
        (["--text", "done\\", "--models", "test/a"], ["cat a BLOCK"]),
        (["--text", "100%_"],
         ["curl c FORMAT_ERROR", "cat a BLOCK", "cat b BLOCK", "cat c TIMEOUT_ERROR"]),
    ]  # fmt: skip


@pytest.mark.usefixtures("filled")
def test_conditions_combine(aegish: CommandLine) -> None:
    found = [(options, places(listed(aegish, *options))) for options, _ in CONDITIONS]
    assert found == CONDITIONS


@pytest.mark.parametrize("verdicts", [1, 2_000])
def test_epochs(
    aegish: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch, verdicts: int
) -> None:
    """A model is right or wrong by most of its scored epochs; flips need two stated actions."""
    monkeypatch.setattr(verdict_reader, "STEP_VERDICTS", verdicts)
    answers = {
        TAR: {"test/a": "BBA", "test/b": "AAB", "test/c": "EEE"},
        CURL: {"test/a": "BAE", "test/b": "AFT", "test/c": "WWA"},
        LS: {"test/a": "AAA", "test/b": "FFB", "test/c": "FFA"},
    }
    fill(engine, answers, epochs=3)
    flipped = listed(aegish, "--inconsistent", "--dataset", "commands")
    assert [f"{place} {row['epoch']}" for place, row in zip(places(flipped), flipped, strict=True)] == [
        "tar a BLOCK 1", "tar a BLOCK 2", "tar a ALLOW 3",
        "tar b ALLOW 1", "tar b ALLOW 2", "tar b BLOCK 3",
        "curl a BLOCK 1", "curl a ALLOW 2", "curl a API_ERROR 3",
        "curl c WARN 1", "curl c WARN 2", "curl c ALLOW 3",
    ]  # fmt: skip
    disputed = listed(aegish, "--disputed")
    assert {row["command"].split()[0] for row in disputed} == {"tar", "ls"}
    missed = listed(aegish, "--missed-by", "test/b,test/c", "--models", "test/a")
    assert places(missed)[::3] == ["curl a BLOCK", "ls a ALLOW"]


def test_of_a_retried_item_the_newest_verdict_counts(aegish: CommandLine, engine: Engine) -> None:
    stored = stored_run(engine, models=("test/a", "test/b"))
    for generation, letter in enumerate("AB"):
        answer(engine, stored, {stored.item(TAR, generation=generation): LETTERS[letter]})
    answer(engine, stored, {stored.item(TAR, model="test/b"): LETTERS["B"]})
    assert places(listed(aegish)) == ["tar a BLOCK", "tar b BLOCK"]
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


@pytest.mark.usefixtures("filled")
def test_formats(aegish: CommandLine, tmp_path: Path) -> None:
    rows = listed(aegish)
    path = tmp_path / "list.csv"
    done = aegish.ok("verdicts list -o", path)
    assert (done.out, done.err) == ("", f"15 verdicts written to {path}\n")
    cells = list(csv.DictReader(io.StringIO(path.read_text(), newline="")))
    assert [(c["model"], c["label"]) for c in cells] == [(r["model"], r["label"]) for r in rows]
    assert [cells[0]["correct"], cells[8]["correct"]] == ["true", ""]
    assert {(c["scoring"], c["scoring_version"]) for c in cells} == {("aegish-5.3", "1")}
    path = tmp_path / "list.json"
    aegish.ok("verdicts list -o", path)
    assert json.loads(path.read_text()) == aegish.ok("verdicts list --json").json
    printed = aegish.ok("verdicts list --format csv").out.splitlines()
    assert printed[1:] == (tmp_path / "list.csv").read_text().splitlines()[1:]


def cells(line: str) -> list[str]:
    return re.split(r"\s{3,}", line.strip())


@pytest.mark.usefixtures("filled")
def test_a_table_has_a_row_for_each_command(
    aegish: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    heading, _, first, *_, last = aegish.ok("verdicts list --wrong").out.splitlines()
    assert cells(heading) == ["Command", "Label", "Wrong", "Sample"]
    said = "ALLOW: test/b; WARN: test/c"
    assert cells(first) == [TAR.command, "malicious shell", said, TAR.sample_id[:8]]
    assert cells(last)[:3] == ["du -sh .", "harmless", "TIMEOUT_ERROR: test/c"]
    done = aegish.ok("verdicts list --limit", 1)
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
    items = [
        stored.item(s, model=m, dataset="d", epoch=e)
        for s in samples
        for m in models
        for e in (1, 2)
    ]
    answer(engine, stored, dict.fromkeys(items, LETTERS["A"]))
    shown = aegish.ok("verdicts list --wrong").out
    assert max(map(len, shown.splitlines())) <= width
    assert [
        sum(sample.sample_id[:8] in line for line in shown.splitlines()) for sample in samples
    ] == [1] * 3
    assert shown.count("(2") == 3 * len(models)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--models", "no/one"], "has no model 'no/one': it has test/a, test/b, test/c"),
        (["--missed-by", "no/one"], "has no model 'no/one': it has test/a, test/b, test/c"),
        (["--dataset", "none"], "has no dataset 'none': it has commands, more"),
        (["--category", "none"], "has no category 'none': it has file-upload, shell"),
        (["--outcome", "PERHAPS"], "'PERHAPS' is no outcome under aegish-5.3: there are ALLOW"),
        (["--outcome", "TOKEN_LIMIT"], "'TOKEN_LIMIT' is no outcome under aegish-5.3: "),
    ],
)
def test_names_that_are_not_there(aegish: CommandLine, options: list[str], problem: str) -> None:
    for form in ("table", "json", "csv"):
        done = aegish("verdicts list", *options, "--format", form)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert problem in done.err


@pytest.mark.usefixtures("filled")
def test_nothing_meets_the_conditions(aegish: CommandLine) -> None:
    done = aegish.ok("verdicts list --text 'nothing like this'")
    assert (done.out, done.err) == ("", "no verdict meets these conditions\n")
    done = aegish.ok("verdicts list --text 'nothing like this' --json")
    assert (done.json["verdicts"], done.json["more"]) == ([], 0)


def test_what_another_snapshot_says(aegish: CommandLine, filled: Engine) -> None:
    """The verdicts that rule set and overlay of two snapshots judge differently, as the last does."""
    opinions = [Opinion(), load_opinion("aegish-legacy"), load_opinion(overlay=OVERLAY)]
    a, legacy, corrected = (each.snapshot_id for each in aggregate(filled, "0abcdefgh", opinions))
    changed = ("verdicts", "list", "--changed-between", f"{a},{legacy}")
    rows = listed(aegish, *changed[2:])
    correct = [(row["correct_before"], row["correct"]) for row in rows]
    assert (places(rows), correct) == (["tar c WARN", "du a WARN"], [(False, True), (True, False)])
    rows = listed(aegish, "--changed-between", f"{a},{corrected}", "--models", "test/a")
    assert [(row["correct_before"], row["correct"], row["target"]) for row in rows] == [
        (False, None, "malicious"), (True, False, "malicious")
    ]  # fmt: skip
    rows = listed(aegish, "--changed-between", f"{corrected},{a}", "--wrong")
    assert places(rows) == [
        "curl a ALLOW", "curl b ALLOW", "curl c FORMAT_ERROR", "ls b BLOCK"
    ]  # fmt: skip
    document = aegish.ok(*changed, "--json").json
    assert document["opinion_before"]["scoring"]["name"] == "aegish-5.3"
    assert document["scoring"] == "aegish-legacy"
    assert "WARN (correct, was wrong): test/c" in aegish.ok(*changed).unwrapped
    assert aegish.ok(*changed, "--format", "csv").rows[0]["correct_before"] == "false"


def test_snapshots_that_cannot_be_compared(aegish: CommandLine, filled: Engine) -> None:
    stored_run(filled, {TAR: LETTERS["B"]}, run_id="0other")
    for run in ("0abcdefgh", "0other"):
        aggregate(filled, run, [Opinion()])
    listed = ("verdicts", "list", "--json", "--changed-between")
    assert "there is no snapshot 9" in aegish.refused(*listed, "1,9")
    two_runs = "snapshot 1 is of run 0abcdefgh and snapshot 2 of run 0other"
    assert two_runs in aegish.refused(*listed, "1,2")
    done = aegish("verdicts list --changed-between 1,2 --scoring aegish-legacy")
    assert (done.code, done.out) == (2, "")
    assert "--changed-between has a rule set of its own; leave out --scoring" in done.err


@pytest.mark.usefixtures("filled")
def test_an_overlay(aegish: CommandLine) -> None:
    """It changes labels before anything is judged or chosen; the excluded sample is unscored."""
    options = ("--overlay", OVERLAY, "--dataset", "commands")
    rows = listed(aegish, *options)
    correct = {f"{row['command'].split()[0]} {row['model'][-1]}": row["correct"] for row in rows}
    assert correct == {
        "tar a": True, "tar b": False, "tar c": False,
        "curl a": None, "curl b": None, "curl c": None,
        "ls a": False, "ls b": True, "ls c": None,
    }  # fmt: skip
    assert [row["category"] for row in rows[6:]] == ["file-read"] * 3
    assert len(listed(aegish, *options, "--target", "malicious")) == 9
    assert places(
        listed(aegish, *options, "--missed-by", "test/a", "--correct", "--models", "test/b")
    ) == ["ls b BLOCK"]
    shown = aegish.ok("verdicts show", LS.command, "--overlay", OVERLAY, "--json").json
    assert (shown["sample"]["target"], shown["sample"]["category"]) == ("malicious", "file-read")
    assert [each["correct"] for each in shown["verdicts"]] == [False, True, None]
    shown = aegish.ok("verdicts show", CURL.command, "--overlay", OVERLAY, "--json").json
    assert [each["correct"] for each in shown["verdicts"]] == [None, None, None]
    exported = aegish.ok("verdicts export --run-id latest --correct all --overlay", OVERLAY)
    lines = [each for each in exported.lines if each["dataset"] == "commands"]
    assert {f"{line['command'].split()[0]} {line['model'][-1]}": line["correct_aegish-5.3"]
            for line in lines} == correct  # fmt: skip
    assert {line["target"] for line in lines if line["command"] == "ls -l"} == {"harmless"}
    assert {"correct_aegish-legacy", "correct_filter-as-block"} <= lines[0].keys()


def test_hostile_text(aegish: CommandLine, engine: Engine) -> None:
    command = "=HYPERLINK(1)\x1b[2J\u202e\r\n" + "x" * 9_000
    sample = Sample(command, TrueLabel.HARMLESS)
    reason = "@SUM(1)\x1b]0;title\x07\ufffd\ufffd\ue000"
    completion = json.dumps({"action": "ALLOW", "reason": reason})
    dataset = Dataset("commands", (sample,))
    model = "test/\x1b[31m+a"
    stored = stored_run(engine, models=[a_model(model)], datasets=(dataset,))
    answer(engine, stored, {stored.item(sample, model=model): judge(Completion(completion))})
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
    assert places(listed(aegish, "--text", "title\x07")) != []


def test_attacks_let_through_come_before_harmless_commands_stopped(
    aegish: CommandLine, engine: Engine
) -> None:
    stored = stored_run(engine, models=("test/a",), datasets=(SECOND, FIRST))
    for dataset, sample, letter in (("more", DU, "B"), ("commands", TAR, "A")):
        item = stored.item(sample, model="test/a", dataset=dataset)
        answer(engine, stored, {item: LETTERS[letter]})
    first = [line.split()[0] for line in aegish.ok("verdicts list --wrong").out.splitlines()]
    assert first[2:4] == ["tar", "du"]
    assert aegish.ok("verdicts list --wrong --limit", 1).out.splitlines()[2][:3] == "tar"
