"""A run's rows on their way out, table by table, and whether what is read back is what went.

Rows leave as CSV and are read back by COPY into tables of one transaction. A sum of hashes over the
rows as PostgreSQL writes them is their content: it depends neither on their order nor on how a file
holds them.
"""

# ruff: noqa: S608  statements are put together from nothing but this module and names of columns

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql
from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.db.statements import fragment, statement
from aegish_dist.errors import StoreError

_MODELS = fragment("models_of_run")
_DATASETS = fragment("datasets_of_run")
_OF_MODELS = f"run_model_id IN ({_MODELS})"
_OF_SNAPSHOTS = "snapshot_id IN (SELECT id FROM snapshots WHERE run_id = :run)"

TABLES: Mapping[str, str] = {
    "datasets": f"id IN ({_DATASETS})",
    "samples": f"dataset_id IN ({_DATASETS})",
    "prompts": "id IN (SELECT prompt_id FROM runs WHERE id = :run)",
    "runs": "id = :run",
    "run_datasets": "run_id = :run",
    "run_models": "run_id = :run",
    "retries": "run_id = :run",
    "retried_items": _OF_MODELS,
    "snapshots": "run_id = :run",
    "snapshot_metrics": _OF_SNAPSHOTS,
    "aggregations": "run_id = :run",
    "batches": _OF_MODELS,
    "batched_items": _OF_MODELS,
    "verdicts": _OF_MODELS,
    "call_errors": _OF_MODELS,
}  # nosec B608 # constants of ours
"""Tables of which a run has rows, and the condition that they are its own; what others refer to
comes first."""

_COLUMNS = statement("stored_columns")
_OPEN_BATCHES = statement("open_batches")
_SETTINGS = statement("settings_for_archives")


@dataclass(frozen=True, slots=True)
class Content:
    """The identity of some rows of a table."""

    rows: int
    digest: str
    """Two sums of hashes of the rows as texts, decimal."""


def prepare(session: Session) -> None:
    """Set what the text of a row depends on, for this transaction."""
    session.execute(_SETTINGS)


def columns_of(session: Session, table: str) -> dict[str, str]:
    """Return the stored columns of a table with their types, in order."""
    return {row.name: row.type for row in session.execute(_COLUMNS, {"table": table})}


def require_settled(session: Session, run_id: str) -> None:
    """Refuse a run of which a provider still works on batches."""
    batches = session.scalar(_OPEN_BATCHES, {"run": run_id})
    if batches:
        raise StoreError(f"run {run_id} has {batches} open batches: archive it when they ended")


def content(session: Session, table: str, columns: Sequence[str], run_id: str) -> Content:
    """Return the identity of a run's rows of a table.

    Args:
        columns: Columns that count, in order.
    """
    names = quoted(columns)
    return _content(session, f"(SELECT {names} FROM {table} WHERE {TABLES[table]})", run_id)  # nosec B608


def staged_content(session: Session, table: str) -> Content:
    """Return the identity of the rows that `stage` has of a table."""
    return _content(session, f"archived_{table}", "")


def _content(session: Session, source: str, run_id: str) -> Content:
    sums = ", ".join(
        f"coalesce(sum(hashtextextended(archived::text, {seed})), 0)::text" for seed in (0, 1)
    )
    query = text(f"SELECT count(*), concat_ws(' ', {sums}) FROM {source} AS archived")  # nosec B608
    rows, digest = session.execute(query, {"run": run_id} if run_id else {}).one()
    return Content(rows, digest)


def added(parts: Sequence[Content]) -> Content:
    """Return the identity of the rows of several parts together."""
    digests = [tuple(map(int, part.digest.split())) for part in parts]
    sums = [sum(each) for each in zip(*digests, strict=True)] or [0, 0]
    return Content(sum(part.rows for part in parts), " ".join(map(str, sums)))


class CsvStream:
    """The rows of a run's table as CSV, to be read like a file."""

    def __init__(self, blocks: Iterator[Any]) -> None:
        self._blocks = blocks
        self._buffer = bytearray()
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer at the end; all that are left without a number."""
        while size < 0 or len(self._buffer) < size:
            block = next(self._blocks, None)
            if block is None:
                break
            self._buffer += block
        end = len(self._buffer) if size < 0 else size
        taken = bytes(self._buffer[:end])
        del self._buffer[:end]
        return taken

    def close(self) -> None:
        """Do nothing: the statement ends with its block."""
        self.closed = True


@contextmanager
def rows_as_csv(
    session: Session, table: str, columns: Sequence[str], run_id: str
) -> Iterator[CsvStream]:
    """Give a run's rows of a table as CSV with a header.

    Args:
        session: Transaction of the caller, prepared; nothing else until the body ends.
    """
    condition = TABLES[table].replace(":run", "{run}")
    query = sql.SQL(
        f"COPY (SELECT {quoted(columns)} FROM {table} WHERE {condition} ORDER BY 1, 2)"  # nosec B608
        " TO STDOUT (FORMAT csv, HEADER)"
    ).format(run=sql.Literal(run_id))
    with _connection(session).cursor() as cursor, cursor.copy(query) as copy:
        yield CsvStream(iter(copy))


def open_stage(session: Session, table: str, columns: Sequence[str]) -> None:
    """Make a table of this transaction that takes rows of an archive."""
    unknown = set(columns) - columns_of(session, table).keys()
    if unknown:
        raise StoreError(
            f"the archive has a column {table}.{min(unknown)} that this store has not: it was made"
            " by a later version of aegish-dist"
        )
    session.execute(
        text(
            f"CREATE TEMP TABLE archived_{table} ON COMMIT DROP"  # nosec B608
            f" AS SELECT {quoted(columns)} FROM {table} WITH NO DATA"
        )
    )


def stage(session: Session, table: str, lines: bytes) -> None:
    """Append rows to the table that `open_stage` made."""
    with (
        _connection(session).cursor() as cursor,
        cursor.copy(f"COPY archived_{table} FROM STDIN") as copy,
    ):
        copy.write(lines)


def clear_stage(session: Session, table: str) -> None:
    """Take the rows out of the table that `open_stage` made."""
    session.execute(text(f"TRUNCATE archived_{table}"))


def quoted(columns: Sequence[str]) -> str:
    """Return names of columns for a statement."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def _connection(session: Session) -> Connection:
    connection = session.connection().connection.driver_connection
    assert isinstance(connection, Connection)  # noqa: S101  # nosec B101 # what SQLAlchemy types as anything
    return connection
