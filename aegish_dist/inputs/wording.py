"""The words for what msgspec refuses.

A value may be a key in the wrong place, so messages name its type at most.
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from aegish_dist.errors import InputError
from aegish_dist.inputs import REFUSALS

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
_FOUND = {**_NAMES, "date": "a date"}
_LOCATION = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_WRONG_TYPE = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?$")
_OUT_OF_BOUNDS = re.compile(r"Expected `[^`]+` [<>]=? |Number out of range")
_WRONG_LENGTH = re.compile(r"Expected `[^`]+` of length ([<>]=) ([0-9]+)")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def worded(error: Exception, values: Any, kind: Any, convert: Callable[..., Any]) -> InputError:
    """Return an error of msgspec in the words of people."""
    if isinstance(error, RecursionError):
        return InputError("is nested too deeply")
    if isinstance(error, UnicodeEncodeError):
        return _half_a_surrogate_pair(values, kind, convert)
    message = str(error)
    location = _LOCATION.search(message)
    path = location[1] if location else ""
    mapping, in_mapping, _ = path.partition("[...]")
    if in_mapping:
        inner = values
        for name, index in re.findall(r"([^.\[\]]+)|\[([0-9]+)\]", mapping):
            inner = inner[name] if name else inner[int(index)]
        return _problem_in_mapping(inner, _at(kind, mapping), convert).below(mapping)
    if isinstance(error.__cause__, InputError):  # raised in `__post_init__`
        return error.__cause__.below(path)
    what = message[: location.start()] if location else message
    return _described(what, _at(kind, path)).below(path)


def _half_a_surrogate_pair(values: Any, kind: Any, convert: Callable[..., Any]) -> InputError:
    """Find the field, which msgspec does not name."""
    for key, value_kind in _fields(kind).items() if isinstance(values, dict) else ():
        if key in values:
            try:
                convert(values[key], value_kind)
            except UnicodeEncodeError:
                return _half_a_surrogate_pair(values[key], value_kind, convert).below(key)
            except REFUSALS:
                continue
    return InputError("must not contain half a surrogate pair")


def _problem_in_mapping(values: Any, kind: Any, convert: Callable[..., Any]) -> InputError:
    """Find the key with a wrong value, which msgspec does not name."""
    value_kind = next(get_args(part)[1] for part in _parts(kind) if get_origin(part) is dict)
    for key, value in values.items():
        try:
            convert(value, value_kind)
        except REFUSALS as error:
            return worded(error, value, value_kind, convert).below(key)
    return InputError("cannot be read")


def _described(what: str, kind: object) -> InputError:
    meta = _meta(kind)
    if found := _MISSING.match(what):
        return InputError("is missing", field=found[1])
    if found := _UNKNOWN.match(what):
        unknown = "unknown key" if found[1] else "a key without a name"
        return InputError(
            f"{unknown}; known are {', '.join(_fields(kind))}", field=found[1] or None
        )
    if found := _WRONG_TYPE.match(what):
        got = _FOUND.get(found[2], found[2]) if found[2] else ""
        return InputError(f"must be {meta.title or _allowed(found[1])}", found=got)
    if _OUT_OF_BOUNDS.match(what):
        what = f"must be {_range(meta)}"
    elif found := _WRONG_LENGTH.match(what):
        most = f"must have at most {int(found[2]):,} characters"
        what = most if found[1] == "<=" else "must not be empty"
    elif what.startswith("Invalid enum value"):  # and the value, which may be a key
        what = f"must be one of {', '.join(map(repr, _choices(kind)))}"
    elif what.startswith("Invalid decimal"):
        what = "must be a decimal number"
    return InputError(what)


def _range(meta: msgspec.Meta) -> str:
    """Name the limits of a number, both of them where there are two."""
    limits = {
        "at least": meta.ge,
        "greater than": meta.gt,
        "at most": meta.le,
        "less than": meta.lt,
    }
    named = {
        words: f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"
        for words, limit in limits.items()
        if limit is not None
    }
    if meta.ge is not None and meta.le is not None:
        return f"from {named['at least']} to {named['at most']}"
    return " and ".join(map(" ".join, named.items())) or "a smaller number"


def _meta(kind: object) -> msgspec.Meta:
    metas = (each for part in _parts(kind) for each in getattr(part, "__metadata__", ()))
    return next(metas, msgspec.Meta())


def _allowed(names: str) -> str:
    types = names.split(" | ")
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
    for part in _parts(kind):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return {each.encode_name: each.type for each in msgspec.structs.fields(part)}
    return {}


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
