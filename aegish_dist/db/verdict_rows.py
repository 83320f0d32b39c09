"""The columns of verdicts and of failed attempts, and one verdict as such a row."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from msgspec.inspect import DecimalType, EnumType, FloatType, IntType
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Numeric,
    SmallInteger,
    Text,
)
from sqlalchemy.types import TypeEngine

from aegish_dist.core.verdict import CallError, Verdict
from aegish_dist.core.verdict_record import (
    MAX_COUNT,
    STORED,
    AttemptRecord,
    RecordField,
    columns_of,
)
from aegish_dist.db.base import one_of


@dataclass(frozen=True, slots=True)
class VerdictKey:
    """The natural key of a verdict in the store."""

    run_model_id: int
    sample_key: int
    epoch: int
    """1-based repeat."""
    generation: int
    """0 for the first try, n for the n-th retry."""

    def columns(self) -> dict[str, int]:
        """Return the key by column."""
        return {name: getattr(self, name) for name in KEY_COLUMNS}


KEY_COLUMNS = tuple(each.name for each in fields(VerdictKey))
COLUMNS = ("run_model_id", "sample_key", *(str(each.column) for each in STORED))
"""Of `verdicts`, without those that the database fills."""
_OF_ERROR = tuple(each.name for each in fields(CallError))
ERROR_COLUMNS = (*KEY_COLUMNS, *_OF_ERROR)


def verdict_row(key: VerdictKey, verdict: Verdict) -> dict[str, object]:
    """Return a verdict by column; `str` of a value is its text for PostgreSQL."""
    return key.columns() | columns_of(verdict)


def error_row(key: VerdictKey, error: CallError | AttemptRecord) -> dict[str, object]:
    """Return a failed attempt by column, in the order of `ERROR_COLUMNS`; see `verdict_row`."""
    return key.columns() | {name: getattr(error, name) for name in _OF_ERROR}


def table_columns() -> Iterator[Column[Any]]:
    """Yield the columns of `verdicts` that a record fills."""
    for field in STORED:
        yield Column(str(field.column), _sql_type(field), nullable=field.nullable)


def _sql_type(field: RecordField) -> TypeEngine[Any]:
    match field.kind:
        case IntType(le=highest):
            return SmallInteger() if highest == MAX_COUNT else BigInteger()
        case FloatType():
            return Double()
        case DecimalType():
            return Numeric()
        case _ if field.is_moment:
            return DateTime(timezone=True)
        case _:
            return Text()


def table_checks() -> Iterator[CheckConstraint]:
    """Yield what the database checks of the columns that a record fills."""
    for field in STORED:
        column = str(field.column)
        match field.kind:
            case EnumType(cls=values) if issubclass(values, StrEnum):
                yield one_of(column, values)
            case IntType(ge=lowest) if column in ("epoch", "generation", "attempts"):
                yield CheckConstraint(f"{column} >= {lowest}", name=column)
    yield CheckConstraint("confidence BETWEEN 0 AND 1", name="confidence")
    yield CheckConstraint("cost_usd >= 0", name="cost_usd")
    yield _none_negative("tokens", "_tokens")
    yield _none_negative("timing", "_ms")


def _none_negative(name: str, suffix: str) -> CheckConstraint:
    columns = (str(each.column) for each in STORED if str(each.column).endswith(suffix))
    return CheckConstraint(f"LEAST({', '.join(columns)}) >= 0", name=name)
