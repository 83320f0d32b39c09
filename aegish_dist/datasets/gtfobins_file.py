"""One file of a GTFOBins checkout, named after its program.

Since January 2026 it is YAML without extension; before, it was Markdown with YAML at its head,
where sudo and SUID were functions of their own beside the others.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from aegish_dist.core.sample import MAX_COMMAND_CHARS
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import read_text
from aegish_dist.inputs.yaml import parse_yaml

MAX_PROGRAM_BYTES = 2**18
"""Size of a file; those of GTFOBins have up to 4 KiB."""
OLDER_SUFFIX = ".md"
_RENAMED = {
    "file-upload": "upload",
    "file-download": "download",
    "non-interactive-reverse-shell": "reverse-shell",
    "non-interactive-bind-shell": "bind-shell",
    # Names that GTFOBins used until August 2018.
    "execute-interactive": "shell",
    "execute-non-interactive": "command",
    "reverse-shell-interactive": "reverse-shell",
    "reverse-shell-non-interactive": "reverse-shell",
    "bind-shell-interactive": "bind-shell",
    "bind-shell-non-interactive": "bind-shell",
}
"""Names of the older layout to those of today."""
_CONTEXTS = ("unprivileged", "sudo", "suid", "capabilities")


@dataclass(frozen=True, slots=True)
class Entry:
    """One example."""

    function: str
    code: str
    needs_root: bool
    """Whether it works only under sudo, with SUID or with capabilities."""
    version: str | None = None
    """Versions it works with, in words; None for all."""
    inherits: str | None = None
    """The program an `inherit` entry leads to; None for other functions."""


@dataclass(frozen=True, slots=True)
class Program:
    """The content of one file."""

    name: str
    file: Path
    alias_of: str | None
    """Another program with the same examples; None for a program of its own."""
    entries: tuple[Entry, ...]


class _File(Struct):
    alias: str | None = None
    functions: Any = None


class _Example(Struct, rename={"program": "from"}):
    code: str | None = None
    program: str | None = None
    version: Any = None
    contexts: Any = None


class _Context(Struct):
    code: str | None = None


Node = TypeVar("Node", _File, _Example, _Context)


def read_program(path: Path) -> Program:
    """Read one file.

    Raises:
        DatasetError: It is not such a file; names the line where YAML knows it.
    """
    location = Location(str(path))
    with location:
        document = parse_yaml(read_text(path, MAX_PROGRAM_BYTES))
    file = _node(location, document, _File)
    name = path.name.removesuffix(OLDER_SUFFIX)
    if file.alias:
        return Program(name, path, file.alias, ())
    entries = (
        _entry(location, f"functions.{function}[{index}]", function, example)
        for function, examples in _mapping(location, file.functions, "functions").items()
        for index, example in enumerate(
            location.checked(examples, list[Any], f"functions.{function}")
        )
    )
    return Program(name, path, None, tuple(entries))


def _entry(location: Location, field: str, function: str, value: object) -> Entry:
    example = _node(location, value, _Example, field)
    contexts = _mapping(location, example.contexts, f"{field}.contexts")
    usable = [name for name in _CONTEXTS if name in contexts] or ["unprivileged"]
    first = _node(location, contexts.get(usable[0]), _Context, f"{field}.contexts.{usable[0]}")
    code = first.code or example.code
    if not code:
        raise location.error("is missing", f"{field}.code")
    if function == "inherit" and not example.program:
        raise location.error("is missing", f"{field}.from")
    if len(code) > MAX_COMMAND_CHARS:
        raise location.error(f"has more than {MAX_COMMAND_CHARS:,} characters", f"{field}.code")
    return Entry(
        function=_RENAMED.get(function, function),
        code=code.strip(),
        needs_root="unprivileged" not in usable,
        version=None if example.version is None else str(example.version),
        inherits=example.program or None,
    )


def _node(location: Location, value: object, kind: type[Node], field: str | None = None) -> Node:
    """Check the keys of a mapping that are read; others may be and hold anything."""
    mapping = _mapping(location, value, field)
    read = {key: mapping[key] for key in kind.__struct_encode_fields__ if key in mapping}
    return location.checked(read, kind, field)


def _mapping(location: Location, value: object, field: str | None) -> dict[Any, Any]:
    """Return a mapping; nothing is an empty one."""
    return {} if value is None else location.checked(value, dict[Any, Any], field)
