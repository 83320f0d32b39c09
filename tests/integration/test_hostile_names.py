"""Hostile names in the store: every command that shows them stays usable and printable."""

import json
import shlex
from pathlib import Path

import pytest

from tests.integration.command_line import CommandLine, write_lines
from tests.integration.stored_runs import verdict_line

HOSTILE = "=[/red][link=https://example.com]x[/link]<b>|`,:smile:\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt\u200b"
DATASET = shlex.quote(f"{HOSTILE}@latest")
COMMANDS = [
    "runs",
    "status",
    f"datasets show {DATASET}",
    f"datasets show {DATASET} --samples 9",
    "verdicts export --run-id latest",
    "report --format json",
    "report --format html",
    *(f"{name} --json" for name in ("runs", "status", "aggregate", "audit", "compare")),
]
for form in ("table", "markdown", "csv"):
    COMMANDS += [f"{name} --format {form}" for name in ("report", "audit", "compare")]


@pytest.fixture
def aegish(aegish: CommandLine, tmp_path: Path) -> CommandLine:
    """A command line whose store holds one run in which everything foreign is hostile."""
    foreign = dict.fromkeys(("dataset", "category", "cluster"), HOSTILE)
    lines = [
        verdict_line(model, HOSTILE, "malicious", "allow") | foreign
        for model in (HOSTILE, "test/b")
    ]
    verdicts = write_lines(tmp_path / "verdicts.jsonl", *lines)
    aegish.ok("verdicts import --name", HOSTILE, verdicts)
    return aegish


def test_every_list_of_it_is_shown(aegish: CommandLine) -> None:
    """A run's name with markup breaks no command, and no control character reaches the output."""
    for command in COMMANDS:
        done = aegish.ok(command)
        assert all(line.isprintable() for line in done.out.splitlines()), command
        assert all(line.isprintable() for line in done.err.splitlines()), command
        assert "ZXZpbA==" in done.out, command
        if command.endswith(("markdown", "html")):
            assert "<b>" not in done.out, command
        if command.endswith("csv"):
            assert '"=[' not in done.out, command


def test_tables_show_names_as_they_are_written(aegish: CommandLine) -> None:
    assert "=[/red][link=https://" in aegish.ok("runs").out


def test_a_problem_in_a_file_is_printable(aegish: CommandLine, tmp_path: Path) -> None:
    """Fields of a wrong file, and its name, are quoted in errors."""
    path = tmp_path / f"{HOSTILE.replace('/', '')}.jsonl"
    path.write_text(json.dumps({"command": "", "target": HOSTILE, HOSTILE: HOSTILE}) + "\n")
    for command in ("datasets validate", "datasets import table", "verdicts import"):
        done = aegish(command, path)
        assert done.code == 1
        shown = (done.out + done.err).splitlines()
        assert shown
        assert all(line.isprintable() for line in shown)
