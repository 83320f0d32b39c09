"""Rules about the source that import contracts cannot express."""

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from aegish_dist import errors
from tests.house import imports, nodes, parsed, product

ROOT = Path(__file__).parents[2]
COMPOSITION_ROOTS = (
    "aegish_dist/cli/",
    "aegish_dist/db/migrations/env.py",
    "workers/app.py",
    "workers/lifecycle.py",
)
"""Whatever starts a process reads its environment; everything below takes values."""
MAY_PRINT = {
    "aegish_dist/cli/printing.py",  # prints, and makes the consoles
    "aegish_dist/cli/status.py",  # takes the terminal and gives it back
    "aegish_dist/logs.py",  # logs
    "aegish_dist/providers/python_host.py",  # programs of their own, as the next two
    "aegish_dist/providers/supervisor.py",
    "aegish_dist/simulator/guard.py",  # a program of its own, which answers there
}
PRINTS = {"print", "echo", "secho", "click.echo", "click.secho", "Console", "traceback.print_exc"}
STREAMS = {"sys.stdout", "sys.stderr"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of the product with its path from the root."""
    for path in product().values():
        yield path.relative_to(ROOT).as_posix(), parsed(path)


def called(node: ast.AST) -> str | None:
    """Return the name of a function that a node calls, without the module before it."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def test_only_composition_roots_build_settings() -> None:
    builders = {
        path
        for path, tree in sources()
        if any(called(node) in ("load_settings", "Settings") for node in nodes(tree))
    }
    assert {path for path in builders if not path.startswith(COMPOSITION_ROOTS)} == set()
    assert "workers/app.py" in builders


def test_import_contracts_have_no_exception() -> None:
    assert "ignore_imports" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def exception_classes() -> dict[str, list[str]]:
    """Return the classes that derive from an exception, through any base, by module."""
    known = {name for name, each in vars(builtins).items() if is_exception(each)}
    found: defaultdict[str, list[str]] = defaultdict(list)
    classes = [
        (path, node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases})
        for path, tree in sources()
        for node in nodes(tree)
        if isinstance(node, ast.ClassDef)
    ]
    while new := [each for each in classes if each[2] & known and each[1] not in known]:
        for path, name, _ in new:
            found[path].append(name)
        known.update(name for _, name, _ in new)
    return found


def is_exception(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, BaseException)


def test_every_exception_class_is_in_one_module() -> None:
    found = exception_classes()
    assert set(found) == {"aegish_dist/errors.py"}
    assert len(found["aegish_dist/errors.py"]) > 15


def test_every_exception_says_when_it_is_raised() -> None:
    """The docstring begins with `Raised`; that of a base class says what it is the base of."""
    documented = {
        name: each.__doc__ or "" for name, each in vars(errors).items() if is_exception(each)
    }
    wrong = {n: d for n, d in documented.items() if not d.startswith(("Raised ", "Base of "))}
    assert wrong == {}


def printers(tree: ast.Module) -> set[str]:
    called = {ast.unparse(node.func) for node in nodes(tree) if isinstance(node, ast.Call)}
    read = {ast.unparse(node) for node in nodes(tree) if isinstance(node, ast.Attribute)}
    return (called & PRINTS) | (read & STREAMS)


def test_nothing_prints_but_the_one_place() -> None:
    migrations = (ROOT / "aegish_dist/db/migrations/versions").glob("*.py")
    assert not any(printers(parsed(path)) for path in migrations)
    assert {path for path, tree in sources() if printers(tree)} == MAY_PRINT


def importers(*prefixes: str) -> set[str]:
    """Return the packages of the product whose modules import something of that name."""
    found = set()
    for path, tree in sources():
        package, _, rest = path.partition("/")
        if package == "aegish_dist" and any(name.startswith(prefixes) for name in imports(tree)):
            found.add(rest.partition("/")[0])
    return found


def test_documents_of_others_are_parsed_in_inputs_alone() -> None:
    assert importers("yaml") == {"inputs"}
    assert importers("tomllib") <= {"inputs", "ratelimit"}  # which reads a file of its own


def test_answers_of_providers_alone_are_read_leniently() -> None:
    assert importers("aegish_dist.providers.lenient") == {"providers"}


def test_every_reader_of_files_checks_by_types() -> None:
    readers = {"settings.py", "models", "simulator", "prompts", "datasets", "interchange"}
    assert importers("aegish_dist.inputs.checking") >= readers
    assert not importers("pydantic", "jsonschema", "attrs")
