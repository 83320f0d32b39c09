"""The one way to check input: a type says what is allowed, and msgspec compares.

What it refuses is said in its words, behind the keys that lead there. A value may be a key in the
wrong place, so messages name its type at most.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import ValidationError

from aegish_dist.errors import DatasetError, InputError

T = TypeVar("T")
Convert = Callable[..., Any]


def checked(
    values: object,
    kind: type[T],
    *,
    from_text: bool = False,
    exact: Iterable[type] = (),
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
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except UnicodeEncodeError as error:
        given = values.items() if isinstance(values, dict) else ()
        field = next((key for key, value in given if value == error.object), None)
        raise InputError("must not contain half a surrogate pair", field=field) from None
    except ValidationError as error:
        raise _located(error, values, kind, convert) from None


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
        return DatasetError(
            what,
            source=self.source,
            line=self.line,
            field=field,
        )

    def checked(
        self,
        values: object,
        kind: type[T],
        field: str | None = None,
    ) -> T:
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
            reason = error.strerror or str(error)
            raise self.error(f"cannot be read: {reason}") from error

    def named(self, error: InputError, field: str | None = None) -> DatasetError:
        line = error.line if self.line is None else self.line
        where = error.below(field or "").field
        return DatasetError(
            error.what,
            source=self.source,
            line=line,
            field=where,
        )


def _located(
    error: ValidationError,
    values: object,
    kind: object,
    convert: Convert,
) -> InputError:
    """Return what msgspec says, with the keys that lead to the value as field."""
    what, _, place = str(error).rpartition(" - at ")
    if not what:
        what, place = place, ""
    in_key, _, path = place.strip("`").rpartition("$")
    if what.startswith("Object "):  # lacks a field, or has one that is unknown
        path += f".{what.partition('`')[2].removesuffix('`')}"
    path = path.removeprefix(".")
    if isinstance(error.__cause__, InputError):  # raised in `__post_init__`
        problem = error.__cause__
    elif what.startswith("Invalid enum value"):  # and the value, which may be a key
        choices = ", ".join(map(repr, _choices(kind, path)))
        problem = InputError(f"must be one of {choices}")
    elif in_key:
        problem = InputError(f"{what}, as a key")
    else:
        problem = InputError(what)

    return problem.below(_with_key(path, values, kind, convert))


def _with_key(
    path: str,
    values: object,
    kind: object,
    convert: Convert,
) -> str:
    """Name the key of a table of the top level with a wrong value, which msgspec does not name."""
    name, in_mapping, rest = path.partition("[...]")
    if in_mapping and isinstance(values, dict) and name in values:
        for key, value in values[name].items():
            try:
                convert({**values, name: {key: value}}, kind)
            except ValidationError:
                return f"{name}.{key}{rest}"

    return path


def _choices(kind: object, path: str) -> list[str]:
    """Return the values of the enumeration that a path leads to."""
    for key in path.split("."):
        fields: dict[str, object] = {}
        for part in _parts(kind):
            for field in _fields(part):
                fields[field.encode_name] = field.type
        kind = fields.get(key.partition("[")[0], kind)

    choices: list[str] = []
    for part in _parts(kind):
        if get_origin(part) is Literal:
            choices += get_args(part)
        elif isinstance(part, type) and issubclass(part, Enum):
            choices += [str(each.value) for each in part]

    return choices


def _fields(kind: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    is_record = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return msgspec.structs.fields(kind) if is_record else ()


def _parts(kind: object) -> Iterator[object]:
    """Yield a type and what unions, containers and annotations wrap in it."""
    yield kind
    if get_origin(kind) is not Literal:
        for part in get_args(kind):
            yield from _parts(part)
