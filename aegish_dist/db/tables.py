"""The schema as SQLAlchemy mappings; Alembic migrations are compared with it in the tests.

There is no row per planned item: the missing ones are models x samples x epochs, and those that
retries plan, minus verdicts. Verdicts have a module of their own, `verdict_tables`.

The tables of batches and of the items in them.
"""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from aegish_dist.core.batches import BatchState
from aegish_dist.core.sample import Target
from aegish_dist.db.base import Base, one_of
from aegish_dist.db.verdict_tables import CallErrorRow, VerdictRow


class BatchRow(Base):
    """One batch of a model of a run: an outbox of what a provider is asked, and its state.

    Written with its items in one transaction, before the provider hears of it. Any worker takes it
    when it is due; taking it moves `due_at` by a lease, so that one worker at a time is at it.
    """

    __tablename__ = "batches"
    __table_args__ = (
        one_of("state", BatchState),
        Index("ix_batches_due", "due_at", postgresql_where=text("state <> 'ended'")),
        Index("ix_batches_run_model_id", "run_model_id"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    run_model_id: Mapped[int] = mapped_column(ForeignKey("run_models.id", ondelete="CASCADE"))
    token: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str]
    requests: Mapped[int]
    expected_usd: Mapped[Decimal | None]
    """Expected cost in USD; null: a price is unknown."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    creating_at: Mapped[datetime | None]
    """When the latest attempt to hand it over began; null: the provider does not know it."""
    submitted_at: Mapped[datetime | None]
    """When the provider's name for it was stored."""
    ended_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]
    """When the provider was asked to cancel it; null: it was not."""
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())
    """When a worker may take it next: of one that a worker has, the end of that worker's lease."""
    worker: Mapped[str | None]
    """The worker that has it, or had it when it was killed; null: none."""
    failures: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    """Failed requests about it in a row, after which the next one waits longer."""
    provider_name: Mapped[str | None]
    """The provider's name for it; null until one is stored."""
    adopted: Mapped[bool] = mapped_column(server_default=text("false"))
    """Whether that name was found after an attempt whose answer was lost; its results prove it."""
    refused_names: Mapped[list[dict[str, Any]]] = mapped_column(server_default=text("'[]'"))
    """`[{"name"}]`: batches of the provider that looked like it and are known not to be it."""
    counts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    """Results by kind, and the provider's own numbers before its end."""
    problem: Mapped[str | None]


class BatchedItemRow(Base):
    """An item that is or was asked in a batch and has no verdict yet.

    Its key is a verdict's: an item is in one open batch at most. The row goes when its verdict is
    stored.
    """

    __tablename__ = "batched_items"
    __table_args__ = (Index("ix_batched_items_batch_id", "batch_id"),)

    run_model_id: Mapped[int] = mapped_column(
        ForeignKey("run_models.id", ondelete="CASCADE"), primary_key=True
    )
    sample_key: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    epoch: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    generation: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    batch_id: Mapped[int | None] = mapped_column(ForeignKey("batches.id", ondelete="SET NULL"))
    """The open batch that it is in; null: it is free to be asked again."""
    tries: Mapped[int] = mapped_column(SmallInteger, server_default=text("1"))
    """Batches that it has been in, that one included."""
    live: Mapped[bool] = mapped_column(server_default=text("false"))
    """Whether batches are given up for it, and it is asked live."""
    problem: Mapped[str | None]
    """Problem that its last batch named; null: none."""


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
        CheckConstraint("held IN ('paused', 'cancelled')", name="held"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    origin: Mapped[str]
    package_version: Mapped[str]
    prompt_id: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"))
    parameters: Mapped[dict[str, Any] | None]
    epochs: Mapped[int] = mapped_column(SmallInteger)
    created_at: Mapped[datetime]
    held: Mapped[str | None]
    """Why workers fetch none of its items although some have no verdict; null: they fetch."""
    pruned_completions: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    """How many of its completions were deleted while their verdicts stayed."""
    pruned_at: Mapped[datetime | None]
    """When that happened last; null: never."""


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
    batch_from: Mapped[datetime | None]
    """From when its items are asked in batches; null: never. Set when the run is stored."""


class RetryRow(Base):
    """One `retry` of a run: what ended in some outcomes was planned once more."""

    __tablename__ = "retries"
    __table_args__ = (CheckConstraint("generation >= 1", name="generation"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    generation: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    outcomes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    items: Mapped[int] = mapped_column(BigInteger)
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
    """A living worker process and what it is busy with; rewritten every second or two."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(primary_key=True)
    in_flight: Mapped[list[dict[str, Any]]]
    """`[{"run", "model", "items"}]`, with `halt` where the worker does not call it any more, and
    more of `worker_entries`."""
    seen_at: Mapped[datetime]
    about: Mapped[dict[str, Any] | None]
    """Its versions and its clock; null of a worker that is older than this column."""


class SnapshotRow(Base):
    """One aggregation of a run under one scoring rule. Append-only."""

    __tablename__ = "snapshots"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    scoring: Mapped[str]
    scoring_version: Mapped[int]
    metrics_version: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    parser_versions: Mapped[str]
    """Versions of the parser behind the verdicts, comma-separated."""
    verdicts: Mapped[int] = mapped_column(BigInteger)
    verdicts_hash: Mapped[str]
    code_version: Mapped[str]
    document: Mapped[dict[str, Any]]
    identities: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    """By model, which verdicts its entry was made of."""
    opinion: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    """`scoring`, `targets` and `overlay`: name, version and fingerprint of each, and their content
    where it came from a file."""
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AggregationRow(Base):
    """One aggregation that a worker was asked for, or is about to be: an outbox.

    Written in the transaction that finds a run complete, so that exactly one comes of each
    completion, and enqueued after its commit.
    """

    __tablename__ = "aggregations"
    __table_args__ = (
        UniqueConstraint("run_id", "completion"),
        Index("ix_aggregations_open", "id", postgresql_where=text("finished_at IS NULL")),
    )

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    completion: Mapped[str | None]
    """Which completion of the run asked for it."""
    scoring: Mapped[str]
    requested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    enqueued_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    snapshot_ids: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    """The snapshots that it made; null until then."""
    problem: Mapped[str | None]
    """Why it made none; null when it did."""


class SnapshotMetricRow(Base):
    """One number of a snapshot, for those who ask in SQL."""

    __tablename__ = "snapshot_metrics"

    snapshot_id: Mapped[int] = mapped_column(
        ForeignKey("snapshots.id", ondelete="CASCADE"), primary_key=True
    )
    model: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    category: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    stderr: Mapped[float | None]
    stderr_clustered: Mapped[float | None]
    ci_low: Mapped[float | None]
    ci_high: Mapped[float | None]
    n: Mapped[int] = mapped_column(BigInteger)
    clusters: Mapped[int | None]


ELSEWHERE = (VerdictRow, CallErrorRow, BatchRow, BatchedItemRow)
METADATA = Base.metadata
"""All tables: those of this module and those elsewhere."""
