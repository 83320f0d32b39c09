"""Lists places that break the rules of language in CONTRIBUTING.md, as `file:line: text`.

Run with `python tests/language.py PATH...`.

Python files: docstrings, comments, prose in string literals, names of definitions, and the parts a
public definition has to document. Lua and SQL files: comments. Files below `tests` and
`benchmarks` are checked for words alone, not for the parts of a docstring.
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

MIN_PARAMETERS = 3
"""Parameters from which on a public function needs `Args:`."""

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
_BANNED_NAMES = re.compile(r"(?:purses?|rations?|pumps?|heed\w*|told|news|lest|whoever)")
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SQL = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|COPY|SET|ANALYZE)\b")
_FIELD_BASES = {"Struct", "NamedTuple", "TypedDict"}
_OWN_BASES = _FIELD_BASES | {"Protocol", "Generic", "ABC"}
_CLI = {"command", "group", "callback", "result_callback"}
_WORDS_ONLY = {"tests", "benchmarks", ".ci"}


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
    yield from _names(tree)
    if not _WORDS_ONLY & set(_below_project(path)):
        yield from _module(tree)


def _below_project(path: Path) -> tuple[str, ...]:
    """Parts of the path below the folder that holds `pyproject.toml`."""
    absolute = path.absolute()
    for folder in absolute.parents:
        if (folder / "pyproject.toml").exists():
            return absolute.relative_to(folder).parts
    return path.parts


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


def _names(tree: ast.AST) -> Iterator[Offence]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _name(name, node.lineno)
            case ast.ClassDef(name=name):
                yield from _name(name, node.lineno)
            case ast.arg(arg=name):
                yield from _name(name, node.lineno)
            case ast.Name(id=name, ctx=ast.Store()):
                yield from _name(name, node.lineno)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield from _name(name, node.lineno)


def _name(name: str, line: int) -> Iterator[Offence]:
    for part in _NAME_PARTS.findall(name):
        if _BANNED_NAMES.fullmatch(part.lower()):
            yield line, f"name '{name}' holds '{part}'"


def _module(tree: ast.Module) -> Iterator[Offence]:
    if tree.body and not ast.get_docstring(tree):
        yield 1, "module without docstring"
    yield from _definitions(tree.body)


def _definitions(body: list[ast.stmt]) -> Iterator[Offence]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield from _class(node)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("_"):
                    yield from _function(node)
            case ast.If(body=then, orelse=otherwise):
                yield from _definitions([*then, *otherwise])


def _class(node: ast.ClassDef) -> Iterator[Offence]:
    if not ast.get_docstring(node):
        yield node.lineno, f"class {node.name} without docstring"
    if _has_fields(node):
        yield from _fields(node)
    bases = {_last(base) for base in node.bases}
    for line, text in _definitions(node.body):
        # A method of a class with a base is taken to be documented there.
        if not (bases - _OWN_BASES and text.endswith("without Args:")):
            yield line, text


def _has_fields(node: ast.ClassDef) -> bool:
    bases = {_last(base) for base in node.bases}
    return bool(bases & _FIELD_BASES) or "dataclass" in {_last(d) for d in node.decorator_list}


def _fields(node: ast.ClassDef) -> Iterator[Offence]:
    for statement, below in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                documented = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                if not documented:
                    yield statement.lineno, f"field {node.name}.{name} without a line under it"


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Offence]:
    decorators = {_last(decorator) for decorator in node.decorator_list}
    if decorators & {"overload", "override", "setter"}:
        return
    docstring = ast.get_docstring(node)
    if docstring is None:
        yield node.lineno, f"function {node.name} without docstring"
        return
    # The docstring of a command is its help text.
    if decorators & _CLI or re.search(r"^\s*Args:$", docstring, re.MULTILINE):
        return
    names = _parameters(node)
    if len(names) >= MIN_PARAMETERS:
        yield node.lineno, f"function {node.name}({', '.join(names)}) without Args:"


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = node.args
    names = [argument.arg for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
    return [name for name in names if name not in {"self", "cls"} and not name.startswith("_")]


def _last(node: ast.expr) -> str:
    """Last part of a dotted name, without its call or subscript."""
    match node:
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _last(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


if __name__ == "__main__":
    main()
