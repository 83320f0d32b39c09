"""The tables of verdicts and of the failed attempts behind them.

A verdict's natural key is its primary key: the database itself keeps a second verdict for the same
item out, whatever the queue delivers.

The columns of verdicts and of failed attempts, and one verdict as such a row.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec.inspect import DecimalType, EnumType, FloatType, IntType
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from aegish_dist.core.verdict import CallError, ErrorClass, Verdict
from aegish_dist.core.verdict_record import (
    MAX_COUNT,
    STORED,
    AttemptRecord,
    RecordField,
    columns_of,
)
from aegish_dist.db.base import Base, one_of
from aegish_dist.db.codes import CODE


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


COVERED = (
    *("code", "parser_version", "stored_at", "confidence"),
    *("service_ms", "queue_ms", "limiter_ms", "backoff_ms", "total_ms"),
    *("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "cost_usd"),
)
"""Columns that the primary key of verdicts carries along: all that is counted, so that counting
reads a third of the bytes, model by model."""


class VerdictRow(Base):
    """One model's answer about one sample. Insert-only; raw columns never change.

    A trigger checks, once per statement, that model and sample are there, and locks the models
    until the transaction ends: foreign keys would do so row by row, which took a third of the time
    of an insert. Deleting a run deletes its verdicts; samples that a run asks cannot be deleted.

    Not partitioned by run: the primary key begins with the model, so a run's verdicts lie together
    in the index. Counting a million took 2.1 s among eleven million, 1.9 s where they were alone.
    """

    __table__ = Table(
        "verdicts",
        Base.metadata,
        Column("run_model_id", Integer, nullable=False),
        Column("sample_key", BigInteger, nullable=False),
        *table_columns(),
        Column("stored_at", DateTime(timezone=True), server_default=func.now(), nullable=False),
        Column("code", SmallInteger, Computed(CODE, persisted=True), nullable=False),
        *table_checks(),
        Index("ix_verdicts_retried", "run_model_id", postgresql_where=text("generation > 0")),
        PrimaryKeyConstraint(*KEY_COLUMNS, postgresql_include=COVERED),
    )

    run_model_id: Mapped[int]
    sample_key: Mapped[int]
    epoch: Mapped[int]
    """1-based repeat."""
    generation: Mapped[int]
    """0 for the first try, n for the n-th retry."""
    error_class: Mapped[str | None]
    """Why no answer came; None where one did."""
    stored_at: Mapped[datetime]
    """When its transaction began, by the server's clock."""
    code: Mapped[int]
    """Outcome, error class and stop kind in one number; see `codes`."""


class CallErrorRow(Base):
    """One failed attempt."""

    __tablename__ = "call_errors"
    __table_args__ = (
        ForeignKeyConstraint(
            KEY_COLUMNS,
            [f"verdicts.{column}" for column in KEY_COLUMNS],
            ondelete="CASCADE",
            name="fk_call_errors_verdicts",
        ),
        one_of("error_class", ErrorClass),
    )

    run_model_id: Mapped[int] = mapped_column(primary_key=True)
    sample_key: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    epoch: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    generation: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    attempt: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    error_class: Mapped[str]
    status: Mapped[int | None] = mapped_column(SmallInteger)
    retry_after_s: Mapped[float | None]
    message: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime]
