"""A run's rows on their way back from an archive: into a store that may have given their keys away.

In the store that they came from every key is free, and stays as it was. Elsewhere new ones are
drawn; prompts, datasets and samples that are there already are not added again.
"""

# ruff: noqa: S608  statements are put together from nothing but this module and names of columns

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
from sqlalchemy import exc, text
from sqlalchemy.orm import Session

from aegish_dist.db.archive import quoted
from aegish_dist.db.datasets import one_at_a_time
from aegish_dist.db.deletion import size_of
from aegish_dist.db.runs import require_free_name
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import RunRow
from aegish_dist.errors import ConfigError, StoreError

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
