"""Values that others recorded, checked by msgspec; what is wrong in the words of their file.

`inputs.checking` words what a person typed into a setting by the type that msgspec expected. A
record is wrong somewhere among millions, so its wording looks at the value again: it names the key
of a mapping, both ends of a range, and the type found.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import msgspec
from msgspec.inspect import (
    BoolType,
    DecimalType,
    DictType,
    EnumType,
    FloatType,
    IntType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from aegish_dist.errors import InputError

MAX_COST_USD = Decimal(10) ** 9
"""No single call costs more."""
MAX_COST_DECIMALS = 100
"""Exact costs need some thirty decimals; hostile ones could need a billion."""

_PLAIN: tuple[tuple[type[Type], tuple[type, ...], str], ...] = (
    (Metadata, (str,), "an ISO 8601 time"),
    (StrType, (str,), "text"),
    (EnumType, (str,), "text"),
    (BoolType, (bool,), "true or false"),
    (IntType, (int,), "a whole number"),
    (FloatType, (int, float, Decimal), "a number"),
    (DecimalType, (int, float, Decimal, str), "a decimal number"),
)
"""Types of fields, the types of values that they take, and the name of these."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_USUAL_COST = re.compile(r"[0-9]{1,9}(\.[0-9]{1,40})?(E-[0-5]?[0-9])?")
_USUAL_MOMENT = re.compile(
    r"20[-0-9]{8}[T ][:0-9]{8}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-9]{2})"
)
"""Which any calendar and PostgreSQL take, once its parts are numbers that a date can have."""


def converted(value: object, kind: Any, field: str = "") -> Any:
    """Return a value as its type says.

    Args:
        value: As decoded from JSON or Arrow.
        kind: A type that `core.verdict_record` names, or one made of such.
        field: Name of the field, for the error.

    Raises:
        InputError: The value is not of the type, or out of its range; names the field.
    """
    try:
        return msgspec.convert(value, kind)
    except (ValueError, RecursionError):
        raise _problem(value, kind, field) from None


def moment(text: str, field: str) -> str:
    """Return a point in time as text that PostgreSQL and Python read.

    Raises:
        InputError: It is no time, has no time zone, or lies outside the years 1 to 9999 in UTC.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InputError("must be an ISO 8601 time", field=field) from None
    if _USUAL_MOMENT.fullmatch(text):
        return text
    if parsed.utcoffset() is None:
        raise InputError("must carry a time zone, such as Z or +02:00", field=field)
    try:
        return parsed.astimezone(UTC).isoformat()  # PostgreSQL refuses zones 16 hours away
    except OverflowError:
        problem = "must be a time from the year 1 to 9999, in UTC"
        raise InputError(problem, field=field) from None


def cost(amount: Decimal, field: str) -> Decimal:
    """Return an amount of USD that a call may cost.

    Raises:
        InputError: It is not finite, has too many decimals, or is out of range.
    """
    if _USUAL_COST.fullmatch(str(amount)):
        return amount
    exponent = amount.as_tuple().exponent
    if not (isinstance(exponent, int) and exponent >= -MAX_COST_DECIMALS):
        problem = f"must be finite, with at most {MAX_COST_DECIMALS} decimals"
        raise InputError(problem, field=field)
    if not 0 <= amount <= MAX_COST_USD:
        raise InputError(f"must be from 0 to {MAX_COST_USD:f}", field=field)
    return amount


def label(text: str | None, field: str) -> str | None:
    """Return a text that names something; None where it is blank.

    Raises:
        InputError: PostgreSQL cannot store it.
    """
    if not text or text.isspace():
        return None
    return storable(text, field)


def required_label(text: str | None, field: str) -> str:
    """Return a text that names something.

    Raises:
        InputError: It is blank, or PostgreSQL cannot store it.
    """
    found = label(text, field)
    if found is None:
        raise InputError("is missing or blank", field=field)
    return found


def storable(text: str, field: str) -> str:
    """Return a text that PostgreSQL can store.

    Raises:
        InputError: It holds U+0000, or UTF-8 cannot hold it.
    """
    if _UNSTORABLE.search(text):
        raise InputError("must not contain U+0000 or half a surrogate pair", field=field)
    return text


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (ValueError, RecursionError):
        return False
    return True


def _problem(value: object, kind: Any, field: str) -> InputError:
    """Return what is wrong with a value that is not as its type says."""
    match _without_null(type_info(kind)):
        case _ if value is None:
            problem = "is missing or blank"
        case StructType(cls=struct) if isinstance(value, Mapping):
            return _problem_within(value, struct, field)
        case VarTupleType(item_type=StructType(cls=struct)) if _is_list_of_objects(value):
            items = cast(list[Mapping[str, object]], value)
            index = next(index for index, each in enumerate(items) if not _fits(each, struct))
            return _problem_within(items[index], struct, f"{field}[{index}]")
        case DictType() if isinstance(value, Mapping):
            key = next(key for key, text in value.items() if not isinstance(text, str))
            problem, field = wrong_type("text", value[key]), f"{field}.{key}"
        case StructType() | DictType():
            problem = wrong_type("an object", value)
        case VarTupleType():
            problem = "must be a list of objects"
        case plain:
            problem = _plain_problem(value, plain)
    return InputError(problem, field=field)


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def _problem_within(values: Mapping[str, object], struct: Any, field: str) -> InputError:
    prefix = f"{field}." if field else ""
    for each in msgspec.structs.fields(struct):
        value = values.get(each.name)
        if (each.required or each.name in values) and not _fits(value, each.type):
            return _problem(value, each.type, prefix + each.name)
    return InputError("cannot be read", field=field or None)


def _without_null(kind: Type) -> Type:
    if isinstance(kind, UnionType):
        return next(each for each in kind.types if not isinstance(each, NoneType))
    return kind


def _plain_problem(value: object, kind: Type) -> str:
    """Return what is wrong with a text, a number or a flag."""
    for info, types, words in _PLAIN:
        if isinstance(kind, info):
            is_flag = isinstance(value, bool) and info is not BoolType
            if is_flag or not isinstance(value, types):
                return wrong_type(words, value)
    match kind:
        case StrType(max_length=most):
            return f"must have at most {most} characters"
        case EnumType(cls=choices):
            return f"must be one of {', '.join(str(each.value) for each in choices)}"
        case IntType(ge=lowest, le=highest) | FloatType(ge=lowest, le=highest):
            return f"must be from {lowest} to {highest}"
        case _:
            return "must be a decimal number"


def wrong_type(expected: str, value: object) -> str:
    """Return what is wrong with a value of another type than expected."""
    return f"must be {expected}, not {_kind(value)}"


def _wrong(expected: str, value: object, field: str) -> InputError:
    return InputError(wrong_type(expected, value), field=field)


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | float() | Decimal():
            return "a number"
        case list():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return type(value).__name__
