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


def test_wheel_contains_the_packages_and_nothing_else(wheel_names: set[str]) -> None:
    info = f"aegish_dist-{__version__}.dist-info"
    files = {
        str(path.relative_to(ROOT))
        for package in ("aegish_dist", "workers")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files | {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= wheel_names
    assert {"aegish_dist/py.typed", "workers/__main__.py"} <= files
    assert {name.partition("/")[0] for name in wheel_names} == {"aegish_dist", "workers", info}
