"""The schema: its tables for SQLAlchemy, and its version in a database.

Alembic migrations are compared with the tables in the tests. Alembic is imported where a migration
runs: a process that only compares versions, such as every worker, saves 8 MB and 60 ms.

There is no row per planned item: the missing ones are models x samples x epochs, and those that
retries plan, minus verdicts. A verdict's natural key is its primary key: the database itself keeps
a second verdict for the same item out, whatever the queue delivers.

The result of a call is stored as one number as well, which is cheaper to group millions of rows by
than words: 100 for the error class, 10 for the outcome, 1 for the stop kind, each times its
position in its enumeration; 31 is a BLOCK that ended by itself, and below 100 is all that was
answered. A new member goes to the end of its enumeration, and into `CODE` by a migration.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from msgspec import Struct
from msgspec.inspect import DecimalType, FloatType, IntType
from msgspec.structs import asdict
from psycopg.errors import LockNotAvailable
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Computed,
    Connection,
    DateTime,
    Double,
    Engine,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
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
from sqlalchemy.exc import OperationalError
from sqlalchemy.types import TypeEngine

from aegish_dist.core.outcome import (
    ErrorClass,
    Outcome,
    OutcomeDetail,
    StopKind,
    find,
)
from aegish_dist.core.verdict import (
    MAX_COUNT,
    MAX_TOKENS,
    STORED,
    AttemptRecord,
    CallError,
    RecordField,
    Verdict,
    columns_of,
)
from aegish_dist.db.engine import connection_errors_in_one_line, statement
from aegish_dist.errors import StoreError


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


_PARTS = product(range(len(ErrorClass) + 1), Outcome, range(len(StopKind) + 1))
CODES = tuple(
    100 * error_class + 10 * outcome_number(outcome) + stop_kind
    for error_class, outcome, stop_kind in _PARTS
)
"""All that a verdict may have."""


METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class AdvisoryLock(IntEnum):
    """PostgreSQL's advisory locks of this package; no other program takes these numbers."""

    MIGRATING = 0x61656769736801
    # Held by the one worker that looks for finished models; the others do not wait for it.
    CLOSING = 0x61656769736802
    # Held by a transaction from looking whether a dataset or a prompt is there to adding it.
    ADDING = 0x61656769736803
    # Plus the key of a model of a run: held by the one worker that plans batches of that model.
    BATCHING = 0x6165676974000000


class VerdictKey(Struct, frozen=True):
    """The natural key of a verdict in the store."""

    run_model_id: int
    sample_key: int
    epoch: int  # 1-based repeat
    generation: int  # 0 for the first try, n for the n-th retry

    def columns(self) -> dict[str, int]:
        return asdict(self)


KEY_COLUMNS = VerdictKey.__struct_fields__
# Of `verdicts`, without those that the database fills.
COLUMNS = ("run_model_id", "sample_key", *(str(each.column) for each in STORED))
ERROR_COLUMNS = (*KEY_COLUMNS, *CallError.__struct_fields__)


def verdict_row(key: VerdictKey, verdict: Verdict) -> dict[str, object]:
    """Return a verdict by column; `str` of a value is its text for PostgreSQL."""
    return key.columns() | columns_of(verdict)


def error_row(key: VerdictKey, error: CallError | AttemptRecord) -> dict[str, object]:
    """Return a failed attempt by column, in the order of `ERROR_COLUMNS`; see `verdict_row`."""
    return key.columns() | asdict(error)


_TIME = DateTime(timezone=True)
_TYPES: dict[type, TypeEngine[Any]] = {FloatType: Double(), DecimalType: Numeric()}


def _sql_type(field: RecordField) -> TypeEngine[Any]:
    if isinstance(field.kind, IntType):
        most = MAX_TOKENS if field.kind.le is None else field.kind.le
        return SmallInteger() if most <= MAX_COUNT else BigInteger()
    if field.is_moment:
        return _TIME
    return _TYPES.get(type(field.kind), Text())


