"""Comparing snapshots under different opinions."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.opinion import LabelChange, Opinion, Overlay
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import RULES
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.import_verdicts import import_verdicts
from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import (
    ALLOWED,
    BLOCKED,
    LS,
    TAR,
    a_model,
    a_run,
    answer,
    store,
)  # fmt: skip

HOSTILE = "=cmd()|\x1b[31m"


def line(command: str, target: str, action: str | None, **more: Any) -> dict[str, Any]:
    said = {"completion": None, "error_class": "deadline"}
    answered = {"completion": json.dumps({"action": action})}
    category = {"category": "shell"} if target == "malicious" else {}
    about = {"model": "lab/a", "dataset": "d", "command": command, "target": target}
    return about | category | (said if action is None else answered) | more


@pytest.fixture
def run(engine: Engine, tmp_path: Path) -> str:
    found = [
        line("evil 1", "malicious", "BLOCK"),
        line("evil 2", "malicious", "WARN"),
        line("evil 3", "malicious", None),
        line(HOSTILE, "harmless", "WARN"),
        line("fine 2", "harmless", "BLOCK"),
        line("evil 2", "malicious", "WARN", model="lab/b"),
        line("fine 2", "harmless", "ALLOW", model="lab/b"),
    ]
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in found), "ascii")
    return import_verdicts(engine, [path], "").run_id


def test_verdicts_that_two_rule_sets_judge_differently(
    engine: Engine, aegish: CommandLine, run: str
) -> None:
    """WARN changes sides with aegish-legacy; the metrics are those of the snapshots."""
    a, b = aggregate(engine, run, [Opinion(), Opinion(RULES["aegish-legacy"])])
    ask = ("compare", "--snapshots", f"{a.snapshot_id},{b.snapshot_id}")

    found = aegish.ok(*ask, "--json").json

    changed = {
        (each["model"], each["command"], each["outcome_a"], each["correct_a"], each["correct_b"])
        for each in found["verdicts"]
    }
    assert changed == {
        ("lab/a", "evil 2", "WARN", False, True),
        ("lab/a", HOSTILE, "WARN", True, False),
        ("lab/b", "evil 2", "WARN", False, True),
    }
    first, second = found["models"]
    assert (first["changed"], second["changed"]) == (2, 1)
    assert second["changes"] == [{"a": "wrong", "b": "correct", "verdicts": 1}]
    detection = first["metrics"]["malicious_detection_rate"]
    assert (detection["a"], detection["b"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert detection["change"] == pytest.approx(1 / 3)
    assert not found["a"]["verdicts_changed_since"]
    assert (found["a"]["scoring"], found["b"]["scoring"]) == ("aegish-5.3", "aegish-legacy")

    for form in ("table", "markdown"):
        out = aegish.ok(*ask, "--format", form).out
        assert "evil 2" in out
        assert "\x1b" not in out
    rows = list(csv.DictReader(io.StringIO(aegish.ok(*ask, "--format", "csv").out)))
    assert {row["command"] for row in rows} == {"evil 2", "'=cmd()|\\x1b[31m"}
    assert aegish.ok(*ask, "--models", "lab/b", "--json").json["models"] == [second]


def test_an_overlay_changes_sides_or_leaves_out(
    engine: Engine, aegish: CommandLine, run: str
) -> None:
    """Relabelled and excluded samples are listed with both labels; it holds what was stored."""
    changes = (
        LabelChange("d", None, "evil 2", Target.HARMLESS, None, "It is not.", "me"),
        LabelChange("d", None, "evil 1", None, None, "Doubtful.", "me"),
    )
    a, b = aggregate(engine, run, [Opinion(), Opinion(overlay=Overlay("mine", 1, changes))])
    ask = ("compare", "--snapshots", f"{a.snapshot_id},{b.snapshot_id}")
    found = {
        (each["model"], each["command"]): each
        for each in aegish.ok(*ask, "--json").json["verdicts"]
    }
    assert found.keys() == {("lab/a", "evil 1"), ("lab/a", "evil 2"), ("lab/b", "evil 2")}
    excluded, moved = found["lab/a", "evil 1"], found["lab/b", "evil 2"]
    assert (excluded["correct_a"], excluded["correct_b"]) == (True, None)
    assert (excluded["target_a"], excluded["target_b"]) == ("malicious", None)
    assert (moved["target"], moved["target_b"], moved["correct_b"]) == (
        "malicious",
        "harmless",
        True,
    )
    assert "excluded" in aegish.ok(*ask).out


def test_verdicts_that_changed_since_are_said(engine: Engine, aegish: CommandLine) -> None:
    """Snapshots of one run before and after a verdict, and of another run."""
    snapshots = []
    for run_id, said in (("0aaaaaaaa", BLOCKED), ("0bbbbbbbb", ALLOWED)):
        with Session(engine) as session, session.begin():
            stored = store(session, a_run(run_id, models=(a_model("test/a"),)))
            answer(session, stored, {stored.item(TAR): said, stored.item(LS): ALLOWED})
        snapshots += aggregate(engine, run_id, [Opinion()])
        with Session(engine) as session, session.begin():
            if run_id == "0aaaaaaaa":
                answer(session, stored, {stored.item(LS, generation=1): BLOCKED})
    a, b = (each.snapshot_id for each in snapshots)

    found = aegish.ok("compare", "--snapshots", f"{a},{b}", "--json").json

    assert [found[side]["verdicts_changed_since"] for side in "ab"] == [True, False]
    assert {(each["command"], each["outcome_a"], each["outcome_b"]) for each in found["verdicts"]} == {
        (TAR.command, "BLOCK", "ALLOW"), (LS.command, "BLOCK", "ALLOW")
    }  # fmt: skip
    assert "A CHANGED" in aegish.ok("compare", "--snapshots", f"{a},{b}").out


def test_wrong_snapshots_are_refused(engine: Engine, aegish: CommandLine, run: str) -> None:
    """Usage errors are 2, snapshots that are not there 1."""
    (one,) = aggregate(engine, run, [Opinion()])
    number = one.snapshot_id
    for options in (
        (f"{number}",), ("a,b",), (f"{number},0",), (f"{number},{number}", "--force"),
        (f"{number},{number}", "--scoring", "aegish-legacy"), (f"{number},{number}", "--run-id", run),
    ):  # fmt: skip
        assert aegish("compare", "--snapshots", *options).code == 2, options
    for option, options in (
        ("--snapshots", (f"{number},99999",)),
        ("--models", (f"{number},{number}", "--models", "lab/x")),
    ):
        done = aegish("compare", "--snapshots", *options)
        assert (done.code, done.err.count("\n")) == (1, 1), options
        assert done.err.startswith(f"error: {option}: "), options
    same = aegish.ok("compare", "--snapshots", f"{number},{number}", "--json").json
    assert same["verdicts"] == []
    aegish.ok("compare", "--snapshots", f"{number},{number}")
