"""The one way to check input: a type says what is allowed, and msgspec compares.

What it refuses is put into words here. A value may be a key in the wrong place, so messages name
its type at most.
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from aegish_dist.core.text import did_you_mean
from aegish_dist.errors import DatasetError, InputError

T = TypeVar("T")
REFUSALS = (msgspec.ValidationError, UnicodeEncodeError, RecursionError)


def checked(
    values: object, kind: type[T], *, from_text: bool = False, exact: Iterable[type] = ()
) -> T:
    """Turn parsed values into a record, its defaults filled in, or raise an InputError.

    With `from_text` a text may stand for a number or a flag, as environment variables do. Values of
    `exact` types are accepted as they are, and nothing in their place.
    """
    convert: Callable[[object, type[T]], T] = partial(
        msgspec.convert,
        strict=not from_text,
        dec_hook=lambda custom, value: custom(value),
        builtin_types=exact,
    )
    try:
        return convert(values, kind)
    except REFUSALS as error:
        raise _worded(error, values, kind, convert) from None


def refuse(*cases: tuple[object, str, str]) -> None:
    """Raise an `InputError` for the first case that holds: what holds, the field, the problem."""
    for holds, field, problem in cases:
        if holds:
            raise InputError(problem, field=field)


class Location(msgspec.Struct, frozen=True):
    """A record of a file; `with` it, an `InputError` or `OSError` is a `DatasetError` on it."""

    source: str
    line: int | None = None  # record number; None for the file as a whole

    def error(self, what: str, field: str | None = None) -> DatasetError:
        return DatasetError(what, source=self.source, line=self.line, field=field)

    def checked(self, values: object, kind: type[T], field: str | None = None) -> T:
        """Turn a record, or the `field` of it that dotted keys name, into what its type says."""
        try:
            return checked(values, kind)
        except InputError as error:
            raise self.named(error, field) from None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, InputError):
            raise self.named(error) from None
        if isinstance(error, OSError):
            raise self.error(f"cannot be read: {error.strerror or error}") from error

    def named(self, error: InputError, field: str | None = None) -> DatasetError:
        what = f"{error.what}, not {error.found}" if error.found else error.what
        what = what.replace("a table", "an object")  # JSON's word; records are not of TOML
        line = error.line if self.line is None else self.line
        return DatasetError(
            what, source=self.source, line=line, field=error.below(field or "").field
        )


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
_LOCATION = r" - at (?:`key` in )?`\$\.?([^`]*)`$"
_WRONG_TYPE = r"Expected `([^`]+)`(?:, got `([^`]+)`)?$"
_OUT_OF_BOUNDS = r"Expected `[^`]+` [<>]=? |Number out of range"
_WRONG_LENGTH = r"Expected `([^`]+)` of length ([<>]=) ([0-9]+)"
_MISSING = r"Object missing required field `([^`]+)`"
_UNKNOWN = r"(?s)Object contains unknown field `(.*)`"


def _worded(error: Exception, values: Any, kind: Any, convert: Callable[..., Any]) -> InputError:
    """Return an error of msgspec in the words of people."""
    if isinstance(error, RecursionError):
        return InputError("is nested too deeply")
    if isinstance(error, UnicodeEncodeError):
        given = values.items() if isinstance(values, dict) else ()
        field = next((key for key, value in given if value == error.object), None)
        return InputError("must not contain half a surrogate pair", field=field)
    message = str(error)
    location = re.search(_LOCATION, message)
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


def _problem_in_mapping(values: Any, kind: Any, convert: Callable[..., Any]) -> InputError:
    """Find the key with a wrong value, which msgspec does not name."""
    value_kind = next(get_args(part)[1] for part in _parts(kind) if get_origin(part) is dict)
    for key, value in values.items():
        try:
            convert(value, value_kind)
        except REFUSALS as error:
            return _worded(error, value, value_kind, convert).below(key)
    return InputError("cannot be read")


def _described(what: str, kind: object) -> InputError:
    metas = (each for part in _parts(kind) for each in getattr(part, "__metadata__", ()))
    meta = next(metas, msgspec.Meta())
    if found := re.match(_MISSING, what):
        return InputError("is missing", field=found[1])
    if found := re.match(_UNKNOWN, what):
        unknown = "unknown key" if found[1] else "a key without a name"
        fields = list(_fields(kind))
        hint = did_you_mean(found[1], fields, f"known are {', '.join(fields)}")
        return InputError(f"{unknown}; {hint}", field=found[1] or None)
    if found := re.match(_WRONG_TYPE, what):
        got = _FOUND.get(found[2], found[2]) if found[2] else ""
        return InputError(f"must be {meta.title or _allowed(found[1])}", found=got)
    if re.match(_OUT_OF_BOUNDS, what):
        what = f"must be {_range(meta)}"
    elif found := re.match(_WRONG_LENGTH, what):
        parts = "entries" if found[1] == "array" else "characters"
        most = f"must have at most {int(found[3]):,} {parts}"
        what = most if found[2] == "<=" else "must not be empty"
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