# Columns that the primary key of verdicts carries along: all that is counted, so that counting
# reads a third of the bytes, model by model.
COVERED = (
    "code",
    "parser_version",
    "stored_at",
    "confidence",
    "suspicion",
    "service_ms",
    "queue_ms",
    "limiter_ms",
    "backoff_ms",
    "total_ms",
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost_usd",
)


_needed = partial(Column, nullable=False)


def _item_key(*of_model: ForeignKey) -> list[Column[Any]]:
    """Return the columns of `VerdictKey`, as the primary key of a table or a part of it."""
    return [
        Column("run_model_id", Integer, *of_model, primary_key=True),
        Column("sample_key", BigInteger, primary_key=True),
        Column("epoch", SmallInteger, primary_key=True),
        Column("generation", SmallInteger, primary_key=True),
    ]


_of_run = partial(ForeignKey, "runs.id", ondelete="CASCADE")
_of_model = partial(ForeignKey, "run_models.id", ondelete="CASCADE")

# One model's answer about one sample. Insert-only; raw columns never change.
#
# A trigger checks, once per statement, that model and sample are there, and locks the models until
# the transaction ends: foreign keys would do so row by row, which took a third of the time of an
# insert. Deleting a run deletes its verdicts; samples that a run asks cannot be deleted.
#
# Not partitioned by run: the primary key begins with the model, so a run's verdicts lie together in
# the index. Counting a million took 2.1 s among eleven million, 1.9 s where they were alone.
VERDICTS = Table(
    "verdicts",
    METADATA,
    _needed("run_model_id", Integer),
    _needed("sample_key", BigInteger),
    *(Column(str(field.column), _sql_type(field), nullable=field.nullable) for field in STORED),
    # When its transaction began, by the server's clock.
    _needed("stored_at", _TIME, server_default=func.now()),
    # Of a completion that was deleted since: by it an archive's text is known to be that one.
    Column("completion_sha256", LargeBinary),
    _needed("code", SmallInteger, Computed(CODE, persisted=True)),
    Index("ix_verdicts_retried", "run_model_id", postgresql_where=text("generation > 0")),
    PrimaryKeyConstraint(*KEY_COLUMNS, postgresql_include=COVERED),
)

CALL_ERRORS = Table(
    "call_errors",
    METADATA,
    *_item_key(),
    Column("attempt", SmallInteger, primary_key=True),
    _needed("error_class", Text),
    Column("status", SmallInteger),
    Column("retry_after_s", Double),
    _needed("message", Text),
    _needed("at", _TIME),
    ForeignKeyConstraint(
        KEY_COLUMNS,
        [f"verdicts.{column}" for column in KEY_COLUMNS],
        ondelete="CASCADE",
        name="fk_call_errors_verdicts",
    ),
)

# One batch of a model of a run: an outbox of what a provider is asked, and its state.
#
# Written with its items in one transaction, before the provider hears of it. Any worker takes it
# when it is due; taking it moves `due_at` by a lease, so that one worker at a time is at it.
BATCHES = Table(
    "batches",
    METADATA,
    Column("id", BigInteger, Identity(), primary_key=True),
    _needed("run_model_id", Integer, _of_model()),
    _needed("token", Text, unique=True),
    _needed("state", Text),
    _needed("requests", Integer),
    Column("expected_usd", Numeric),
    _needed("created_at", _TIME, server_default=func.now()),
    # When the latest attempt to hand it over began; null: the provider does not know it.
    Column("creating_at", _TIME),
    Column("submitted_at", _TIME),
    Column("ended_at", _TIME),
    # When the provider was asked to cancel it; null: it was not.
    Column("cancelled_at", _TIME),
    # When a worker may take it next: of one that a worker has, the end of that worker's lease.
    _needed("due_at", _TIME, server_default=func.now()),
    # The worker that has it, or had it when it was killed; null: none.
    Column("worker", Text),
    # Failed requests about it in a row, after which the next one waits longer.
    _needed("failures", SmallInteger, server_default=text("0")),
    Column("provider_name", Text),
    # Whether that name was found after an attempt whose answer was lost; its results prove it.
    _needed("adopted", Boolean, server_default=text("false")),
    # `[{"name"}]`: batches of the provider that looked like it and are known not to be it.
    _needed("refused_names", JSONB, server_default=text("'[]'")),
    # Results by kind, and the provider's own numbers before its end.
    _needed("counts", JSONB, server_default=text("'{}'")),
    Column("problem", Text),
    Index("ix_batches_due", "due_at", postgresql_where=text("state <> 'ended'")),
    Index("ix_batches_run_model_id", "run_model_id"),
)

