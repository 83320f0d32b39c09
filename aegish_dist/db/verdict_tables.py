"""The tables of verdicts and of the failed attempts behind them.

A verdict's natural key is its primary key: the database itself keeps a second verdict for the same
item out, whatever the queue delivers.
"""

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Column,
    Computed,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.db.base import Base, one_of
from aegish_dist.db.codes import CODE
from aegish_dist.db.verdict_rows import KEY_COLUMNS, table_checks, table_columns

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
