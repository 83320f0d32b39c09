"""Names in prose: every file, module, class, method, function and setting in backticks exists.

Prose is what pages say between their blocks, and docstrings and comments of the product. Headers of
`.sql` files name the modules that use them, and a term of the glossary stands there once.
"""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from aegish_dist.settings import Settings
from tests.house import nodes, parsed, product
from tests.recorded import lines_of
from tests.unit.test_language import prose

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("aegish_dist", "workers", "tests", "benchmarks", "docs", "deploy")

_FENCE = re.compile(r"^(`{3,})(.*?)^\1$", re.MULTILINE | re.DOTALL)
_NEW = re.compile(r"^`{3,}.*\bnew=(\S+)", re.MULTILINE)
_QUOTED = re.compile(r"`+([^`\n]+)`+")
_FILE = re.compile(r"[\w./-]*\w\.(?:py|lua|sql|md|toml|js|css)|[\w-]+(?:/[\w.-]+)*/")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?")
_DOTTED = re.compile(r"[a-z_]+(?:\.(?!NAME\b)\w+)+(?:\(\))?")
_IDENTIFIER = re.compile(
    r"_?[A-Za-z]\w*_\w*[a-z0-9](?:\(\))?|[a-z]\w+\(\)|[A-Z]+(?:_[A-Z]+)+|[a-z]\w*_[A-Z]+"
)
_CAPITALS = re.compile(r"(?<![A-Z])[A-Z]{2,}(?![A-Z])")
_HEAD = re.compile(r"^-- (?:name|fragment): (\w+)", re.MULTILINE)
_MEMBER = re.compile(r"([A-Z]\w*)\.(\w+)(?:\(\))?")
_CLASS = re.compile(r"[A-Z][a-z]+[A-Z]\w*")
_FUNCTION_IN = re.compile(r"`(\w+)`(?: and `(\w+)`)? (?:in|of)\s+`([\w/]+\.py)`")
OTHERS = {"StrEnum", "OpenAI", "LiteLLM", "PgBouncer", "OpenRouter", "DeepSeek", "ValueError"}
"""Names that look like our classes and are not."""
OF_OTHERS = {
    "acks_late",  # Celery
    "add_task_queue",
    "autovacuum_vacuum_cost_limit",  # PostgreSQL
    "idle_session_timeout",
    "pg_dump",
    "idle_transaction_timeout",  # PgBouncer
}
"""Identifiers of other programs, which no file of ours uses."""
STANDARDS = ("OTEL_",)
"""Prefixes of variables that a library of others reads."""
SUFFIXES = {"html", "json", "jsonl", "yaml", "yml", "toml", "txt", "csv", "tex", "parquet", "sh"}
"""Of files that users name."""


class Code(NamedTuple):
    modules: dict[str, set[str]]
    classes: dict[str, set[str]]  # attributes by class; classes of one name share an entry


def defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                yield from (alias.asname or alias.name for alias in names)