# An item that is or was asked in a batch and has no verdict yet.
#
# Its key is a verdict's: an item is in one open batch at most. The row goes when its verdict is
# stored.
BATCHED_ITEMS = Table(
    "batched_items",
    METADATA,
    *_item_key(_of_model()),
    # The open batch that it is in; null: it is free to be asked again.
    Column("batch_id", BigInteger, ForeignKey("batches.id", ondelete="SET NULL")),
    # Batches that it has been in, that one included.
    _needed("tries", SmallInteger, server_default=text("1")),
    # Whether batches are given up for it, and it is asked live.
    _needed("live", Boolean, server_default=text("false")),
    Column("problem", Text),
    Index("ix_batched_items_batch_id", "batch_id"),
)

# A worker process that died while it read the answer of an item.
#
# With the second one the item gets its verdict: the broker delivers the item again, and its answer
# would kill every worker.
READING_DEATHS = Table(
    "reading_deaths",
    METADATA,
    *_item_key(_of_model()),
    Column("worker", Text, primary_key=True),
    _needed("at", _TIME, server_default=func.now()),
)

DATASETS = Table(
    "datasets",
    METADATA,
    Column("id", Integer, Identity(), primary_key=True),
    _needed("name", Text),
    _needed("fingerprint", Text),
    _needed("source", Text),
    _needed("licence", Text),
    _needed("samples", Integer),
    _needed("malicious", Integer),
    # False for the selections that runs make with --limit and --categories, and for imports.
    _needed("selectable", Boolean),
    _needed("created_at", _TIME, server_default=func.now()),
    UniqueConstraint("name", "fingerprint"),
)

SAMPLES = Table(
    "samples",
    METADATA,
    Column("key", BigInteger, Identity(), primary_key=True),
    _needed("dataset_id", Integer, ForeignKey("datasets.id", ondelete="CASCADE")),
    _needed("sample_id", Text),
    _needed("command", Text),
    _needed("target", Text),
    Column("category", Text),
    Column("cluster", Text),
    _needed("details", JSONB),
    UniqueConstraint("dataset_id", "sample_id"),
)

# A prompt, identified by its name and the fingerprint of its texts.
PROMPTS = Table(
    "prompts",
    METADATA,
    Column("id", Integer, Identity(), primary_key=True),
    _needed("name", Text),
    _needed("fingerprint", Text),
    _needed("system", Text),
    _needed("template", Text),
    UniqueConstraint("name", "fingerprint"),
)

# Everything needed to repeat a run.
RUNS = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    _needed("name", Text),
    _needed("origin", Text),
    _needed("package_version", Text),
    Column("prompt_id", Integer, ForeignKey("prompts.id")),
    Column("parameters", JSONB),
    _needed("epochs", SmallInteger),
    _needed("created_at", _TIME),
    # Why workers fetch none of its items although some have no verdict; null: they fetch.
    Column("held", Text),
    # How many of its completions were deleted while their verdicts stayed.
    _needed("pruned_completions", BigInteger, server_default=text("0")),
    Column("pruned_at", _TIME),
)

RUN_DATASETS = Table(
    "run_datasets",
    METADATA,
    Column("run_id", Text, _of_run(), primary_key=True),
    Column("dataset_id", Integer, ForeignKey("datasets.id"), primary_key=True),
)

