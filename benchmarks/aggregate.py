"""How fast verdicts are counted and moved when there are millions of them.

Run `python benchmarks/aggregate.py [--rows 2000000] [--moved 1000000] [--repeats 3] [count]
[move]`. It takes ten minutes and 3 GB of disk.

count:  `aggregate` of eleven models and 400 binaries, percentiles included, timed from the command
        line: before PostgreSQL vacuumed, which `verdicts import` sees to and which else takes it
        minutes to come to; then with PostgreSQL just started; everything counted again; one verdict
        of one model changed; nothing changed. Beside it, what the same counts cost one session that
        reads the table, as a plain SQL script would.
move:   `verdicts export` and `verdicts import` of a file, and the memory of the largest process.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import click
import psycopg
from cluster import ROOT, product
from measuring import laid_out, number, print_table
from synthetic import fill

from aegish_dist.db.embedded import embedded_server

SECTIONS = ("count", "move")
PARTS = ("service", "queue", "limiter", "backoff", "total")

_COUNTS = """
    SELECT model, target, category, cluster, outcome, count(*)
    FROM verdicts JOIN run_models ON id = run_model_id JOIN samples ON key = sample_key
    WHERE run_id = %s GROUP BY 1, 2, 3, 4, 5
"""
_PERCENTILES = """
    SELECT model, sum(input_tokens), sum(output_tokens), sum(cost_usd), avg({part}_ms),
           percentile_cont(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (ORDER BY {part}_ms), max({part}_ms)
    FROM verdicts JOIN run_models ON id = run_model_id WHERE run_id = %s GROUP BY 1
"""
_ONE_LESS = """
    DELETE FROM verdicts WHERE (run_model_id, sample_key) = (
        SELECT run_model_id, max(sample_key) FROM verdicts
        WHERE run_model_id = (SELECT max(id) FROM run_models WHERE run_id = %s) GROUP BY 1)
"""


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Run a PostgreSQL of our own and give its URL; its data stay."""
    with closing(embedded_server(home)) as server:
        yield server.url


class Store:
    """The product against one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._environ = {**os.environ, "AEGISH_DIST_DATABASE_URL": url}
        self.largest_mb = 0.0
        """Memory of the largest process of the last command."""

    def command_s(self, *arguments: object) -> float:
        """Run a command of the product to its end and return the seconds it took."""
        started = time.monotonic()
        process = subprocess.Popen(
            product(*map(str, arguments)), cwd=ROOT, env=self._environ,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError(f"aegish-dist {arguments}: status {status}")
        self.largest_mb = usage.ru_maxrss / 1000
        return time.monotonic() - started

    def sql_s(self, *statements: str, run: str | None = None) -> float:
        """Execute statements in one session and return the seconds they took."""
        started = time.monotonic()
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement, None if run is None else (run,))
        return time.monotonic() - started

    def metrics(self, run: str) -> list[str]:
        """Return every snapshot's metrics, as text."""
        with psycopg.connect(self.url) as connection:
            rows = connection.execute("SELECT document FROM snapshots WHERE run_id = %s", (run,))
            return [json.dumps(document, sort_keys=True) for (document,) in rows]


def by_plain_sql_s(store: Store, run: str) -> float:
    """Count in one session that reads the table, once per question."""
    questions = (_COUNTS, *(_PERCENTILES.format(part=part) for part in PARTS))
    alone = "SET max_parallel_workers_per_gather = 0; SET enable_indexonlyscan = off"
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute(alone)
        started = time.monotonic()
        for question in questions:
            connection.execute(question, (run,)).fetchall()
    return time.monotonic() - started


def count(home: Path, rows: int, repeats: int) -> None:
    """Print how long a run takes to aggregate."""
    run = "0counted"
    with served(home) as url:
        store = Store(url)
        store.command_s("db", "upgrade")
        rows = fill(url, run, rows)
        aggregate = partial(store.command_s, "aggregate", "--run-id", run)
        seconds = {"before any vacuum, once": aggregate()}
        store.sql_s("VACUUM ANALYZE")
    with served(home) as url:
        store = Store(url)
        aggregate = partial(store.command_s, "aggregate", "--run-id", run)

        def one_model_changed_s() -> float:
            store.sql_s(_ONE_LESS, run=run)
            return aggregate()

        seconds["PostgreSQL vacuumed and just started, once"] = aggregate("--recount")
        everything = [aggregate("--recount") for _ in range(repeats)]
        alike = len(set(store.metrics(run))) == 1
        medians = {
            "everything counted": everything,
            "one model changed": [one_model_changed_s() for _ in range(repeats)],
            "nothing changed": [aggregate() for _ in range(repeats)],
            "plain SQL in one session": [by_plain_sql_s(store, run) for _ in range(repeats)],
        }
    seconds |= {name: statistics.median(taken) for name, taken in medians.items()}
    title = f"aggregate {rows:,} verdicts, median of {repeats} (same metrics each time: {alike})"
    print_table(title, [{"what": name, "s": number(each)} for name, each in seconds.items()])


def move(home: Path, rows: int, repeats: int) -> None:
    """Print how many verdicts a second are exported and imported."""
    run, table = "0moved", []
    with served(home) as url:
        store = Store(url)
        store.command_s("db", "upgrade")
        rows = fill(url, run, rows)
        store.sql_s("VACUUM ANALYZE")
        for suffix in (".jsonl", ".parquet"):
            path = home / f"moved{suffix}"
            export = ("verdicts", "export", "--run-id", run, "-o", path)
            for command in (export, ("verdicts", "import", path)):
                seconds = statistics.median(store.command_s(*command) for _ in range(repeats))
                table.append(
                    {
                        "what": f"{command[1]} {suffix}",
                        "s": number(seconds),
                        "rows/s": number(rows / seconds),
                        "file MB": number(path.stat().st_size / 1e6),
                        "largest process MB": number(store.largest_mb),
                    }
                )
            path.unlink()
    print_table(f"{rows:,} verdicts, median of {repeats}", table)


@click.command(help=laid_out(__doc__))
@click.argument("sections", nargs=-1, type=click.Choice(SECTIONS))
@click.option("--rows", default=2_000_000, show_default=True, help="Verdicts to count.")
@click.option("--moved", default=1_000_000, show_default=True, help="Verdicts to move.")
@click.option("--repeats", default=3, show_default=True)
def main(sections: tuple[str, ...], rows: int, moved: int, repeats: int) -> None:
    """Fill stores of our own and measure."""
    for section in sections or SECTIONS:
        with tempfile.TemporaryDirectory(prefix="ab") as folder:
            if section == "count":
                count(Path(folder), rows, repeats)
            else:
                move(Path(folder), moved, repeats)


if __name__ == "__main__":
    main()
