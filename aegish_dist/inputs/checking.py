"""The one way to check input: a type says what is allowed, and msgspec compares."""

from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

import msgspec

from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs import REFUSALS

T = TypeVar("T")


def checked(
    values: object, kind: type[T], *, from_text: bool = False, exact: Iterable[type] = ()
) -> T:
    """Turn parsed values into a record, its defaults filled in, or raise an InputError.

    Args:
        from_text: Whether a text may stand for a number or a flag, as environment variables do.
        exact: Types whose values are accepted as they are, and nothing in their place.
    """
    try:
        return msgspec.convert(
            values, kind, strict=not from_text, dec_hook=_built, builtin_types=exact
        )
    except REFUSALS as error:
        from aegish_dist.inputs.wording import worded  # noqa: PLC0415  only errors need its patterns

        again = partial(msgspec.convert, strict=not from_text, dec_hook=_built, builtin_types=exact)
        raise worded(error, values, kind, again) from None


def refuse(*cases: tuple[object, str, str]) -> None:
    """Raise an `InputError` for the first case that holds: what holds, the field, the problem."""
    for holds, field, problem in cases:
        if holds:
            raise InputError(problem, field=field)


def _built(kind: type[Any], value: object) -> object:
    return kind(value)


class Location(msgspec.Struct, frozen=True):
    """A record of a file; `with` it, an `InputError` becomes a `DatasetError` that names it."""

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

    def named(self, error: InputError, field: str | None = None) -> DatasetError:
        what = f"{error.what}, not {error.found}" if error.found else error.what
        what = what.replace("a table", "an object")  # JSON's word; records are not of TOML
        line = error.line if self.line is None else self.line
        return DatasetError(
            what, source=self.source, line=line, field=error.below(field or "").field
        )