# Which models a run asks, as resolved at submit.
RUN_MODELS = Table(
    "run_models",
    METADATA,
    Column("id", Integer, Identity(), primary_key=True),
    _needed("run_id", Text, _of_run()),
    _needed("model", Text),
    # Null: the prompt of the run.
    Column("prompt_id", Integer, ForeignKey("prompts.id")),
    _needed("spec", JSONB),
    _needed("queue", Text),
    # Whether workers should listen to the queue: set by submit and resume, cleared when nothing is
    # missing.
    _needed("open", Boolean),
    # Those of the run's datasets that the model was put to; null: all of them.
    Column("datasets", ARRAY(Integer)),
    # From when its items are asked in batches; null: never. Set when the run is stored.
    Column("batch_from", _TIME),
    UniqueConstraint("run_id", "model"),
    Index("ix_run_models_open", "queue", postgresql_where=text("open")),
)

# One `retry` of a run: what ended in some outcomes was planned once more.
RETRIES = Table(
    "retries",
    METADATA,
    Column("run_id", Text, _of_run(), primary_key=True),
    Column("generation", SmallInteger, primary_key=True),
    _needed("outcomes", ARRAY(Text)),
    _needed("items", BigInteger),
    _needed("created_at", _TIME, server_default=func.now()),
)

# An item that a retry planned, which is the only way to a verdict of a later generation.
#
# First tries have no such rows: they are models x samples x epochs. Of the items that a retry plans
# nothing else is known, as verdicts go on arriving while it is made.
RETRIED_ITEMS = Table("retried_items", METADATA, *_item_key(_of_model()))

# A living worker process and what it is busy with; rewritten every second or two.
WORKERS = Table(
    "workers",
    METADATA,
    Column("name", Text, primary_key=True),
    # `[{"run", "model", "items"}]`, with `halt` where the worker does not call it any more, and
    # more of `db.fleet`.
    _needed("in_flight", JSONB),
    _needed("seen_at", _TIME),
    # Its versions and its clock; null of a worker that is older than this column.
    Column("about", JSONB),
)

# One aggregation of a run under one scoring rule. Append-only.
SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("id", Integer, Identity(), primary_key=True),
    _needed("run_id", Text, _of_run(), index=True),
    _needed("scoring", Text),
    _needed("scoring_version", Integer),
    _needed("metrics_version", SmallInteger, server_default=text("0")),
    # Versions of the parser behind the verdicts, comma-separated.
    _needed("parser_versions", Text),
    _needed("verdicts", BigInteger),
    _needed("verdicts_hash", Text),
    _needed("code_version", Text),
    _needed("document", JSONB),
    # By model, which verdicts its entry was made of.
    _needed("identities", JSONB, server_default=text("'{}'")),
    # Pairs of models, each with p of no difference of their scores, not adjusted.
    _needed("pair_p", JSONB, server_default=text("'[]'")),
    # `scoring`, `targets` and `overlay`: name, version and fingerprint of each, and their content
    # where it came from a file.
    _needed("opinion", JSONB, server_default=text("'{}'")),
    _needed("created_at", _TIME, server_default=func.now()),
)

# One aggregation that a worker was asked for, or is about to be: an outbox.
#
# Written in the transaction that finds a run complete, so that exactly one comes of each
# completion, and enqueued after its commit.
AGGREGATIONS = Table(
    "aggregations",
    METADATA,
    Column("id", Integer, Identity(), primary_key=True),
    _needed("run_id", Text, _of_run()),
    Column("completion", Text),
    _needed("scoring", Text),
    _needed("requested_at", _TIME, server_default=func.now()),
    Column("enqueued_at", _TIME),
    Column("finished_at", _TIME),
    Column("snapshot_ids", ARRAY(Integer)),
    Column("problem", Text),
    UniqueConstraint("run_id", "completion"),
    Index("ix_aggregations_open", "id", postgresql_where=text("finished_at IS NULL")),
)

