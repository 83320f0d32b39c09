"""Findings of msgspec, put into the words of people who write TOML or set variables.

A value may be a key in the wrong place: messages name what is expected, never what was found.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "str": "text",
    "bool": "true or false",
    "date": "a date such as 2026-12-31",
    "object": "a table",
    "array": "a list",
}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "greater than", "<": "less than"}
_LOCATION = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_WRONG_TYPE = re.compile(r"Expected `([^`]+)`, got `")
_OUT_OF_BOUNDS = re.compile(r"Expected `[^`]+` ([<>]=?) ([-+.e0-9]+)")
_WRONG_LENGTH = re.compile(r"Expected `[^`]+` of length >= 1")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`", re.DOTALL)
_OURS = re.compile(r"key '([^']+)': (.*)", re.DOTALL)


class WrongValueError(ValueError):
    """Raised in `__post_init__` when the value of a key has the right type and is wrong."""

    def __init__(self, key: str, what: object) -> None:
        super().__init__(f"key '{key}': {what}")


def problem(error: msgspec.ValidationError, kind: type[msgspec.Struct]) -> tuple[str, str]:
    """Say where and what the problem is.

    Args:
        error: Raised while something was converted.
        kind: What it was converted to.

    Returns:
        Keys below the top, joined by dots and empty for the top itself; and what is expected
        there, as the rest of a sentence that begins with the key.
    """
    message = str(error)
    location = _LOCATION.search(message)
    path = location[1] if location else ""
    what = message[: location.start()] if location else message
    if found := _MISSING.match(what):
        return _joined(path, found[1]), "is missing"
    if found := _UNKNOWN.match(what):
        known = ", ".join(_fields(_at(kind, path)))
        return _joined(path, found[1]), f"unknown key; known are {known}"
    if found := _OURS.match(what):
        return _joined(path, found[1]), found[2]
    return path, _expected(what, _at(kind, path))


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _expected(what: str, kind: object) -> str:
    if found := _WRONG_TYPE.match(what):
        return f"must be {_allowed(found[1].split(' | '))}"
    if found := _OUT_OF_BOUNDS.match(what):
        return f"must be {_BOUNDS[found[1]]} {float(found[2]):,g}"
    if _WRONG_LENGTH.match(what):
        return "must not be empty"
    if what.startswith("Invalid enum value"):
        return f"must be one of {', '.join(repr(choice) for choice in _choices(kind))}"
    return what


def _allowed(types: list[str]) -> str:
    if "decimal" in types:
        types = ["decimal"]
    return " or ".join(_NAMES.get(each, each) for each in types if each != "null")


def _at(kind: object, path: str) -> object:
    """Return the type that a path leads to; indexes and keys of mappings are passed over."""
    for key in re.split(r"\.|\[[^]]*\]", path):
        if key:
            kind = _fields(kind).get(key)
    return kind


def _fields(kind: object) -> dict[str, Any]:
    """Return the keys of the table that is `kind` or stands in it, with their types."""
    structs = (each for each in _parts(kind) if isinstance(each, msgspec.StructMeta))
    found = next(structs, None)
    return {} if found is None else get_type_hints(found, include_extras=True)


def _choices(kind: object) -> list[str]:
    for part in _parts(kind):
        if get_origin(part) is Literal:
            return list(get_args(part))
        if isinstance(part, type) and issubclass(part, Enum):
            return [str(each.value) for each in part]
    return []


def _parts(kind: object) -> Iterable[object]:
    """Yield a type and what unions, containers and annotations wrap in it."""
    yield kind
    if get_origin(kind) is not Literal:
        arguments = get_args(kind)
        for part in arguments[:1] if get_origin(kind) is Annotated else arguments:
            yield from _parts(part)
