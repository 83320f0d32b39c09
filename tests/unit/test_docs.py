"""Names in the documentation: every file, module, class, method and function in backticks exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.test_size import parsed, product

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("aegish_dist", "workers", "tests", "benchmarks", "docs", "deploy")

_FENCE = re.compile(r"^(`{3,})(.*?)^\1$", re.MULTILINE | re.DOTALL)
_NEW = re.compile(r"^`{3,}.*\bnew=(\S+)", re.MULTILINE)
_QUOTED = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./-]*\w\.(?:py|lua|sql|md|toml|js|css)|[\w-]+(?:/[\w.-]+)*/")
_DOTTED = re.compile(r"(?:aegish_dist|workers)(?:\.\w+)+")
_MEMBER = re.compile(r"([A-Z]\w*)\.(\w+)(?:\(\))?")
_CLASS = re.compile(r"[A-Z][a-z]+[A-Z]\w*")
_FUNCTION_IN = re.compile(r"`(\w+)`(?: and `(\w+)`)? (?:in|of)\s+`([\w/]+\.py)`")
OTHERS = {"StrEnum", "OpenAI", "LiteLLM", "PgBouncer", "OpenRouter", "DeepSeek"}
"""Names that look like our classes and are not."""


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


@pytest.fixture(scope="module")
def code() -> Code:
    found = Code({}, {})
    for name, path in product().items():
        found.modules[name] = set(defined(parsed(path).body))
        for node in ast.walk(parsed(path)):
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


def dotted_exists(name: str, code: Code) -> bool:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module, rest = ".".join(parts[:end]), parts[end:]
        if module in code.modules:
            top = not rest or rest[0] in code.modules[module]
            return top and (len(rest) < 2 or rest[1] in code.classes.get(rest[0], {rest[1]}))
    return False


def unknown(page: str, code: Code) -> Iterator[str]:
    """Yield the names of a page that do not exist."""
    new = set(_NEW.findall(page))
    for name in quoted(page):
        name = name.split()[-1]  # of a command line, its file  # noqa: PLW2901
        if name in new or any(path.endswith("/" + name) for path in new):
            continue
        if (_FILE.fullmatch(name) and "/" in name) or name.endswith((".py", ".lua")):
            exists = file_exists(name)
        elif _DOTTED.fullmatch(name):
            exists = dotted_exists(name, code)
        elif member := _MEMBER.fullmatch(name):
            exists = member[2] in code.classes.get(member[1], {member[2]})
        else:
            exists = not _CLASS.fullmatch(name) or name in code.classes or name in OTHERS
        if not exists:
            yield name
    for *names, path in _FUNCTION_IN.findall(_FENCE.sub("", page)):
        module = path.removesuffix(".py").replace("/", ".")
        yield from (f"{n} in {path}" for n in names if n and n not in code.modules.get(module, {n}))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_a_page_exist(page: Path, code: Code) -> None:
    assert list(unknown(page.read_text(encoding="utf-8"), code)) == []


@pytest.mark.parametrize(
    "name",
    [
        "aegish_dist/queue/transport.py",
        "transport.py",
        "take.lua",
        "aegish_dist.broker.app.make_app",
        "aegish_dist.nothing",
        "TaskPool.pump",
        "GateKeeper",
        "make_app` in `aegish_dist/broker/app.py",
    ],
)
def test_a_stale_name_is_found(name: str, code: Code) -> None:
    assert len(list(unknown(f"It is `{name}`.", code))) == 1
