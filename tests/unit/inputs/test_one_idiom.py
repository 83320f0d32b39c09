"""Input is parsed and checked in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import aegish_dist

PACKAGE = Path(aegish_dist.__file__).parent


def imports(path: Path) -> Iterator[str]:
    """Yield the modules and names that a file imports, at its top or in a function."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def importers(*prefixes: str) -> set[str]:
    """Return the packages of the product whose modules import something of that name."""
    found = {
        path.relative_to(PACKAGE)
        for path in PACKAGE.rglob("*.py")
        for name in imports(path)
        if name.startswith(prefixes)
    }
    return {path.parts[0] for path in found}


def test_documents_of_others_are_parsed_in_inputs_alone() -> None:
    assert importers("yaml") == {"inputs"}
    assert importers("tomllib") <= {"inputs", "ratelimit"}  # which reads a file of its own


def test_answers_of_providers_alone_are_read_leniently() -> None:
    assert importers("aegish_dist.providers.lenient") == {"providers"}


def test_every_reader_of_files_checks_by_types() -> None:
    readers = {"settings.py", "models", "simulator", "prompts", "datasets", "interchange"}
    assert importers("aegish_dist.inputs.checking") >= readers
    assert not importers("pydantic", "jsonschema", "attrs")
