"""The one way to check input: a type says what is allowed, and msgspec compares.

Types are `msgspec.Struct` classes whose fields carry limits, as in
`Annotated[int, Meta(ge=1, le=10_000)]`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs import REFUSALS

T = TypeVar("T")


def checked(
    values: object, kind: type[T], *, from_text: bool = False, exact: Iterable[type] = ()
) -> T:
    """Turn parsed values into a record, if they are as its type says.

    Args:
        values: Tables, lists and plain values, as a parser returns them.
        kind: The type of the record, a `msgspec.Struct`, or of a list of records. Of a type that
            msgspec does not know, its constructor makes the value.
        from_text: Whether a text may stand for a number or a flag, as environment variables do.
        exact: Types whose values are accepted as they are, and nothing in their place.

    Returns:
        The record, its defaults filled in.

    Raises:
        InputError: Something is wrong; says what, and at which field.
    """
    try:
        return msgspec.convert(
            values, kind, strict=not from_text, dec_hook=_built, builtin_types=exact
        )
    except REFUSALS as error:
        from aegish_dist.inputs.wording import worded  # noqa: PLC0415  only errors need its patterns

        again = partial(msgspec.convert, strict=not from_text, dec_hook=_built, builtin_types=exact)
        raise worded(error, values, kind, again) from None


def _built(kind: type[Any], value: object) -> object:
    return kind(value)


@dataclass(frozen=True, slots=True)
class Location:
    """A record of a file, as errors about it name it.

    In the body of `with location:` an `InputError` becomes a `DatasetError` that names it.
    """

    source: str
    line: int | None = None
    """The 1-based line or record number, None for the file as a whole."""

    def error(self, what: str, field: str | None = None) -> DatasetError:
        """Return, to be raised, what is wrong with a field or with the record."""
        return DatasetError(what, source=self.source, line=self.line, field=field)

    def checked(self, values: object, kind: type[T], field: str | None = None) -> T:
        """Turn the parsed values of a record, or of one field of it, into what its type says.

        Args:
            field: Keys that lead to the values within the record, joined by dots.

        Raises:
            DatasetError: Something is wrong; names file, line and field.
        """
        try:
            return checked(values, kind)
        except InputError as error:
            raise self.named(error, field) from None

    def __enter__(self) -> None:
        """Begin a body whose errors are about this place."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Name this place in an error of the body."""
        if isinstance(error, InputError):
            raise self.named(error) from None

    def named(self, error: InputError, field: str | None = None) -> DatasetError:
        """Return, to be raised, an error with this place in it."""
        what = f"{error.what}, not {error.found}" if error.found else error.what
        what = what.replace("a table", "an object")  # JSON's word; records are not of TOML
        line = error.line if self.line is None else self.line
        return DatasetError(
            what, source=self.source, line=line, field=error.below(field or "").field
        )
