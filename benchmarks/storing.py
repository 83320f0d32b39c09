"""Load that a stored verdict puts on PostgreSQL, by the way in which it comes there.

Run with `python benchmarks/storing.py [--rows 100000]`. It takes a minute.

inserts: groups of verdicts by the statement that workers use, each in a transaction of its own.
COPY:    straight into the table, as imports do: none of the verdicts may be there already.
staged:  20,000 verdicts at a time by COPY into a table without a log, and from there into the table
         by one INSERT ... ON CONFLICT DO NOTHING: for a collector between workers and database.

CPU is that of the whole server, in microseconds per verdict; the log (WAL) and the table with its
index are in bytes per verdict. A checkpoint comes before each way, so that each logs whole pages.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click
import psutil
import psycopg
from measuring import cpu_s, laid_out, number, print_table
from psycopg.rows import dict_row
from synthetic import fill

from aegish_dist.db.embedded import embedded_server
from aegish_dist.db.engine import open_engine, transaction
from aegish_dist.db.schema import COLUMNS, upgrade
from aegish_dist.db.verdicts import insert_rows

GROUPS = (1, 10, 50, 200)
STAGED = 20_000
REAP_S = 1.0
"""Seconds after which the server has counted the time of connections that ended."""
NAMES = ", ".join(COLUMNS)

Lines = Sequence[bytes]


def _groups(rows: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (rows[first : first + size] for first in range(0, len(rows), size))


def insert(url: str, rows: Sequence[dict[str, Any]], size: int) -> None:
    """Insert in groups, as a worker does."""
    engine = open_engine(url, pool_size=1)
    for group in _groups(rows, size):
        with transaction(engine) as session:
            insert_rows(session, group, ())
    engine.dispose()


def _copy(connection: psycopg.Connection[Any], table: str, lines: Lines) -> None:
    with connection.cursor().copy(f"COPY {table} ({NAMES}) FROM STDIN") as copy:
        copy.write(b"".join(lines))


def copy_in(url: str, lines: Lines) -> None:
    """Copy all at once."""
    with psycopg.connect(url) as connection:
        _copy(connection, "verdicts", lines)


def stage(url: str, lines: Lines) -> None:
    """Copy into a staging table, and move from there."""
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE UNLOGGED TABLE staged AS SELECT {NAMES} FROM verdicts LIMIT 0")
        connection.commit()
        for group in _groups(lines, STAGED):
            _copy(connection, "staged", group)
            connection.execute(
                f"INSERT INTO verdicts ({NAMES}) SELECT {NAMES} FROM staged ON CONFLICT DO NOTHING"
            )
            connection.execute("TRUNCATE staged")
            connection.commit()
        connection.execute("DROP TABLE staged")


class Store:
    """A database whose verdicts are stored again and again."""

    def __init__(self, url: str, server: psutil.Process, rows: int) -> None:
        """Fill it, and remember its verdicts."""
        self.url, self._server = url, server
        fill(url, "0storing", rows)
        query = f"SELECT {NAMES} FROM verdicts"
        with psycopg.connect(url) as connection:
            self.rows = connection.cursor(row_factory=dict_row).execute(query).fetchall()
            with connection.cursor().copy(f"COPY ({query}) TO STDOUT") as copy:
                self.lines = b"".join(map(bytes, copy)).splitlines(keepends=True)

    def measure(self, name: str, way: Callable[[], None]) -> dict[str, str]:
        """Empty the table and store all verdicts in one way."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("TRUNCATE verdicts CASCADE")
            cpu, written = cpu_s(self._server), self._written(connection)
            way()
            time.sleep(REAP_S)
            cpu, written = cpu_s(self._server) - cpu, self._written(connection) - written
            size = self._value(connection, "SELECT pg_total_relation_size('verdicts')")
        each = len(self.rows)
        return {
            "way": name,
            "CPU us": number(1e6 * cpu / each),
            "WAL bytes": number(written / each),
            "table bytes": number(size / each),
        }

    def _written(self, connection: psycopg.Connection[Any]) -> int:
        return self._value(connection, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")

    @staticmethod
    def _value(connection: psycopg.Connection[Any], query: str) -> int:
        ((value,),) = connection.execute(query).fetchall()
        return int(value)


@click.command(help=laid_out(__doc__))
@click.option("--rows", default=100_000, show_default=True)
def main(*, rows: int) -> None:
    """Store the same verdicts in each way."""
    with (
        tempfile.TemporaryDirectory(prefix="as") as home,
        closing(embedded_server(Path(home))) as server,
    ):
        engine = open_engine(server.url)
        upgrade(engine)
        engine.dispose()
        store = Store(server.url, psutil.Process(server.pid), rows)
        ways: dict[str, Callable[[], None]] = {
            f"inserts of {size}": partial(insert, store.url, store.rows, size) for size in GROUPS
        }
        ways["COPY"] = partial(copy_in, store.url, store.lines)
        ways["staged"] = partial(stage, store.url, store.lines)
        table = [store.measure(name, way) for name, way in ways.items()]
    print_table(f"{len(store.rows):,} verdicts", table)


if __name__ == "__main__":
    main()
