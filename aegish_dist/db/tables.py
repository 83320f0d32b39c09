"""The schema as SQLAlchemy mappings; Alembic migrations are compared with it in the tests.

`verdicts` has its natural key as primary key: the database itself keeps a second verdict for the
same item out, whatever the queue delivers. There is no row per planned item; what is missing is
models x samples x epochs, and what retries plan, minus verdicts.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from aegish_dist.core.sample import Target
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.db.base import Base, one_of
from aegish_dist.db.codes import CODE
from aegish_dist.db.text import AnyText
from aegish_dist.db.verdict_rows import KEY_COLUMNS, table_checks, table_columns


class DatasetRow(Base):
    """A dataset, identified by the fingerprint of its content."""

    __tablename__ = "datasets"
    __table_args__ = (UniqueConstraint("name", "fingerprint"),)

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    name: Mapped[str]
    fingerprint: Mapped[str]
    source: Mapped[str]
    licence: Mapped[str]
    samples: Mapped[int]
    malicious: Mapped[int]
    selectable: Mapped[bool]
    """False for the selections that runs make with --limit and --categories, and for imports."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SampleRow(Base):
    """One labelled command of one dataset."""

    __tablename__ = "samples"
    __table_args__ = (
        UniqueConstraint("dataset_id", "sample_id"),
        one_of("target", Target),
    )

    key: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id", ondelete="CASCADE"))
    sample_id: Mapped[str]
    command: Mapped[str]
    target: Mapped[str]
    category: Mapped[str | None]
    cluster: Mapped[str | None]
    details: Mapped[dict[str, Any]]
    """`Sample.metadata`; that word is taken by SQLAlchemy."""


class PromptRow(Base):
    """A prompt, identified by the fingerprint of its texts."""

    __tablename__ = "prompts"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    name: Mapped[str]
    fingerprint: Mapped[str] = mapped_column(unique=True)
    system: Mapped[str]
    template: Mapped[str]


class RunRow(Base):
    """Everything needed to repeat a run."""

    __tablename__ = "runs"
    __table_args__ = (
        CheckConstraint("epochs >= 1", name="epochs"),
        CheckConstraint("origin IN ('submit', 'import')", name="origin"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    origin: Mapped[str]
    package_version: Mapped[str]
    prompt_id: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"))
    parameters: Mapped[dict[str, Any] | None]
    epochs: Mapped[int] = mapped_column(SmallInteger)
    created_at: Mapped[datetime]


class RunDatasetRow(Base):
    """Which datasets a run asks."""

    __tablename__ = "run_datasets"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), primary_key=True)


class RunModelRow(Base):
    """Which models a run asks, as resolved at submit."""

    __tablename__ = "run_models"
    __table_args__ = (
        UniqueConstraint("run_id", "model"),
        Index("ix_run_models_open", "queue", postgresql_where=text("open")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    model: Mapped[str]
    spec: Mapped[dict[str, Any]]
    queue: Mapped[str]
    open: Mapped[bool]
    """Whether workers should listen to the queue: set by submit and resume, cleared when nothing
    is missing."""
    datasets: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    """Those of the run's datasets that the model was put to; null: all of them."""


COVERED = (
    *("code", "parser_version", "stored_at", "confidence"),
    *("service_ms", "queue_ms", "limiter_ms", "backoff_ms", "total_ms"),
    *("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "cost_usd"),
)
"""What the primary key of verdicts carries along: all that is counted, so that counting reads a
third of the bytes, model by model."""


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
    """The model of a run."""
    sample_key: Mapped[int]
    """The sample."""
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
    message: Mapped[str] = mapped_column(AnyText)
    at: Mapped[datetime]


class RetryRow(Base):
    """One `retry` of a run: what ended in some outcomes was planned once more."""

    __tablename__ = "retries"
    __table_args__ = (CheckConstraint("generation >= 1", name="generation"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    generation: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    outcomes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    items: Mapped[int] = mapped_column(BigInteger)
    """How many it planned."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class RetriedItemRow(Base):
    """An item that a retry planned, which is the only way to a verdict of a later generation.

    First tries have no such rows: they are models x samples x epochs. Of the items that a retry
    plans nothing else is known, as verdicts go on arriving while it is made.
    """

    __tablename__ = "retried_items"

    run_model_id: Mapped[int] = mapped_column(
        ForeignKey("run_models.id", ondelete="CASCADE"), primary_key=True
    )
    sample_key: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    epoch: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    generation: Mapped[int] = mapped_column(SmallInteger, primary_key=True)


class WorkerRow(Base):
    """A living worker process and what it is busy with; rewritten every second."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(primary_key=True)
    in_flight: Mapped[list[dict[str, Any]]]
    """`[{"run", "model", "items"}]`, with `halt` where the worker does not call it any more."""
    seen_at: Mapped[datetime]


class SnapshotRow(Base):
    """One aggregation of a run under one scoring rule. Append-only."""

    __tablename__ = "snapshots"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    scoring: Mapped[str]
    scoring_version: Mapped[int]
    metrics_version: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    """Of the formulas."""
    parser_versions: Mapped[str]
    """Versions of the parser behind the verdicts, comma-separated."""
    verdicts: Mapped[int] = mapped_column(BigInteger)
    verdicts_hash: Mapped[str]
    code_version: Mapped[str]
    document: Mapped[dict[str, Any]]
    """`models` and `ranking` of the machine interface."""
    identities: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    """By model, which verdicts its entry was made of."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SnapshotMetricRow(Base):
    """One number of a snapshot, for those who ask in SQL."""

    __tablename__ = "snapshot_metrics"

    snapshot_id: Mapped[int] = mapped_column(
        ForeignKey("snapshots.id", ondelete="CASCADE"), primary_key=True
    )
    model: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    category: Mapped[str] = mapped_column(primary_key=True)
    """Empty for metrics over all categories."""
    value: Mapped[float | None]
    stderr: Mapped[float | None]
    stderr_clustered: Mapped[float | None]
    ci_low: Mapped[float | None]
    ci_high: Mapped[float | None]
    n: Mapped[int] = mapped_column(BigInteger)
    clusters: Mapped[int | None]


METADATA = Base.metadata
"""All tables; whoever needs them gets them from here, where they are defined."""
