"""Delete, prune, archive and restore the rows of a run.

Rows of an archive leave as CSV, and are read back by COPY into tables of one transaction. A sum of
hashes over the rows as PostgreSQL writes them is their content: it depends neither on their order
nor on how a file holds them.

In the store that the rows came from every key is free, and stays as it was. Elsewhere the store
draws new keys; prompts, datasets and samples that are there already are not added again.

The author of an archive is a stranger. Identities are computed here, from the content of the rows;
the sums in a manifest show damage, not forgery.
"""

# ruff: noqa: S608  statements are put together from nothing but this module and names of columns
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any

import msgspec
import psycopg
from psycopg import sql
from sqlalchemy import Row, UniqueConstraint, exc, select, text
from sqlalchemy.orm import Session

from aegish_dist.core.run import Prompt
from aegish_dist.db.engine import driver_connection, execute, fragment
from aegish_dist.db.runs import one_at_a_time, run_row
from aegish_dist.db.tables import METADATA, RUN_MODELS
from aegish_dist.errors import StoreError


def size_of(session: Session, run_id: str) -> Row[Any]:
    """Return how many `models`, `verdicts` and `snapshots` a run has."""
    return execute(session, "size_of_run", run=run_id).one()


def model_keys(session: Session, run_id: str) -> Sequence[int]:
    models = select(RUN_MODELS.c.id).where(RUN_MODELS.c.run_id == run_id)
    return session.scalars(models.order_by(RUN_MODELS.c.id)).all()


def last_of_batch(session: Session, run_model_id: int, after: int, limit: int) -> int | None:
    """Return the key of the last sample among the next verdicts of a model; None: no more."""
    found = execute(session, "last_of_batch", model=run_model_id, after=after, limit=limit)
    return found.scalar()


def delete_verdicts(session: Session, run_model_id: int, after: int, through: int) -> int:
    """Delete verdicts with the errors of their attempts, and return how many they were.

    Args:
        after: Key of a sample; only verdicts about the samples behind it go.
        through: Key of the last sample whose verdicts go.
    """
    bounds = {"after": after, "through": through}
    return execute(session, "delete_verdicts", model=run_model_id, **bounds).rowcount


def delete_run(session: Session, run_id: str) -> None:
    """Delete a run with all that belongs to it, and what only it referred to.

    Its models, retries, snapshots and remaining verdicts go with it. A prompt, and a selection of
    samples that a run or an import made for itself, go unless another run has them as well.
    Datasets that a user imported stay.

    Waits for an aggregation of the run that is being made. The locks are taken in the order of the
    others that touch a run, models and aggregations before the run itself: neither ends in a
    deadlock.
    """
    one_at_a_time(session)
    execute(session, "lock_models_of_run", run=run_id)
    execute(session, "delete_aggregations", run=run_id)
    own = execute(session, "shared_rows_of_run", run=run_id).one()
    execute(session, "delete_run", run=run_id)
    execute(session, "delete_unused_datasets", datasets=own.datasets)
    execute(session, "delete_unused_prompts", prompts=own.prompts)


def old_runs(session: Session, before: datetime, keep: int) -> list[str]:
    """Return the runs made before a moment, oldest first, but never one of the `keep` newest."""
    return list(execute(session, "old_runs", before=before, keep=keep).scalars())


def size_of_completions(session: Session, run_id: str) -> Row[Any]:
    """Return how many completions of a run there are to delete, and their size; reads them all."""
    return execute(session, "size_of_completions", run=run_id).one()


def prune_verdicts(
    session: Session, run_model_id: int, after: int, through: int, *, run_id: str, before: datetime
) -> int:
    """As `delete_verdicts`, but delete completions alone, of verdicts stored before a moment."""
    execute(session, "lock_run", run=run_id)
    bounds = {"after": after, "through": through, "before": before}
    pruned = execute(session, "prune_completions", model=run_model_id, **bounds).rowcount
    if pruned:
        execute(session, "count_pruned", run=run_id, completions=pruned)
    return pruned


_MODELS = fragment("models_of_run")
_DATASETS = fragment("datasets_of_run")
_OF_MODELS = f"run_model_id IN ({_MODELS})"
_OF_SNAPSHOTS = "snapshot_id IN (SELECT id FROM snapshots WHERE run_id = :run)"

