"""The language of the code: plain words, one name for one thing."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.language import files, offences

ROOT = Path(__file__).parents[2]
EXAMPLES = {ROOT / "tests/language.py", Path(__file__)}
OURS = re.compile(r"(?:aegish_dist|workers|tests)\b")
SEAMS = {"Channel", "Transport"}
"""Kombu's names for the parts of a transport, of which this project has two."""


@pytest.mark.parametrize("folder", ["aegish_dist", "workers", "benchmarks", "tests"])
def test_the_language_of_a_folder_is_plain(folder: str) -> None:
    """No word of the list is used."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files([str(ROOT / folder)])
        if path not in EXAMPLES
        for line, text in sorted(offences(path))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('"""What a module is."""', "begins with 'What'"),
        ('"""A module."""\n\nx = 1  # nobody waits', "'nobody'"),
        ('"""A module."""\n\nx = "the dead worker"', "'dead'"),
    ],
)
def test_an_offence_is_found(tmp_path: Path, source: str, says: str) -> None:
    """Each rule has an example."""
    path = tmp_path / "example.py"
    path.write_text(source)
    ((_, text),) = offences(path)
    assert says in text


def test_plain_code_is_no_offence(tmp_path: Path) -> None:
    """Technical senses of words are allowed."""
    path = tmp_path / "example.py"
    path.write_text('"""Removes dead tuples."""\n\n\ndef f(a: int) -> int:\n    """Return a."""\n')
    assert list(offences(path)) == []


def classes() -> Iterator[str]:
    """Yield the name of every public class of the product."""
    for path in files([str(ROOT / "aegish_dist"), str(ROOT / "workers")]):
        if path.suffix == ".py":
            body = ast.parse(path.read_text(encoding="utf-8")).body
            yield from (node.name for node in body if isinstance(node, ast.ClassDef))


def test_a_name_means_one_thing() -> None:
    """No two public classes of the product share a name."""
    counted = Counter(name for name in classes() if not name.startswith("_"))
    assert {name for name, number in counted.items() if number > 1} <= SEAMS


def imported(path: Path) -> Iterator[str]:
    """Yield the names that a file imports from this project."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and OURS.match(node.module or ""):
            yield from (name.name for name in node.names)


def test_tests_import_public_names() -> None:
    """Every name that a test needs is one without an underscore (ruff's SLF001 looks at attributes)."""
    paths = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    private = {name for path in paths for name in imported(path) if name.startswith("_")}
    assert private <= {"__version__"}
