"""The benchmarks still fit the code that they measure."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"
ELSEWHERE = {"inspect_task"}
"""Run in an environment of Inspect AI's own."""


def test_every_benchmark_can_be_imported() -> None:
    """A renamed name fails here, not when it is run by hand."""
    names = sorted({path.stem for path in FOLDER.glob("*.py")} - ELSEWHERE)
    assert len(names) > 10
    subprocess.run([sys.executable, "-c", f"import {', '.join(names)}"], cwd=FOLDER, check=True)
