"""`kill -9` of what archives, deletes and restores, at every step: the same command ends well."""

import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.integration.command_line import CommandLine
from tests.integration.samples import BLOCKED, DETAILED
from tests.integration.stored_runs import row_counts, stored_run
from tests.integration.test_archive import FIRST, SECOND, Facts, facts

pytestmark = pytest.mark.long
KILLS = 20
REMOVAL = "part_folder write_files sync_folder delete_run delete_verdicts"
COMMANDS = [
    (f"runs archive {FIRST} --delete --yes --to", REMOVAL),
    ("runs prune --older-than 1d --yes --archive-to", REMOVAL),
    (
        "runs prune --older-than 1d --yes --completions --archive-to",
        "part_folder sync_folder prune_completions require_archived prune_verdicts",
    ),
    ("runs restore", "save_run add_verdicts load_run settle"),
]
"""Each with functions at whose call it is killed."""


def _calls(function: str, command: Callable[[], object]) -> int:
    """Return how many functions of the product a command calls from the first call of one."""
    calls = 0

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call" and "/aegish_dist/" in frame.f_code.co_filename:
            calls += calls > 0 or frame.f_code.co_name == function

    sys.setprofile(watch)
    try:
        command()
    finally:
        sys.setprofile(None)
    return calls


def _kill(point: str, calls: int, line: str, place: Path) -> int:
    program = (sys.executable, "-m", "tests.chaos.killed", point, str(calls))
    command = (*program, *line.split(), str(place))
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.parametrize(("line", "points"), COMMANDS)
def test_the_same_command_again_ends_well(
    line: str, points: str, aegish: CommandLine, engine: Engine, tmp_path: Path
) -> None:
    """Nothing is lost or doubled, and no hidden folder stays, wherever the kill comes."""
    for run, label in ((FIRST, "a name"), (SECOND, "other")):
        said = {"test/a": DETAILED, "test/b": BLOCKED}
        stored_run(engine, said, run_id=run, name=label, models=("test/a", "test/b"))
    before, folder, restores = _runs(aegish, engine), tmp_path / "kept", line == "runs restore"
    place = folder
    if restores:
        aegish.ok("runs archive", FIRST, "--to", folder, "--delete", "--yes")
        place = folder / FIRST
    start = _runs(aegish, engine)
    chance = random.Random(8)
    total = _calls("run", partial(aegish.ok, line, place))
    kills = [("run", chance.randrange(total)) for _ in range(KILLS)]
    kills += [(point, 0) for point in points.split()]
    for point, calls in kills:
        _put_back(aegish, engine, folder, before, restores=restores)
        assert _runs(aegish, engine) == start
        assert _kill(point, calls, line, place) == -9
        again = aegish(line, place)
        done = restores and "is in this store with 6 of 6" in again.err
        gone = line.startswith("runs archive") and "no run" in again.err
        assert again.code == 0 or done or gone, (point, calls, again.err)
        if not restores:
            assert not [each for each in folder.iterdir() if each.name.startswith(".")]
    _put_back(aegish, engine, folder, before, restores=False)
    assert _runs(aegish, engine) == before


def _runs(aegish: CommandLine, engine: Engine) -> dict[str, Facts]:
    """Return what the runs of a store ask, their verdicts and their numbers."""
    stored = [each["run_id"] for each in aegish.ok("runs --json").json]
    return {run_id: facts(aegish, engine, run_id) for run_id in sorted(stored)}


def _put_back(
    aegish: CommandLine, engine: Engine, folder: Path, before: Any, *, restores: bool
) -> None:
    """Have the store, and the folder of archives, as they were before the command."""
    if restores:
        aegish.ok("runs delete", FIRST, "--yes")
        return
    for place in sorted(folder.iterdir()):
        aegish("runs restore", place)
    assert row_counts(engine)["runs"] == len(before)
    rmtree(folder)
