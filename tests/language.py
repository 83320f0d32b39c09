"""Lists places that break the rules of language in CONTRIBUTING.md, as `file:line: text`.

Run with `python tests/language.py PATH...`.

Python files: docstrings, comments and prose in string literals. Lua and SQL files: comments.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

Offence = tuple[int, str]
"""1-based line and text."""

BANNED = {
    # Words of another century, or of no textbook, and the word to use in their place.
    r"whoever|whomever|whatsoever|whosoever": "name the thing",
    r"lest": "so that … not",
    r"untold|told": "reported, sent, distinguished",
    r"in vain": "without success, unsuccessful",
    r"nobody|somebody|anybody|everybody|no-one|someone": "name the process, the caller, the user",
    r"dead(?!\s+(?:tuple|letter|row)|-letter)": "closed, lost, stopped, failing, unused",
    r"(?:send|sends|sent|sending|turn|turns|turned|turning)s? away": "return to the queue, refuse, reject",
    r"(?:come|comes|came|coming) back": "return, be reachable again",
    r"(?:lives|live) again": "answers again",
    r"heed\w*": "follow, obey, respect",
    r"purses?": "spend ledger, budget",
    r"rations?|rationed": "lease, share of the rate",
    r"pumps?|pumped|pumping": "renewer loop",
    r"gatekeepers?": "limiter",
    r"whence|thence|hence|hitherto|hereof|thereof|wherein|whereby|whilst|amongst|albeit|thus":
        "plain English",
    r"at hand": "prefetched, available",
    r"for good(?! reason)": "permanently",
    r"to no avail|bears? a grudge|makes? do|gets? wind": "plain English",
    r"afresh|anew|aloud|askers?|foretells?|notwithstanding|reckon(?:s|ed)?|mingles?|untruths?":
        "plain English",
}  # fmt: skip
"""Patterns of words, and the hint that goes with them."""

_BANNED = [
    (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), hint)
    for pattern, hint in BANNED.items()
]
_SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|COPY|SET|ANALYZE)\b")


def main() -> None:
    """Print every offence below the paths of the command line; exit 1 if there is one."""
    found = [
        f"{path}:{line}: {text}\n"
        for path in files(sys.argv[1:])
        for line, text in sorted(offences(path))
    ]
    sys.stdout.writelines(found)
    sys.exit(bool(found))


def files(paths: list[str]) -> Iterator[Path]:
    """Yield the Python, Lua and SQL files at or below the paths, migrations left out."""
    for path in map(Path, paths):
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            # Merged migrations are never edited.
            if file.suffix in {".py", ".lua", ".sql"} and file.parent.name != "versions":
                yield file


def offences(path: Path) -> Iterator[Offence]:
    """Yield every offence of one file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from _line_comments(text)
        return
    tree = ast.parse(text)
    docstrings = set(_docstrings(tree))
    for node in docstrings:
        yield from _docstring(node)
    yield from _literals(tree, docstrings)
    yield from _comments(text)


def _line_comments(text: str) -> Iterator[Offence]:
    for number, line in enumerate(text.splitlines(), 1):
        _, mark, comment = line.partition("--")
        if mark:
            yield from _words(comment, number)


def _words(prose: str, first_line: int) -> Iterator[Offence]:
    for pattern, hint in _BANNED:
        for match in pattern.finditer(prose):
            line = first_line + prose.count("\n", 0, match.start())
            yield line, f"'{match[0]}' ({hint})"


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Docstrings of definitions, and strings that stand alone below a field or constant."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as docstring):
                yield docstring


def _docstring(node: ast.Constant) -> Iterator[Offence]:
    text = str(node.value)
    if re.match(r"\s*what\b", text, re.IGNORECASE):
        yield node.lineno, f"docstring begins with 'What': {text.strip().splitlines()[0][:70]}"
    yield from _words(text, node.lineno)


def _literals(tree: ast.AST, docstrings: set[ast.Constant]) -> Iterator[Offence]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in docstrings:
            text = node.value
            if isinstance(text, str) and " " in text.strip() and not _SQL.match(text):
                yield from _words(text, node.lineno)


def _comments(text: str) -> Iterator[Offence]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from _words(token.string, token.start[0])


if __name__ == "__main__":
    main()
