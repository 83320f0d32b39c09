"""Rules about the source that import contracts cannot express."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPOSITION_ROOTS = (
    "aegish_dist/cli/",
    "aegish_dist/db/migrations/env.py",
    "workers/app.py",
    "workers/lifecycle.py",
)
"""Whatever starts a process reads its environment; everything below takes values."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of the product with its path from the root."""
    for package in ("aegish_dist", "workers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def called(node: ast.AST) -> str | None:
    """Return the name of a function that a node calls, without the module before it."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def test_only_composition_roots_build_settings() -> None:
    """The command line, the workers and the migrations read the environment, nothing else does."""
    builders = {
        path
        for path, tree in sources()
        if any(called(node) in ("load_settings", "Settings") for node in ast.walk(tree))
    }
    assert {path for path in builders if not path.startswith(COMPOSITION_ROOTS)} == set()
    assert "workers/app.py" in builders


def test_import_contracts_have_no_exception() -> None:
    """A forbidden package is forbidden everywhere."""
    assert "ignore_imports" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
