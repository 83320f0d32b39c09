"""A run's rows on their way to an archive and back, table by table, and whether both are the same.

Rows leave as CSV and are read back by COPY into tables of one transaction. A sum of hashes over the
rows as PostgreSQL writes them is their content: it depends neither on their order nor on how a file
holds them.

In the store that the rows came from every key is free, and stays as it was. Elsewhere the store
draws new keys; prompts, datasets and samples that are there already are not added again.
"""

# ruff: noqa: S608  statements are put together from nothing but this module and names of columns
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection, sql
from sqlalchemy import exc, text
from sqlalchemy.orm import Session

from aegish_dist.db.datasets import one_at_a_time
from aegish_dist.db.deletion import size_of
from aegish_dist.db.runs import require_free_name
from aegish_dist.db.statements import fragment, statement
from aegish_dist.db.tables import RunRow
from aegish_dist.errors import ConfigError, StoreError

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


OWN_KEYS: Mapping[str, str] = {
    "datasets": "id",
    "samples": "key",
    "prompts": "id",
    "run_models": "id",
    "snapshots": "id",
    "aggregations": "id",
    "batches": "id",
}
"""Column of a table that the database numbers."""
_REFERENCES = {
    "dataset_id": "datasets",
    "sample_key": "samples",
    "prompt_id": "prompts",
    "run_model_id": "run_models",
    "snapshot_id": "snapshots",
    "batch_id": "batches",
}
_LISTS = {"datasets": "datasets", "snapshot_ids": "snapshots"}
SHARED = ("datasets", "samples", "prompts")
LARGE = ("retried_items", "batched_items", "verdicts", "call_errors")
"""Tables that are restored part by part: nothing refers to their rows but by their whole key."""

_KNOWN = {table: statement(f"known_{table}") for table in SHARED}
_CREATE = statement("create_new_keys")
_SAME = statement("same_keys")
_PUT_BACK = statement("completions_to_restore")
_COUNT = statement("count_restored")
_UNFIT = (
    *(exc.DataError, exc.IntegrityError, exc.ProgrammingError),
    # Errors of COPY are psycopg's own: SQLAlchemy does not wrap them.
    *(psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError),
)


@contextmanager
def unfit_rows_in_one_line(archive: object) -> Iterator[None]:
    """Turn the errors of rows and columns that this store does not take into one line."""
    try:
        yield
    except _UNFIT as error:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        what = str(cause).partition("\n")[0][:200]
        raise StoreError(
            f"{archive} does not fit this store ({what}); nothing was changed"
        ) from error


def require_absent(session: Session, run_id: str, archived: int) -> None:
    """Refuse a run that is in the store."""
    one_at_a_time(session)
    if session.get(RunRow, run_id) is not None:
        stored = size_of(session, run_id).verdicts
        if stored < archived:  # deleting it was interrupted, say
            raise StoreError(
                f"run {run_id} is in this store with {stored:,} of {archived:,} archived verdicts:"
                f" `aegish-dist runs delete {run_id}` and restore it whole"
            )
        raise StoreError(f"run {run_id} is in this store, with all its completions")


def require_own_name(session: Session, run_id: str) -> None:
    """Refuse a submitted run whose name stands for another run by now."""
    run = session.get(RunRow, run_id)
    if run is None:
        raise StoreError(f"the archive has another run than {run_id}: nothing was changed")
    try:
        if run.origin == "submit":
            require_free_name(session, run.name, run_id)
    except ConfigError as error:
        taken = f"another run has the name '{run.name}' by now"
        raise StoreError(f"{taken}: `aegish-dist runs rename` that one first") from error


def open_keys(session: Session) -> None:
    """Make the table that holds old and new keys in this transaction."""
    session.execute(_CREATE)


def give_keys(session: Session, table: str) -> None:
    """Find keys for the staged rows of a table that the database numbers.

    Those of tables that it refers to have to be there already.
    """
    if table in _KNOWN:
        session.execute(_KNOWN[table])
    key = OWN_KEYS[table]
    sequence = f"pg_get_serial_sequence('{table}', '{key}')"
    unknown = (
        f"archived_{table} AS old WHERE NOT EXISTS"  # nosec B608 # names of ours
        f" (SELECT FROM new_keys WHERE kind = '{table}' AND new_keys.old = old.{key})"
    )
    last = f"coalesce(pg_sequence_last_value({sequence}::regclass), 0)"
    used = f"old.{key} > {last} OR old.{key} IN (SELECT {key} FROM {table})"  # nosec B608
    taken = session.scalar(text(f"SELECT EXISTS (SELECT FROM {unknown} AND ({used}))"))  # nosec B608
    new = f"nextval({sequence})" if taken else key
    drawn = f"INSERT INTO new_keys SELECT '{table}', {key}, {new}, true FROM {unknown}"  # nosec B608
    session.execute(text(drawn))


def add_rows(session: Session, table: str, columns: Sequence[str]) -> int:
    """Add the staged rows of a table to the store under their new keys, and return how many."""
    values = ", ".join(_value(table, column) for column in columns)
    only = f" WHERE {_new(table, OWN_KEYS[table], 'is_new')}" if table in SHARED else ""
    query = (
        f"INSERT INTO {table} ({quoted(columns)})"  # nosec B608 # names of columns that are there
        f" SELECT {values} FROM archived_{table} AS old{only}"
    )
    return session.connection().execute(text(query)).rowcount


def _value(table: str, column: str) -> str:
    if OWN_KEYS.get(table) == column:
        return _new(table, column)
    if (table, column) == ("run_models", "open"):
        # What is asked in batches would be planned at once, and paid, before `resume`.
        return "old.open AND old.batch_from IS NULL"
    if column in _REFERENCES:
        return _new(_REFERENCES[column], column)
    if column in _LISTS:
        keys = f"SELECT new FROM new_keys WHERE kind = '{_LISTS[column]}' AND new_keys.old = listed"  # nosec B608
        listed = f"unnest(old.{column}) WITH ORDINALITY AS each (listed, place)"
        of_list = f"ARRAY(SELECT ({keys}) FROM {listed} ORDER BY place)"  # nosec B608
        return f"CASE WHEN old.{column} IS NOT NULL THEN {of_list} END"
    return f"old.{quoted([column])}"


def _new(kind: str, column: str, what: str = "new") -> str:
    return f"(SELECT {what} FROM new_keys WHERE kind = '{kind}' AND new_keys.old = old.{column})"  # nosec B608


def require_same_keys(session: Session, run_id: str) -> None:
    """Refuse to put completions back into a run whose rows have other keys than in the archive."""
    if not session.scalar(_SAME):
        raise StoreError(
            f"run {run_id} of this store has other samples or models than the archive: delete it"
            " first to restore it whole"
        )


def put_completions_back(session: Session, run_id: str) -> int:
    """Put the completions of staged verdicts back where they were deleted; return how many."""
    restored = session.connection().execute(_PUT_BACK).rowcount
    if restored:
        session.execute(_COUNT, {"run": run_id, "completions": restored})
    return restored
