"""The same option means the same everywhere."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from aegish_dist.pipeline.runs import recent_runs
from tests.integration.command_line import CommandLine, write_lines
from tests.integration.samples import BLOCKED, TAR
from tests.integration.stored_runs import stored_run

LINE = {"model": "a/b", "command": "ls", "target": "harmless", "completion": None}


@pytest.mark.parametrize("run", ["--run-id 0abcdefgh", "0abcdefgh"])
def test_a_run_is_named_by_an_option_or_by_an_argument(
    aegish: CommandLine, engine: Engine, tmp_path: Path, run: str
) -> None:
    stored_run(engine, {TAR: BLOCKED})
    assert aegish.ok(f"runs rename {run} march").out == "0abcdefgh: march\n"
    assert "read back" in aegish.ok(f"runs archive {run} --to", tmp_path).out
    assert "deleted run 0abcdefgh march" in aegish.ok(f"runs delete {run} --yes").out
    for twice in (
        f"rename {run} another name",
        f"archive {run} another --to x",
        f"delete {run} another",
    ):
        assert "--run-id R" in aegish.misused(f"runs {twice}")


def test_a_limit_of_zero_is_none(aegish: CommandLine, engine: Engine) -> None:
    for number in range(25):
        stored_run(engine, run_id=f"0abcdef{number:02}", name="")
    assert len(aegish.ok("runs --json").json) == 20
    assert len(aegish.ok("runs --json --limit 0").json) == len(recent_runs(engine)) == 25


def test_json_is_a_format_everywhere(aegish: CommandLine, engine: Engine) -> None:
    answers = {"test/a": {TAR: BLOCKED}, "test/b": {TAR: BLOCKED}}
    stored_run(engine, answers, models=("test/a", "test/b"))
    for line in ("report", "audit", "compare", "errors", "verdicts list"):
        asked = aegish.ok(f"{line} --json")
        assert asked.json == aegish.ok(f"{line} --format json").json
        aegish.misused(f"{line} --json --format csv")
    assert {each["name"] for each in aegish.ok("prompts list --json").json} >= {"guard"}


def test_a_second_import_under_a_name_is_noted(aegish: CommandLine, tmp_path: Path) -> None:
    """Both are stored, as before; from then on the name alone is ambiguous."""
    path = write_lines(tmp_path / "v.jsonl", LINE)
    brought = "verdicts import --name ref"
    assert "ambiguous" not in aegish.ok(brought, path).err
    again = aegish.ok(brought, path)
    assert f"runs rename --run-id {again.out.strip()} NAME" in again.err
    assert "ambiguous" in aegish.refused("report --run-id ref")
