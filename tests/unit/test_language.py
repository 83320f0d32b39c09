"""The language of the code: plain words, one name for one thing."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import nodes, parsed, product

ROOT = Path(__file__).parents[2]
BANNED = {
    # Words of another century, or of no textbook, and the word to use in their place.
    r"whoever|whomever|whatsoever|whosoever": "name the thing",
    r"lest": "so that … not",
    r"untold|told": "reported, sent, distinguished",
    r"in vain": "without success, unsuccessful",
    r"nobody|somebody|anybody|everybody|no-one|someone": "name the process, the caller, the user",
    r"dead(?!\s+(?:tuple|letter|row)|-letter)": "closed, lost, stopped, failing, unused",
    r"(?:send|sends|sent|sending|turn|turns|turned|turning)s? away": "return to the queue, refuse",
    r"(?:come|comes|came|coming) back": "return, be reachable again",
    r"whence|thence|hence|hitherto|hereof|thereof|wherein|whereby|whilst|amongst|albeit|thus":
        "plain English",
    r"for good(?! reason)": "permanently",
    r"afresh|anew|aloud|askers?|foretells?|notwithstanding|reckon(?:s|ed)?|mingles?|untruths?":
        "plain English",
}  # fmt: skip
_BANNED = [
    (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), hint)
    for pattern, hint in BANNED.items()
]
_SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|COPY|SET|ANALYZE)\b")
OURS = re.compile(r"(?:aegish_dist|workers|tests)\b")
SEAMS = {"Channel", "Transport"}
"""Kombu's names for the parts of a transport, of which this project has two."""


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield docstrings, comments and literals of several words, with their first line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        for number, line in enumerate(text.splitlines(), 1):
            yield number, line.partition("--")[2]
        return
    for node in nodes(parsed(path)):
        match node:
            case ast.Constant(value=str() as words) if " " in words.strip() and not _SQL.match(
                words
            ):
                yield node.lineno, words
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def offences(path: Path) -> Iterator[str]:
    for first, text in prose(path):
        for pattern, hint in _BANNED:
            for match in pattern.finditer(text):
                line = first + text.count("\n", 0, match.start())
                yield f"{path}:{line}: '{match[0]}' ({hint})"


@pytest.mark.parametrize("folder", ["aegish_dist", "workers", "benchmarks", "tests"])
def test_the_language_of_a_folder_is_plain(folder: str) -> None:
    files = (f for f in (ROOT / folder).rglob("*") if f.suffix in {".py", ".lua", ".sql"})
    # Merged migrations are never edited.
    read = [f for f in files if f != Path(__file__) and f.parent.name != "versions"]
    assert [offence for path in sorted(read) for offence in offences(path)] == []


def test_an_offence_is_found(tmp_path: Path) -> None:
    """In docstrings, comments and literals, but for technical senses of a word."""
    path = tmp_path / "example.py"
    path.write_text(
        '"""Removes dead tuples,\n\nlest"""\nx = 1  # nobody waits\ny = "the dead worker"'
    )
    places = [offence.removeprefix(f"{path}:").split(" (")[0] for offence in offences(path)]
    assert sorted(places) == ["3: 'lest'", "4: 'nobody'", "5: 'dead'"]


def test_a_name_means_one_thing() -> None:
    nodes = [node for path in product().values() for node in parsed(path).body]
    counted = Counter(n.name for n in nodes if isinstance(n, ast.ClassDef) and n.name[0] != "_")
    assert {name for name, number in counted.items() if number > 1} <= SEAMS


def test_tests_import_public_names() -> None:
    """Every name that a test needs is one without an underscore (ruff's SLF001 looks at attributes)."""
    paths = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    imports = [node for path in paths for node in nodes(parsed(path))]
    private = {
        name.name
        for node in imports
        if isinstance(node, ast.ImportFrom) and OURS.match(node.module or "")
        for name in node.names
        if name.name.startswith("_")
    }
    assert private <= {"__version__"}
