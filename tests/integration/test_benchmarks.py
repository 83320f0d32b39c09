"""Every benchmark does the work that it is there for: at a small size to its end, or for a while."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.recorded import document_of
from tests.services import short_home

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "benchmarks"
COMMANDS = [
    path.stem for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text("utf-8")
]
ARGUMENTS = document_of("benchmark_arguments.json")
SMALL: dict[str, list[str]] = ARGUMENTS["small"]
"""Arguments with which a benchmark comes to its end within seconds."""
LARGE: dict[str, list[str]] = ARGUMENTS["large"]
"""Arguments of some of the others, which are still at work when they are ended."""
WHOLE_S = 600.0
PART_S = 10.0
GTFOBIN = "functions:\n  shell:\n    - code: ex /bin/sh\n"


@contextmanager
def started(script: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a script, and end it with all that it started."""
    process = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        tree = []
        if process.poll() is None:
            tree = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=15)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for child in tree:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.communicate()


def ended(script: Path, *arguments: str, within_s: float) -> bool:
    """Return whether a script has ended by then; it must not have failed."""
    with started(script, *arguments) as process:
        try:
            output, _ = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            return False
        assert process.returncode == 0, output
        return True


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A history of GTFOBins with one commit."""
    page = tmp_path / "clone" / "_gtfobins" / "ex"
    page.parent.mkdir(parents=True)
    page.write_text(f"---\n{GTFOBIN}---\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", *author, *command], cwd=tmp_path / "clone", check=True)
    return tmp_path / "clone"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user who serves may enter where this runs as root."""
    with short_home() as made:
        made.chmod(0o755)
        yield made


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_works(name: str, folder: Path, clone: Path) -> None:
    """One that is added later is started without arguments."""
    given = SMALL.get(name) or LARGE.get(name) or []
    places = {"FOLDER": folder, "CLONE": clone, "TREE": FOLDER.parent}
    arguments = [argument.format(**places) for argument in given]
    within_s = WHOLE_S if name in SMALL else PART_S
    came_to_its_end = ended(FOLDER / f"{name}.py", *arguments, within_s=within_s)
    assert came_to_its_end or name not in SMALL


def test_the_tables_name_benchmarks() -> None:
    assert len(COMMANDS) > 20
    assert {*SMALL, *LARGE} <= set(COMMANDS)
    assert not SMALL.keys() & LARGE.keys()
