"""Archives as a stranger writes them: any rows, under a manifest that fits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.db import archive
from aegish_dist.interchange.parquet_tables import copy_lines

Rows = list[dict[str, Any]]


def rows_of(place: Path, table: str) -> Rows:
    rows: Rows = pq.read_table(place / f"{table}.parquet").to_pylist()
    return rows


def forge(engine: Engine, place: Path, table: str, change: Callable[[Rows], object]) -> None:
    """Change the rows of a table of an archive, and have its manifest say that they are the rows.

    Args:
        change: Gets the rows by column and changes them in place. The archive has no column that
            is taken from the first row.
    """
    path = place / f"{table}.parquet"
    schema, rows = pq.read_schema(path), rows_of(place, table)
    taken = {*schema.names} if rows else set()
    change(rows)
    taken -= {*rows[0]} if rows else taken
    columns = [name for name in schema.names if name not in taken]
    pq.write_table(pa.Table.from_pylist(rows, schema).select(columns), path)
    manifest = json.loads((place / "manifest.json").read_text())
    with Session(engine) as session:  # rolled back
        archive.prepare(session)
        number, digest = archive.stage(session, table, columns, copy_lines(path))
    manifest["tables"][table] |= {"columns": columns, "rows": number, "digest": digest}
    (place / "manifest.json").write_text(json.dumps(manifest))


def put(engine: Engine, place: Path, table: str, /, **values: object) -> None:
    """Change columns of the first row of a table of an archive."""
    forge(engine, place, table, lambda rows: rows[0].update(values))
