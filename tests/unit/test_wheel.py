"""The wheel as it is built from this tree."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from aegish_dist import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in the wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize(
    "name",
    [
        "aegish_dist/py.typed",
        "aegish_dist/models/catalog.toml",
        "aegish_dist/ratelimit/grant_lease.lua",
        "aegish_dist/ratelimit/probe_now.lua",
        "aegish_dist/datasets/bundled/malicious.jsonl",
        "aegish_dist/datasets/bundled/harmless.jsonl",
        "aegish_dist/prompts/guard.md",
        "aegish_dist/report/page/assets/dom.js",
        "aegish_dist/report/page/assets/style.css",
        "aegish_dist/prompts/cot.md",
        "aegish_dist/db/migrations/env.py",
        "aegish_dist/db/migrations/versions/0001_first_schema.py",
        "workers/__main__.py",
        "workers/app.py",
        f"aegish_dist-{__version__}.dist-info/licenses/LICENSE",
        f"aegish_dist-{__version__}.dist-info/entry_points.txt",
    ],
)
def test_wheel_contains(wheel_names: set[str], name: str) -> None:
    """Files that the package reads at run time are installed with it."""
    assert name in wheel_names


def test_wheel_contains_every_file_of_the_packages(wheel_names: set[str]) -> None:
    """No module and no data file is left out."""
    files = {
        str(path.relative_to(ROOT))
        for package in ("aegish_dist", "workers")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert files <= wheel_names


def test_wheel_contains_nothing_else(wheel_names: set[str]) -> None:
    """Neither tests nor benchmarks end up in the site-packages of users."""
    tops = {name.partition("/")[0] for name in wheel_names}

    assert tops == {"aegish_dist", "workers", f"aegish_dist-{__version__}.dist-info"}
