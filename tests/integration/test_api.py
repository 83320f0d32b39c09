"""`aegish_dist.api`, used as a program outside this repository would use it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aegish_dist
from aegish_dist import api
from aegish_dist.opinions.verdict_query import LISTED

ROOT = Path(__file__).parents[2]
PROGRAM = """
import aegish_dist
from aegish_dist import api


class Notes(api.Observer):
    lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


notes = Notes()
request = api.Request(
    models=("baseline/keyword", "baseline/always-block"),
    parameters=api.CallParameters(),
    limit=5,
    dry_run=True,
)
with api.Workspace(api.load_settings()) as workspace:
    planned = api.start_run(workspace, request, notes)
    tasks: int = planned.plan.tasks
    runs = api.recent_runs(workspace.engine, 3)
    run_id: str = api.find_run(workspace.engine, runs[0].run_id)
    status = api.run_status(workspace.engine, run_id)
    snapshots = [
        api.current_snapshot(workspace.engine, run_id, api.load_opinion(rule))
        for rule in ("aegish-5.3", "aegish-legacy")
    ]
    data = api.report_data(workspace.engine, run_id, api.load_opinion())
action = api.parse('{"action": "BLOCK"}').action
print(aegish_dist.__version__, tasks, status.done, action, len(notes.lines))
ranking = [place["model"] for place in snapshots[0].document["ranking"]]
print(ranking, len({snapshot.scoring for snapshot in snapshots}))
print([len(api.render(data, form)) > 0 for form in api.FORMATS])
"""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_a_program_type_checks(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    run(tmp_path, "-m", "mypy", "--strict", "program.py")


def test_a_program_gives_numbers(tmp_path: Path, postgres_url: str) -> None:
    """It plans a run, reads a stored one under two rule sets, and renders all formats."""
    (tmp_path / "verdicts.jsonl").write_text(
        '{"model": "test/guard", "dataset": "d", "command": "ls", "target": "harmless",'
        ' "completion": "{\\"action\\": \\"ALLOW\\"}", "latency_ms": 1}\n'
    )
    store = {"AEGISH_DIST_DATABASE_URL": postgres_url}
    run(tmp_path, "-m", "aegish_dist", "verdicts", "import", "verdicts.jsonl", **store)

    first, second, third = run(tmp_path, "-c", PROGRAM, **store).splitlines()

    assert first == f"{aegish_dist.__version__} 30 1 BLOCK 3"
    assert second == "['test/guard'] 2"
    assert third == str([True] * len(api.FORMATS))


def test_the_page_names_what_there_is() -> None:
    """Whatever `docs/reference/api.md` calls `api.NAME`, or names in its table, is promised."""
    text = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bapi\.([A-Za-z_]+)", text)) - {"md"}
    called = set(re.findall(r"^\| `([a-z_]+)\(", text, re.MULTILINE))
    assert named | called <= set(api.__all__)
    assert len(api.__all__) <= 30
    assert all(hasattr(api, name) for name in api.__all__)


def test_the_page_names_the_columns_of_a_frame_of_verdicts() -> None:
    text = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    table = text.partition("| Columns of `verdicts_frame`")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(cells))) == sorted(LISTED)


def test_the_package_itself_promises_its_version_alone() -> None:
    """Importing it loads no other module of it."""
    program = "import sys, aegish_dist; print([m for m in sys.modules if m.startswith('aegish')])"
    assert run(ROOT, "-c", program) == "['aegish_dist']\n"
    assert aegish_dist.__all__ == ["__version__"]
