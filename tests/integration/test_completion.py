"""A shell completes commands, and names from the catalog, the package and the store."""

import shlex
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from sqlalchemy import Engine

from aegish_dist.cli import cli
from tests.integration.stored_runs import stored_run
from tests.recorded import lines_of


def completed(line: str) -> list[str]:
    """Return what is offered for the last word of a line."""
    *words, begun = shlex.split(line) if not line.endswith(" ") else [*shlex.split(line), ""]
    shell = BashComplete(cli, {}, "aegish-dist", "_AEGISH_DIST_COMPLETE")
    return [each.value for each in shell.get_completions(words, begun)]


@pytest.mark.parametrize(("line", "offered"), lines_of("completions.jsonl"))
def test_a_shell_completes_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, offered: list[str]
) -> None:
    """Nothing is started for it, and nothing is made."""
    monkeypatch.setenv("AEGISH_DIST_HOME", str(tmp_path / "home"))
    assert sorted(completed(line)) == offered
    assert not (tmp_path / "home").exists()


def test_a_shell_completes_runs_of_a_store_that_is_at_hand(
    engine: Engine,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One that is away, or a setting that is wrong, is silent."""
    stored_run(engine, run_id="0aaaaaaaa", name="march")
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", postgres_url)
    assert completed("status --run-id 0a") == ["0aaaaaaaa"]
    assert completed("runs delete mar") == ["march"]
    assert completed("compare --runs latest,ma") == ["latest,march"]
    for wrong in ("postgresql://127.0.0.1:1/x", "nonsense"):
        monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", wrong)
        assert completed("status --run-id 0a") == []
    monkeypatch.setenv("AEGISH_DIST_CONCURRENCY", "many")
    assert completed("status --run-id 0a") == []
    assert capfd.readouterr() == ("", "")
