"""The schema as SQLAlchemy mappings; Alembic migrations are compared with it in the tests.

There is no row per planned item: the missing ones are models x samples x epochs, and those that
retries plan, minus verdicts. A verdict's natural key is its primary key: the database itself keeps
a second verdict for the same item out, whatever the queue delivers.

The result of a call is stored as one number as well, which is cheaper to group millions of rows by
than words: 100 for the error class, 10 for the outcome, 1 for the stop kind, each times its
position in its enumeration; 31 is a BLOCK that ended by itself, and below 100 is all that was
answered. A new member goes to the end of its enumeration, and into `CODE` by a migration.
"""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.inspect import DecimalType, EnumType, FloatType, IntType
from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from aegish_dist.core.outcome import ErrorClass, Outcome, OutcomeDetail, StopKind, find
from aegish_dist.core.run import BatchState
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.verdict import CallError, Verdict
from aegish_dist.core.verdict_record import (
    MAX_COUNT,
    STORED,
    AttemptRecord,
    RecordField,
    columns_of,
)


def _position(column: str, values: type[StrEnum]) -> str:
    words = ", ".join(f"'{value}'" for value in values)
    return f"coalesce(array_position(ARRAY[{words}], {column}), 0)"


CODE = (
    f"(100 * {_position('error_class', ErrorClass)} + 10 * {_position('outcome', Outcome)}"
    f" + {_position('stop_kind', StopKind)})::smallint"
)


@cache
def finding_of(code: int) -> OutcomeDetail:
    """Classify the verdicts of a code as finely as any rule needs it."""
    error_class, stop_kind = code // 100, code % 10
    return find(
        outcome_of(code),
        list(StopKind)[stop_kind - 1] if stop_kind else None,
        list(ErrorClass)[error_class - 1] if error_class else None,
    )


def outcome_number(outcome: Outcome) -> int:
    return list(Outcome).index(outcome) + 1


def error_class_of(code: int) -> ErrorClass | None:
    """Return why the verdicts of a code have no completion, None when they have one."""
    return list(ErrorClass)[code // 100 - 1] if code >= 100 else None


def outcome_of(code: int) -> Outcome:
    return list(Outcome)[code // 10 % 10 - 1]


NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar = {
        str: Text,
        float: Double,
        Decimal: Numeric,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[dict[str, Any]]: JSONB,
    }


class AdvisoryLock(IntEnum):
    """PostgreSQL's advisory locks of this package; no other program takes these numbers."""

    MIGRATING = 0x61656769736801
    CLOSING = 0x61656769736802
    """Held by the one worker that looks for finished models; the others do not wait for it."""
    ADDING = 0x61656769736803
    """Held by a transaction from looking whether a dataset or a prompt is there to adding it."""
    BATCHING = 0x6165676974000000
    """Plus the key of a model of a run: held by the one worker that plans batches of that model."""


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    allowed = ", ".join(f"'{value.value}'" for value in values)
    return CheckConstraint(f"{column} IN ({allowed})", name=column)


class VerdictKey(Struct, frozen=True):
    """The natural key of a verdict in the store."""

    run_model_id: int
    sample_key: int
    epoch: int
    """1-based repeat."""
    generation: int
    """0 for the first try, n for the n-th retry."""

    def columns(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in KEY_COLUMNS}


KEY_COLUMNS = VerdictKey.__struct_fields__
COLUMNS = ("run_model_id", "sample_key", *(str(each.column) for each in STORED))
"""Of `verdicts`, without those that the database fills."""
_OF_ERROR = CallError.__struct_fields__
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
    generation: Mapped[int]
    error_class: Mapped[str | None]
    stored_at: Mapped[datetime]
    """When its transaction began, by the server's clock."""
    code: Mapped[int]
    """Outcome, error class and stop kind in one number; see `CODE`."""


class CallErrorRow(Base):
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
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    creating_at: Mapped[datetime | None]
    """When the latest attempt to hand it over began; null: the provider does not know it."""
    submitted_at: Mapped[datetime | None]
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
        one_of("target", TrueLabel),
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


class RunDatasetRow(Base):
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
    more of `db.fleet`."""
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
    pair_p: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'"))
    """Pairs of models, each with p of no difference of their scores, not adjusted."""
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
    scoring: Mapped[str]
    requested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    enqueued_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    snapshot_ids: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    problem: Mapped[str | None]


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


METADATA = Base.metadata
