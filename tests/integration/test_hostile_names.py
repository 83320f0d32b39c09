"""Hostile names in the store: every command that shows them stays usable and printable."""

import json
from pathlib import Path

import pytest

from tests.integration.command_line import CommandLine, write_lines

HOSTILE = "=[/red][link=https://example.com]x[/link]<b>|`,:smile:\x1b]52;c;ZXZpbA==\x07\x9b2J\u202etxt\u200b"
COMMANDS = [
    ("runs",),
    ("status",),
    ("datasets", "show", f"{HOSTILE}@latest"),
    ("datasets", "show", f"{HOSTILE}@latest", "--samples", "9"),
    *((name, "--json") for name in ("runs", "status", "aggregate", "audit", "compare")),
    *(
        (name, "--format", form)
        for name in ("report", "audit", "compare")
        for form in ("table", "markdown", "csv")
    ),
    *(("report", "--format", form) for form in ("json", "html")),
    ("verdicts", "export", "--run-id", "latest"),
]


@pytest.fixture
def aegish(aegish: CommandLine, tmp_path: Path) -> CommandLine:
    """A command line whose store holds one run in which everything foreign is hostile."""
    foreign = dict.fromkeys(("model", "dataset", "command", "category", "cluster"), HOSTILE)
    lines = [
        foreign | {"model": model, "completion": '{"action": "allow"}', "target": "malicious"}
        for model in (HOSTILE, "test/b")
    ]
    verdicts = write_lines(tmp_path / "verdicts.jsonl", *lines)
    aegish.ok("verdicts import", verdicts, "--name", HOSTILE)
    return aegish


def test_every_list_of_it_is_shown(aegish: CommandLine) -> None:
    """A run's name with markup breaks no command, and no control character reaches the output."""
    for command in COMMANDS:
        done = aegish.ok(*command)
        assert all(line.isprintable() for line in done.out.splitlines()), command
        assert all(line.isprintable() for line in done.err.splitlines()), command
        assert "ZXZpbA==" in done.out, command
        assert "<b>" not in done.out or not {"markdown", "html"} & set(command), command
        assert '"=[' not in done.out or "csv" not in command, command


def test_tables_show_names_as_they_are_written(aegish: CommandLine) -> None:
    assert "=[/red][link=https://" in aegish.ok("runs").out


def test_a_problem_in_a_file_is_printable(aegish: CommandLine, tmp_path: Path) -> None:
    """Fields of a wrong file, and its name, are quoted in errors."""
    path = tmp_path / f"{HOSTILE.replace('/', '')}.jsonl"
    path.write_text(json.dumps({"command": "", "target": HOSTILE, HOSTILE: HOSTILE}) + "\n")
    for command in (("datasets", "validate"), ("datasets", "import", "table"), ("verdicts", "import")):  # fmt: skip
        done = aegish(*command, path)
        assert done.code == 1
        shown = (done.out + done.err).splitlines()
        assert shown
        assert all(line.isprintable() for line in shown)