def assigned(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names that methods assign to `self`."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.attr


@cache
def words() -> frozenset[str]:
    """Return every word of the product, its tests and its deployment, but for this test's own.

    A word that a bracket follows, of a call or a definition, stands there with it, too: `open_run(`.
    """
    folders = ("aegish_dist", "workers", "tests", "benchmarks", "deploy", ".ci")
    kinds = {".py", ".sql", ".lua", ".js", ".toml", ".yaml", ".yml", ".json", ".conf", ".sh"}
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    paths += [ROOT / "pyproject.toml", ROOT / "Makefile"]
    found: set[str] = set()
    for path in paths:
        read = path.suffix in kinds or path.name == "Makefile"
        if read and path.is_file() and path != Path(__file__):
            text = path.read_text(encoding="utf-8", errors="replace")
            found.update(re.findall(r"\w+", text))
            found.update(re.findall(r"\w+\(", text))
    return frozenset(found)


def identifier_exists(name: str) -> bool:
    """Return whether a name is a word of ours, or a column beside one.

    A part in capitals stands for something: `correct_RULE`.
    """
    if name.endswith("()"):
        return name.removesuffix(")") in words()
    if name in words() or name in OF_OTHERS or name.startswith(STANDARDS):
        return True
    if name.startswith("AEGISH_DIST_"):
        return name.removeprefix("AEGISH_DIST_").lower() in Settings.__struct_fields__
    if name != name.upper() and _CAPITALS.search(name):
        return all(part in words() for part in _CAPITALS.split(name) if part.strip("_"))
    column = re.sub("_(ci_low|ci_high|n|stderr)$", "", name)  # of a CSV, beside its metric's
    return column in words()


@pytest.fixture(scope="module")
def code() -> Code:
    found = Code({}, {})
    for name, path in product().items():
        found.modules[name] = set(defined(parsed(path).body))
        for node in nodes(parsed(path)):
            if isinstance(node, ast.ClassDef):
                names = found.classes.setdefault(node.name, set())
                names |= {*defined(node.body), *assigned(node)}
    return found


def quoted(page: str) -> Iterator[str]:
    yield from _QUOTED.findall(_FENCE.sub("", page))


def file_exists(name: str) -> bool:
    """Return whether a file or folder of that path or last part of a path is in the tree."""
    if (ROOT / name).exists():
        return True
    folders = (ROOT / folder for folder in FOLDERS)
    return any(True for folder in folders for _ in folder.rglob(name.rstrip("/")))


def rooms(code: Code) -> set[str]:
    """Return the parts of the product that a path or a dotted name of prose begins with."""
    parts = (name.split(".") for name in code.modules)
    return {"aegish_dist", "workers"} | {
        name[1] for name in parts if name[0] == "aegish_dist" and name[1:]
    }


def path_exists(name: str) -> bool:
    """Return whether a path exists; `db/verdicts.look_up` is a name in a file."""
    if name != name.lower() and _CAPITALS.search(name):
        return True  # one that stands for several
    if file_exists(name):
        return True
    module, _, member = name.rpartition(".")
    sources = [path for path in product().values() if path.as_posix().endswith(f"/{module}.py")]
    return any(member in defined(parsed(path).body) for path in sources)


def dotted_exists(name: str, code: Code) -> bool:
    parts = name.removesuffix("()").split(".")
    if parts[0] not in {"aegish_dist", "workers"}:
        parts.insert(0, "aegish_dist")
    for end in range(len(parts), 0, -1):
        module, rest = ".".join(parts[:end]), parts[end:]
        if module in code.modules:
            top = not rest or rest[0] in code.modules[module]
            return top and (len(rest) < 2 or rest[1] in code.classes.get(rest[0], {rest[1]}))
    return False


def name_exists(name: str, code: Code) -> bool:
    """Return whether what stands in backticks exists, or is no name of ours by its form."""
    ours = re.split(r"[./]", name)[0] in rooms(code)
    if (_FILE.fullmatch(name) and "/" in name) or name.endswith((".py", ".lua", ".sql")):
        return path_exists(name)
    if _PATH.fullmatch(name) and (ours or name.split("/", maxsplit=1)[0] in FOLDERS):
        return path_exists(name)
    if _DOTTED.fullmatch(name) and ours and name.rpartition(".")[2] not in SUFFIXES:
        return dotted_exists(name, code)
    if member := _MEMBER.fullmatch(name):
        return member[2] in code.classes.get(member[1], {member[2]})
    if _CLASS.fullmatch(name):
        return name in code.classes or name in OTHERS
    return not _IDENTIFIER.fullmatch(name) or identifier_exists(name)


def unknown(page: str, code: Code) -> Iterator[str]:
    """Yield the names of a page that do not exist."""
    new = set(_NEW.findall(page))
    for said in quoted(page):
        name = said.split()[-1]  # of a command line, its file
        if name in new or any(path.endswith("/" + name) for path in new):
            continue
        if not name_exists(name, code):
            yield name
    for *names, path in _FUNCTION_IN.findall(_FENCE.sub("", page)):
        module = path.removesuffix(".py").replace("/", ".")
        yield from (f"{n} in {path}" for n in names if n and n not in code.modules.get(module, {n}))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_a_page_exist(page: Path, code: Code) -> None:
    assert list(unknown(page.read_text(encoding="utf-8"), code)) == []


@pytest.mark.parametrize("name", lines_of("stale_names.jsonl"))
def test_a_stale_name_is_found(name: str, code: Code) -> None:
    assert len(list(unknown(f"It is `{name}`.", code))) == 1


def is_bare(name: str) -> bool:
    """Return whether a name may be of a parameter, of another library, or the beginning of an id."""
    return bool(_IDENTIFIER.fullmatch(name) or _CLASS.fullmatch(name)) or name.endswith("/")


@pytest.mark.parametrize("part", ["aegish_dist", "workers"])
def test_names_in_docstrings_and_comments_exist(part: str, code: Code) -> None:
    """Also in comments of `.sql` and `.lua` files; bare identifiers there are often of parameters."""
    files = [path for path in (ROOT / part).rglob("*") if path.suffix in {".py", ".sql", ".lua"}]
    stale = []
    for path in files:
        if path.parent.name == "versions":
            continue
        for line, text in prose(path):
            names = [name for name in _QUOTED.findall(text) if not is_bare(name)]
            stale += [f"{path}:{line}: {n}" for n in names if not name_exists(n, code)]
    assert stale == []


CALLS = {"execute", "statement", "fragment"}
"""Functions of `db/engine.py` that take the name of a statement."""


def texts(tree: ast.AST) -> set[str]:
    """Return the strings of a module, and the names in braces within them."""
    constants = [node.value for node in nodes(tree) if isinstance(node, ast.Constant)]
    found = {value for value in constants if isinstance(value, str)}
    return found | {name for value in found for name in re.findall(r"\{(\w+)", value)}


@cache
def called_names(tree: ast.AST) -> set[str]:
    """Return the names of statements that a module asks for by a literal."""
    names: set[str] = set()
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                if name in CALLS:
                    literals = (each.value for each in args if isinstance(each, ast.Constant))
                    names.update(each for each in literals if isinstance(each, str))
    return names


def header_problems(sql: str, modules: dict[str, ast.Module]) -> Iterator[str]:
    """Yield what the header of a `.sql` file says wrongly about the modules that use it."""
    names = set(_HEAD.findall(sql))
    header = re.split(r"^-- (?:name|fragment): ", sql, flags=re.MULTILINE)[0]
    said = {f"aegish_dist.{name}" for name in re.findall(r"`((?:db|pipeline)\.[\w.]+)`", header)}
    for name in sorted(said):
        if name not in modules:
            yield f"{name} does not exist"
        elif not names & texts(modules[name]):
            yield f"{name} does not use it"
    for name, tree in modules.items():
        if name not in said and names & called_names(tree):
            yield f"{name} uses it, too"
    if not said:
        yield "it names no module"


SQL = sorted((ROOT / "aegish_dist/db/sql").glob("*.sql"))


@pytest.mark.parametrize("path", SQL, ids=lambda path: path.stem)
def test_the_header_of_a_sql_file_names_the_modules_that_use_it(path: Path) -> None:
    modules = {name: parsed(file) for name, file in product().items()}
    assert list(header_problems(path.read_text(encoding="utf-8"), modules)) == []


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("-- Counts: `db.counting` reads these.", []),
        ("-- Counts.", ["aegish_dist.db.counting uses it, too", "it names no module"]),
        (
            "-- Counts: `db.failures` and `db.counting` read these.",
            ["aegish_dist.db.failures does not exist"],
        ),
        (
            "-- Counts: `db.runs` and\n-- `db.counting` read these.",
            ["aegish_dist.db.runs does not use it"],
        ),
        (
            "-- Counts: `db.runs` reads these.",
            ["aegish_dist.db.runs does not use it", "aegish_dist.db.counting uses it, too"],
        ),
    ],
)
def test_a_header_that_is_wrong_is_found(header: str, says: list[str]) -> None:
    modules = {
        "aegish_dist.db.runs": ast.parse("execute(session, 'other')"),
        "aegish_dist.db.counting": ast.parse("text(f'{x}' + statement('counted').text)"),
    }
    sql = f"{header}\n\n-- name: counted\n-- All.\nSELECT 1\n"
    assert list(header_problems(sql, modules)) == says


