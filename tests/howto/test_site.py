"""`make docs`: the site is built without a warning, and loads nothing from elsewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long

_LOADED = re.compile(r"<(?:script|img|link)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^ >]+")


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """A link or an anchor that leads nowhere would be one."""
    if importlib.util.find_spec("mkdocs") is None and not os.environ.get("CI"):
        pytest.skip("mkdocs is not installed: make docs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", tmp_path],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    made = sorted(tmp_path.rglob("*.html"))
    assert len(made) > len(list((ROOT / "docs").rglob("*.md")))
    assert [found for page in made for found in _LOADED.findall(page.read_text())] == []