TABLES: Mapping[str, str] = {
    "datasets": f"id IN ({_DATASETS})",
    "samples": f"dataset_id IN ({_DATASETS})",
    "prompts": f"id IN ({fragment('prompts_of_run')})",
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
"""Tables with rows of a run, parents before children, and the condition that selects the run's."""
SHARED = ("datasets", "samples", "prompts")
OWN_KEYS = {
    table: column.name
    for table in TABLES
    for column in METADATA.tables[table].columns
    if column.identity is not None
}
"""Column of a table that the database numbers."""
_REFERENCES = {"sample_key": "samples"} | {
    key.parent.name: key.column.table.name
    for table in TABLES
    for key in METADATA.tables[table].foreign_keys
    if key.column.table.name in OWN_KEYS
}
_LISTS = {"datasets": "datasets", "snapshot_ids": "snapshots"}

_FORGED = {
    "samples": "forged_samples",
    "runs": "forged_runs",
    "run_datasets": "forged_run_datasets",
    "run_models": "forged_run_models",
    "batches": "forged_batches",
}
"""Statements that find rows which are not what they claim to be."""
_RESTORED_AS = {
    ("datasets", "selectable"): "false",  # a name stands for what was imported here
    ("run_models", "open"): "false",
}
"""Columns that would have workers ask something, or later runs ask something else."""
_CHANGES = {"completion", "completion_sha256", "open"}
_ADDED = {"aggregations": " WHERE old.finished_at IS NOT NULL"}

_UNFIT = (
    *(exc.DataError, exc.IntegrityError, exc.ProgrammingError),
    # Errors of COPY are psycopg's own: SQLAlchemy does not wrap them.
    *(psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError),
    *(msgspec.ValidationError, RecursionError),
)


def prepare(session: Session) -> None:
    execute(session, "settings_for_archives")


def columns_of(session: Session, table: str) -> dict[str, str]:
    return {row.name: row.type for row in execute(session, "stored_columns", table=table)}


def require_settled(session: Session, run_id: str) -> None:
    """Refuse a run of which a provider still works on batches."""
    batches = execute(session, "open_batches", run=run_id).scalar()
    if batches:
        raise StoreError(f"run {run_id} has {batches} open batches: archive it when they ended")


def content(session: Session, table: str, columns: Sequence[str], run_id: str) -> tuple[int, str]:
    """Return the number of a run's rows of a table, and their digest over these columns."""
    rows = f"(SELECT {quoted(columns)} FROM {table} WHERE {TABLES[table]})"  # nosec B608
    return _content(session, rows, run_id)


def _content(session: Session, source: str, run_id: str = "") -> tuple[int, str]:
    sums = ", ".join(
        f"coalesce(sum(hashtextextended(archived::text, {seed})), 0)::text" for seed in (0, 1)
    )
    query = text(f"SELECT count(*), concat_ws(' ', {sums}) FROM {source} AS archived")  # nosec B608
    rows, digest = session.execute(query, {"run": run_id} if run_id else {}).one()
    return rows, digest


def lacks_rows(session: Session, table: str, columns: Sequence[str], run_id: str) -> bool:
    """Whether the staged table lacks a row of the run as the store has it.

    A verdict whose completion was deleted since is the one that had this completion, but not the
    other way round. Workers open and close models by themselves.
    """
    listed = quoted([each for each in columns if each not in _CHANGES])
    stored = archived = listed
    if table == "verdicts":
        listed += ", coalesce(sha256(convert_to(completion, 'UTF8')), completion_sha256)"
        stored = f"{listed}, completion IS NOT NULL"
        archived = f"{listed}, unnest(ARRAY[false, completion IS NOT NULL])"
    query = (
        f"SELECT EXISTS (SELECT {stored} FROM {table} WHERE {TABLES[table]}"  # nosec B608
        f" EXCEPT SELECT {archived} FROM archived_{table})"  # nosec B608
    )
    return bool(session.scalar(text(query), {"run": run_id}))


def write_csv(
    session: Session, table: str, columns: Sequence[str], run_id: str, stream: IO[bytes]
) -> None:
    condition = TABLES[table].replace(":run", "{run}")
    query = sql.SQL(
        f"COPY (SELECT {quoted(columns)} FROM {table} WHERE {condition} ORDER BY 1, 2)"  # nosec B608
        " TO STDOUT (FORMAT csv, HEADER)"
    ).format(run=sql.Literal(run_id))
    with driver_connection(session).cursor() as cursor, cursor.copy(query) as copy:
        stream.writelines(copy)


def stage(
    session: Session, table: str, columns: Sequence[str], lines: Iterable[bytes]
) -> tuple[int, str]:
    """Put lines of COPY into a table of this transaction; return their number and digest."""
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
    with (
        driver_connection(session).cursor() as cursor,
        cursor.copy(f"COPY archived_{table} FROM STDIN") as copy,
    ):
        for part in lines:
            copy.write(part)
    return _content(session, f"archived_{table}")


def quoted(columns: Sequence[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


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
    one_at_a_time(session)
    if run_row(session, run_id) is not None:
        stored = size_of(session, run_id).verdicts
        if stored < archived:  # deleting it was interrupted, say
            raise StoreError(
                f"run {run_id} is in this store with {stored:,} of {archived:,} archived verdicts:"
                f" `aegish-dist runs delete {run_id}` and restore it whole"
            )
        raise StoreError(f"run {run_id} is in this store, with all its completions")


def require_own(session: Session, table: str, columns: Sequence[str], run_id: str) -> None:
    """Refuse staged rows that are of another run, or not what their identity says.

    Rows that they refer to have been added.

    Raises:
        StoreError: Names the first such row.
    """
    named = "id" if table == "runs" else "run_id"
    problem = None
    if named in columns:
        others = f"SELECT {named} FROM archived_{table} WHERE {named} <> :run"  # nosec B608
        if (other := session.scalar(text(f"{others} LIMIT 1"), {"run": run_id})) is not None:
            problem = f"rows are of another run, {other}"
    if table in _FORGED:
        problem = problem or execute(session, _FORGED[table]).scalar()
    if table == "prompts":
        for *texts, fingerprint in execute(session, "staged_prompts"):
            if Prompt(*texts).fingerprint != fingerprint:
                problem = f"prompt '{texts[0]}' has another text than its fingerprint says"
    if problem is not None:
        raise StoreError(f"{table}: {problem}; nothing was changed")


def add_rows(session: Session, table: str, columns: Sequence[str]) -> None:
    """Add the staged rows of a table under their new keys.

    Rows that they refer to have to be there already.
    """
    only = _ADDED.get(table, "")
    if table in OWN_KEYS:
        _give_keys(session, table, OWN_KEYS[table])
        if table in SHARED:
            only = f" WHERE {_new(table, OWN_KEYS[table], 'is_new')}"
    values = ", ".join(_value(table, column) for column in columns)
    added = f"INSERT INTO {table} ({quoted(columns)}) SELECT {values} FROM archived_{table} AS old"  # nosec B608
    session.execute(text(added + only))


def _give_keys(session: Session, table: str, key: str) -> None:
    """Find keys for the staged rows of a table that the database numbers."""
    if table in SHARED:
        known = f"INSERT INTO new_keys SELECT '{table}', old.{key}, known.{key}, false"  # nosec B608
        same = f"archived_{table} AS old JOIN {table} AS known ON {_same_row(table)}"
        session.execute(text(f"{known} FROM {same}"))
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


def _same_row(table: str) -> str:
    """Return the condition that `known` of the store is `old` of the archive: by unique columns."""
    constraints = METADATA.tables[table].constraints
    (unique,) = (each for each in constraints if isinstance(each, UniqueConstraint))
    return " AND ".join(
        f"known.{column.name} = {_value(table, column.name)}" for column in unique.columns
    )


def _value(table: str, column: str) -> str:
    if OWN_KEYS.get(table) == column:
        return _new(table, column)
    if (table, column) in _RESTORED_AS:
        return _RESTORED_AS[table, column]
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


def put_completions_back(session: Session, run_id: str) -> int:
    """Put the completions of staged verdicts back where they were deleted; return how many.

    Raises:
        StoreError: The run lacks none of these texts, or has other keys than in the archive.
    """
    restored = execute(session, "completions_to_restore", run=run_id).rowcount
    if not restored:
        raise StoreError(
            f"the archive has no completion that run {run_id} of this store lacks: delete the run"
            " first to restore it whole"
        )
    execute(session, "count_restored", run=run_id, completions=restored)
    return restored
