"""Rows that no code of ours wrote: each column of each row of a run, mutated in turn.

A role that may submit a run may write all of them, with whatever PostgreSQL takes.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from sqlalchemy import Column, Engine, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError

from aegish_dist.db.schema import METADATA

JSON_VALUES = [
    *("null", "[]", "{}", "5", "true", '"text"', "[[1]]", '[{"name": 5}]', "1e400", "-1"),
    *("[" * 3000 + "]" * 3000, "9" * 5000, '{"x": "' + "y" * 70_000 + '"}'),
]
TEXTS = ["", "\x1b]52;c;x\x07\u202e\x01", "x" * 70_000, "no such thing"]
VALUES: dict[str, list[str]] = {
    "JSONB": JSON_VALUES,
    "TEXT": TEXTS,
    "INTEGER": ["0", "-1", "2147483647"],
    "BIGINT": ["0", "-1", "9223372036854775807"],
    "SMALLINT": ["0", "-1", "32767"],
    "NUMERIC": ["NaN", "Infinity", "-1", "1e400", "1e-400"],
    "DOUBLE": ["NaN", "Infinity", "-1", "1e308"],
    "BOOLEAN": ["true", "false"],
    "BYTEA": ["", r"\x00"],
    "TIMESTAMP": ["infinity", "-infinity", "20000-01-01", "9999-01-01", "0001-01-03"],
    "ARRAY": ["{}", "{NULL}", "{-1}"],
}
"""Texts that PostgreSQL casts, by the beginning of a column's type; beside them null."""
OF_RUN = {
    "runs": "id = :run",
    "prompts": "id = (SELECT prompt_id FROM runs WHERE id = :run)",
    "datasets": "id IN (SELECT dataset_id FROM run_datasets WHERE run_id = :run)",
    "samples": "dataset_id IN (SELECT dataset_id FROM run_datasets WHERE run_id = :run)",
    **dict.fromkeys(
        ("run_datasets", "run_models", "retries", "aggregations", "snapshots"), "run_id = :run"
    ),
    **dict.fromkeys(
        ("retried_items", "verdicts", "call_errors", "batches", "batched_items"),
        "run_model_id IN (SELECT id FROM run_models WHERE run_id = :run)",
    ),
    "snapshot_metrics": "snapshot_id IN (SELECT id FROM snapshots WHERE run_id = :run)",
    "workers": "name = 'of a submitter'",
}
"""Where the rows of a run are; the last one is a worker's, which the same role writes."""


class Mutation(Struct, frozen=True):
    """One value that one column of one row is given."""

    table: str
    column: str
    value: str | None

    def __str__(self) -> str:
        return f"{self.table}.{self.column} = {(self.value or 'null')[:60]}"


def mutations(engine: Engine, run_id: str) -> Iterator[Mutation]:
    """Yield the mutations of all rows that a run has."""
    with engine.connect() as connection:
        for name, where in OF_RUN.items():
            rows = text(f"SELECT * FROM {name} WHERE {where} LIMIT 1")
            row = connection.execute(rows, {"run": run_id}).one_or_none()
            for column in METADATA.tables[name].columns if row is not None else ():
                kind = _kind(column)
                values = VALUES["ARRAY" if kind.endswith("[]") else kind.partition(" ")[0]]
                stored = row._mapping[column.name] if row is not None else None  # noqa: SLF001
                for value in (None, *values, *_below(stored)):
                    yield Mutation(name, column.name, value)


def _kind(column: Column[Any]) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return str(column.type.compile(dialect=dialect))


def _below(stored: Any) -> Iterator[str]:
    """Yield a document without each of its keys, and with other values there."""
    others: list[Any] = [None, "x", -1, 1e300, [], {"x": {}}, "NaN", "1e999999"]
    for key in stored if isinstance(stored, dict) else ():
        yield json.dumps({name: each for name, each in stored.items() if name != key})
        for other in others:
            yield json.dumps({**stored, key: other})


@contextmanager
def mutated(engine: Engine, run_id: str, mutation: Mutation) -> Iterator[bool]:
    """Give a column of the first row its value; yield whether PostgreSQL took it. Undone after."""
    name, column = mutation.table, mutation.column
    kind = _kind(METADATA.tables[name].columns[column])
    of_first = f"ctid = (SELECT ctid FROM {name} WHERE {OF_RUN[name]} ORDER BY ctid LIMIT 1)"
    read = text(f"SELECT CAST({column} AS text) FROM {name} WHERE {of_first}")
    change = f"UPDATE {name} SET {column} = CAST(:value AS {kind}) WHERE"
    where: dict[str, Any] = {"run": run_id}
    try:
        with engine.begin() as connection:
            before = connection.scalar(read, where)
            first = text(f"{change} {of_first} RETURNING CAST(ctid AS text)")
            place = connection.scalar(first, {**where, "value": mutation.value})
    except DBAPIError:
        yield False
        return
    yield True
    with engine.begin() as connection:
        back = text(f"{change} ctid = CAST(:place AS tid)")
        connection.execute(back, {"value": before, "place": place})