GLOSSARY = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")


def terms(page: str) -> Iterator[str]:
    """Yield the terms of a glossary, each with what it is of: `epoch (of a run)`."""
    for cell in re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE):
        if cell != "term":
            yield from (term.strip().lower() for term in re.split(r",(?![^(]*\))", cell))


def test_a_term_of_the_glossary_stands_there_once() -> None:
    counted = Counter(terms(GLOSSARY))
    assert len(counted) > 100
    assert {term for term, number in counted.items() if number > 1} == set()


def test_each_term_of_the_glossary_says_where_it_lives() -> None:
    rows = re.findall(r"^\| (?!term)[^|]+ \|[^|]+\|([^|]+)\|$", GLOSSARY, re.MULTILINE)
    assert len(rows) > 100
    assert [row for row in rows if not re.fullmatch(r" `[\w./]+` ", row)] == []


def test_the_picture_of_packages_has_the_layers_of_the_contract() -> None:
    """In their order, each layer on a line; what follows a colon there is about it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    picture = _FENCE.search(page.partition("## Packages")[2])
    assert picture is not None
    drawn = [line.partition(":")[0].split() for line in picture[2].splitlines()[2:]]
    below = layers[layers.index("pipeline") :]
    assert [set(line) for line in drawn] == [set(layer.split(" | ")) for layer in below]