# One number of a snapshot, for those who ask in SQL.
SNAPSHOT_METRICS = Table(
    "snapshot_metrics",
    METADATA,
    Column(
        "snapshot_id", Integer, ForeignKey("snapshots.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("model", Text, primary_key=True),
    Column("metric", Text, primary_key=True),
    Column("category", Text, primary_key=True),
    Column("value", Double),
    Column("stderr", Double),
    Column("stderr_clustered", Double),
    Column("ci_low", Double),
    Column("ci_high", Double),
    _needed("n", BigInteger),
    Column("clusters", Integer),
)


if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
# Seconds; a session that waits for the lock of a table stops every worker behind it.
LOCK_TIMEOUT_S = 10


def alembic_config(connection: Connection | None = None) -> "Config":
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def head() -> str:
    """Return the version this package works with: migrations are files named by their number."""
    return max(path.name.partition("_")[0] for path in MIGRATIONS.glob("versions/*_*.py"))


def current(engine: Engine) -> str | None:
    """Return the version of the database, None when it has none yet."""
    with connection_errors_in_one_line(), engine.connect() as connection:
        if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
            return None
        version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return version


def upgrade(engine: Engine) -> None:
    """Bring the database to this package's version, in one transaction.

    Raises:
        StoreError: Another session holds what the migration has to lock; names that session. Or the
            database is newer than this package.
    """
    found = current(engine)
    if found == head():
        return
    _require_not_newer(found)
    from alembic import command  # noqa: PLC0415

    with connection_errors_in_one_line(), _blocked_by(engine), engine.begin() as connection:
        connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"))
        # Two at once would both find nothing and both create everything.
        connection.execute(statement("wait_for_lock"), {"key": AdvisoryLock.MIGRATING})
        command.upgrade(alembic_config(connection), "head")


@contextmanager
def _blocked_by(engine: Engine) -> Iterator[None]:
    """Name the sessions that a lock was not had from in time."""
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        with engine.connect() as connection:
            in_the_way = statement("sessions_in_the_way")
            rows = connection.execute(in_the_way, {"key": AdvisoryLock.MIGRATING}).all()
        holders = [
            f"PID {row.pid}, {row.application_name or row.usename}"
            + (f" from {row.client_addr}" if row.client_addr else "")
            + (f", {row.state} since {row.xact_start:%H:%M:%S %Z}" if row.xact_start else "")
            for row in rows
        ]
        raise StoreError(
            f"the schema cannot be changed, another session has held it for {LOCK_TIMEOUT_S} s"
            f" ({'; '.join(holders) or 'it has just let go'}): try again when that is through, or"
            " end it with `SELECT pg_terminate_backend(PID)`"
        ) from error


def require_current(engine: Engine) -> None:
    """Refuse a database of another version.

    Raises:
        StoreError: It is not migrated, or newer than this package.
    """
    found, wanted = current(engine), head()
    _require_not_newer(found)
    if found != wanted:
        raise StoreError(
            f"the database schema is at {found or 'nothing'}, this version needs {wanted}: "
            "run `aegish-dist db upgrade`"
        )


def _require_not_newer(found: str | None) -> None:
    if found is not None and found > head():
        raise StoreError(
            f"the database schema is at {found}, this version knows only {head()}: a newer"
            " aegish-dist has upgraded it, or one from before the first release made it; use that"
            " one, or take its runs along by `verdicts export` there and `verdicts import` into a"
            " new database"
        )


def drift(engine: Engine) -> list[str]:
    """Return the differences between the database and the mappings; empty when there are none."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415
    from alembic.migration import MigrationContext  # noqa: PLC0415

    with connection_errors_in_one_line(), engine.connect() as connection, catch_warnings():
        # SQLAlchemy 2.1.9 cannot reflect a CHECK that is NOT VALID; Alembic compares no CHECK.
        filterwarnings("ignore", "Can't validate argument 'dialect_options'")
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [str(difference) for difference in compare_metadata(context, METADATA)]
