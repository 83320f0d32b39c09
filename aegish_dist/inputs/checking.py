"""The one way to check input: a type says what is allowed, msgspec compares, this words the error.

Types are `msgspec.Struct` classes whose fields carry limits, as in
`Annotated[int, Meta(ge=1, le=10_000)]`. A value may be a key in the wrong place, so messages name
what is expected and at most the type of what was found, never the value.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from aegish_dist.errors import DatasetError, InputError

T = TypeVar("T")

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
_BOUNDS = {">=": "at least", "<=": "at most", ">": "greater than", "<": "less than"}
_LOCATION = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_WRONG_TYPE = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?$")
_OUT_OF_BOUNDS = re.compile(r"Expected `[^`]+` ([<>]=?) ([-+.e0-9]+)")
_WRONG_LENGTH = re.compile(r"Expected `[^`]+` of length ([<>]=) ([0-9]+)")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`", re.DOTALL)


def checked(
    values: object,
    kind: type[T],
    *,
    from_text: bool = False,
    build: Callable[[type[Any], object], object] | None = None,
    exact: Iterable[type] = (),
) -> T:
    """Turn parsed values into a record, if they are as its type says.

    Args:
        values: Tables, lists and plain values, as a parser returns them.
        kind: The type of the record, a `msgspec.Struct`, or of a list of records.
        from_text: Whether a text may stand for a number or a flag, as environment variables do.
        build: Makes a value of a type that msgspec does not know.
        exact: Types whose values are accepted as they are, and nothing in their place.

    Returns:
        The record, its defaults filled in.

    Raises:
        InputError: Something is wrong; says what, and at which field.
    """
    try:
        return msgspec.convert(
            values, kind, strict=not from_text, dec_hook=build, builtin_types=exact
        )
    except msgspec.ValidationError as error:
        raise _problem(error, kind) from None
    except UnicodeEncodeError:
        raise InputError("must not contain half a surrogate pair") from None
    except RecursionError:
        raise InputError("is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class Place:
    """A record of a file, as errors about it name it.

    In the body of `with place:` an `InputError` becomes a `DatasetError` that names the place.
    """

    source: str
    """The file."""
    line: int | None = None
    """The 1-based line or record number, None for the file as a whole."""

    def error(self, what: str, field: str | None = None) -> DatasetError:
        """Return, to be raised, what is wrong with a field or with the record."""
        return DatasetError(what, source=self.source, line=self.line, field=field)

    def checked(self, values: object, kind: type[T], field: str | None = None) -> T:
        """Turn the parsed values of a record, or of one field of it, into what its type says.

        Args:
            values: Objects, lists and plain values, as decoded.
            kind: See `checked`.
            field: Keys that lead to the values within the record, joined by dots.

        Raises:
            DatasetError: Something is wrong; names file, line and field.
        """
        try:
            return checked(values, kind)
        except InputError as error:
            raise self._named(error, field) from None

    def __enter__(self) -> None:
        """Begin a body whose errors are about this place."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Name this place in an error of the body."""
        if isinstance(error, InputError):
            raise self._named(error) from None

    def _named(self, error: InputError, field: str | None = None) -> DatasetError:
        what = f"{error.what}, not {error.found}" if error.found else error.what
        what = what.replace("a table", "an object")  # JSON's word; records are not of TOML
        line = error.line if self.line is None else self.line
        return DatasetError(what, source=self.source, line=line, field=joined(field, error.field))


def joined(path: str | None, key: str | None) -> str | None:
    """Return the path of a key below another; None when both are None."""
    return f"{path or ''}.{key or ''}".replace(".[", "[").strip(".") or None


def _problem(error: msgspec.ValidationError, kind: object) -> InputError:
    message = str(error)
    location = _LOCATION.search(message)
    path = location[1] if location else ""
    if isinstance(error.__cause__, InputError):  # raised in `__post_init__`
        ours = error.__cause__
        return InputError(ours.what, field=joined(path, ours.field))
    what = message[: location.start()] if location else message
    if found := _MISSING.match(what):
        return InputError("is missing", field=joined(path, found[1]))
    if found := _UNKNOWN.match(what):
        known = ", ".join(_fields(_at(kind, path)))
        return InputError(f"unknown key; known are {known}", field=joined(path, found[1]))
    if found := _WRONG_TYPE.match(what):
        got = _FOUND.get(found[2], found[2]) if found[2] else ""
        return InputError(f"must be {_allowed(found[1])}", field=path or None, found=got)
    return InputError(_expected(what, _at(kind, path)), field=path or None)


def _expected(what: str, kind: object) -> str:
    if found := _OUT_OF_BOUNDS.match(what):
        return f"must be {_BOUNDS[found[1]]} {float(found[2]):,g}"
    if found := _WRONG_LENGTH.match(what):
        if found[1] == "<=":
            return f"must have at most {int(found[2]):,} characters"
        return "must not be empty"
    if what.startswith("Invalid enum value"):
        return f"must be one of {', '.join(repr(choice) for choice in _choices(kind))}"
    return what


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
