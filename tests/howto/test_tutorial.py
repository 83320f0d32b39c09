"""`docs/tutorial/first-decision.md`: its commands, followed in one shell and a fresh home."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.services import short_home

pytestmark = pytest.mark.long

PAGE = (Path(__file__).parents[2] / "docs/tutorial/first-decision.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
LINES = "\n".join(re.findall(r"^```bash\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)).split("\n")
SERVED = "while [ ! -s first-catalog.toml ]; do sleep 0.1; done"
ANSWERS = {0, 4, 5}  # 4 and 5: what a gate says


def script() -> str:
    """Return the commands, each followed by its exit code; the simulator's port is a free one."""
    lines = []
    for line in LINES:
        if "& sleep" in line:
            lines += [
                "rm first-catalog.toml",
                line.replace("provider", "provider --port 0"),
                SERVED,
            ]
        else:
            lines += [line, f"echo code $? of '{line}'"]
    return "\n".join(lines)


def test_each_command_of_the_tutorial_works(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with short_home() as home, (tmp_path / "out").open("w+") as shown:
        home.chmod(0o711)
        given = {"HOME": str(home), "AEGISH_DIST_HOME": str(home / "store"), "PATH": path}
        with subprocess.Popen(
            ["bash", "-c", script()],
            cwd=tmp_path,
            env={**given, "BROWSER": "true"},
            stdout=shown,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as shell:
            try:
                shell.wait(timeout=300)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGTERM)  # the simulator too
        shown.seek(0)
        out = shown.read()
    codes = re.findall(r"^code (\d+) of (.*)$", out, re.MULTILINE)
    assert len(codes) == sum("& sleep" not in line for line in LINES)
    assert [found for found in codes if int(found[0]) not in ANSWERS] == [], out
    assert "simulated/careful" in out
