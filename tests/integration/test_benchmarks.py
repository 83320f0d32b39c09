"""The benchmarks still fit the code that they measure."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "benchmarks"
ELSEWHERE = {"inspect_task"}  # run in an environment of Inspect AI's own


def test_every_benchmark_can_be_imported() -> None:
    """A renamed name fails here, not when it is run by hand."""
    names = sorted({path.stem for path in FOLDER.glob("*.py")} - ELSEWHERE)
    assert len(names) > 10
    subprocess.run([sys.executable, "-c", f"import {', '.join(names)}"], cwd=FOLDER, check=True)


def test_every_benchmark_says_how_it_is_run() -> None:
    """Each command has the help that the Makefile and CONTRIBUTING.md send readers to."""
    commands = [
        path.stem
        for path in sorted(FOLDER.glob("*.py"))
        if "__main__" in path.read_text("utf-8") and path.stem not in ELSEWHERE
    ]
    assert len(commands) >= 9
    ask = """if True:
        import importlib, sys
        from click.testing import CliRunner
        for name in sys.argv[1:]:
            command = importlib.import_module(name).main
            shown = CliRunner().invoke(command, ["--help"])
            assert shown.exit_code == 0 and name in shown.output, (name, shown)
    """
    subprocess.run([sys.executable, "-c", ask, *commands], cwd=FOLDER, check=True)
