"""The benchmarks still fit the code that they measure."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "benchmarks"
ELSEWHERE = {"inspect_task"}  # run in an environment of Inspect AI's own


def test_every_benchmark_can_be_imported_and_says_how_it_is_run() -> None:
    """A renamed name fails here; each command has the help that CONTRIBUTING.md sends readers to."""
    paths = [path for path in sorted(FOLDER.glob("*.py")) if path.stem not in ELSEWHERE]
    commands = [path.stem for path in paths if "__main__" in path.read_text("utf-8")]
    assert len(paths) > 10
    assert len(commands) >= 9
    names = ", ".join(path.stem for path in paths)
    ask = f"""if True:
        import importlib, sys, {names}
        from click.testing import CliRunner
        for name in sys.argv[1:]:
            command = importlib.import_module(name).main
            shown = CliRunner().invoke(command, ["--help"])
            assert shown.exit_code == 0 and name in shown.output, (name, shown)
    """
    subprocess.run([sys.executable, "-c", ask, *commands], cwd=FOLDER, check=True)
