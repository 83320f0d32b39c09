"""One file of a GTFOBins checkout, named after its program.

Since January 2026 it is YAML without extension; before, it was Markdown with YAML at its head,
where sudo and SUID were functions of their own beside the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aegish_dist.datasets.draft import read_text
from aegish_dist.datasets.plain_yaml import first_document
from aegish_dist.datasets.validation import MAX_COMMAND_CHARS
from aegish_dist.errors import DatasetError

MAX_FILE_BYTES = 2**18
"""Files of GTFOBins have up to 4 KiB."""
OLDER_SUFFIX = ".md"
_RENAMED = {
    "file-upload": "upload",
    "file-download": "download",
    "non-interactive-reverse-shell": "reverse-shell",
    "non-interactive-bind-shell": "bind-shell",
    # Until August 2018.
    "execute-interactive": "shell",
    "execute-non-interactive": "command",
    "reverse-shell-interactive": "reverse-shell",
    "reverse-shell-non-interactive": "reverse-shell",
    "bind-shell-interactive": "bind-shell",
    "bind-shell-non-interactive": "bind-shell",
}
"""Functions of the older layout by their names of today."""
_CONTEXTS = ("unprivileged", "sudo", "suid", "capabilities")


@dataclass(frozen=True, slots=True)
class Entry:
    """One example."""

    function: str
    """What it achieves: `shell`, `file-read`, ..., or `inherit`."""
    code: str
    """The command, placeholders included."""
    needs_root: bool
    """Whether it works only under sudo, with SUID or with capabilities."""
    version: str | None = None
    """Versions it works with, in words; None for all."""
    inherits: str | None = None
    """The program an `inherit` entry leads to; None for other functions."""


@dataclass(frozen=True, slots=True)
class Program:
    """What one file says."""

    name: str
    """The program."""
    file: Path
    """The text that says so."""
    alias_of: str | None
    """Another program with the same examples; None for a program of its own."""
    entries: tuple[Entry, ...]
    """Empty for an alias."""


def read_program(path: Path) -> Program:
    """Read one file.

    Raises:
        DatasetError: When it is not such a file, with the line where YAML knows it.
    """
    content = _Node(str(path), "", _load(path))
    name = path.name.removesuffix(OLDER_SUFFIX)
    alias_of = content.optional_text("alias")
    if alias_of is not None:
        return Program(name, path, alias_of, ())
    functions = content.child("functions")
    entries = (
        _entry(_RENAMED.get(function, function), node)
        for function in functions.mapping()
        for node in functions.child(function).items()
    )
    return Program(name, path, None, tuple(entries))


def _load(path: Path) -> object:
    try:
        return first_document(read_text(path, MAX_FILE_BYTES))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise DatasetError(f"is not YAML: {error.problem}", source=str(path), line=line) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise DatasetError(f"is not YAML: {reason}", source=str(path)) from error


def _entry(function: str, node: "_Node") -> Entry:
    contexts = node.child("contexts")
    usable = [name for name in _CONTEXTS if name in contexts.mapping()] or ["unprivileged"]
    code = contexts.child(usable[0]).optional_text("code") or node.optional_text("code")
    if code is None:
        raise node.wrong("code", "is missing")
    inherits = node.optional_text("from")
    if function == "inherit" and inherits is None:
        raise node.wrong("from", "is missing")
    version = node.mapping().get("version")
    if len(code) > MAX_COMMAND_CHARS:
        raise node.wrong("code", f"has more than {MAX_COMMAND_CHARS:,} characters")
    return Entry(
        function=function,
        code=code.strip(),
        needs_root="unprivileged" not in usable,
        version=None if version is None else str(version),
        inherits=inherits,
    )


@dataclass(frozen=True, slots=True)
class _Node:
    """A place in the document that knows how to complain about itself."""

    file: str
    field: str
    value: object

    def wrong(self, key: str, problem: str) -> DatasetError:
        field = f"{self.field}.{key}".strip(".") or None
        return DatasetError(problem, source=self.file, field=field)

    def mapping(self) -> dict[Any, Any]:
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.wrong("", "must be a mapping")
        return self.value

    def child(self, key: str) -> "_Node":
        return _Node(self.file, f"{self.field}.{key}".strip("."), self.mapping().get(key))

    def items(self) -> Iterator["_Node"]:
        if not isinstance(self.value, list):
            raise self.wrong("", "must be a list")
        for index, value in enumerate(self.value):
            yield _Node(self.file, f"{self.field}[{index}]", value)

    def optional_text(self, key: str) -> str | None:
        value = self.mapping().get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, f"must be text, not {type(value).__name__}")
        return value or None
