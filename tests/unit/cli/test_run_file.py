"""Run files that `submit --run-file` refuses, before it opens anything."""

from pathlib import Path

import pytest

from tests.integration.command_line import CommandLine
from tests.recorded import lines_of


@pytest.mark.parametrize(("text", "says"), lines_of("refused_run_files.jsonl"))
def test_a_wrong_run_file_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f"{text}\n")
    said = CommandLine(capsys).refused("submit", "--run-file", path, "--models", "baseline/keyword")
    assert said.startswith(f"error: {path}: ")
    assert says in said
    assert "hush" not in said
