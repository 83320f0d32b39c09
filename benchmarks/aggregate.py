"""How fast verdicts are counted and moved when there are millions of them.

Run with `python benchmarks/aggregate.py [--verdicts 10000000] [--epochs 1] [--moved 1000000]`. That
takes ten minutes and 12 GB of disk. Everything is timed from the command line, three times, median;
one line says what the same counts cost one session that reads the table, as a plain SQL script
would. Where the `duckdb` package is installed, it counts the exported Parquet file as well.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from synthetic import fill

from aegish_dist.db.embedded import start_embedded

REPEATS = 3
PARTS = ("service", "queue", "limiter", "backoff", "total")

_COUNTS = """
    SELECT model, target, category, cluster, outcome, count(*)
    FROM verdicts JOIN run_models ON id = run_model_id JOIN samples ON key = sample_key
    WHERE run_id = '{run}' GROUP BY 1, 2, 3, 4, 5
"""
_PERCENTILES = """
    SELECT model, sum(input_tokens), sum(output_tokens), sum(cost_usd), avg({part}_ms),
           percentile_cont(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (ORDER BY {part}_ms), max({part}_ms)
    FROM verdicts JOIN run_models ON id = run_model_id WHERE run_id = '{run}' GROUP BY 1
"""


def median_s(work: Callable[[], object]) -> float:
    """Return the median time of a piece of work."""
    times = []
    for _ in range(REPEATS):
        started = time.monotonic()
        work()
        times.append(time.monotonic() - started)
    return statistics.median(times)


class Commands:
    """The product against one database."""

    def __init__(self, url: str) -> None:
        self._environ = {**os.environ, "AEGISH_DIST_DATABASE_URL": url}

    def __call__(self, *arguments: object) -> str:
        """Run a command to its end and return what it printed."""
        command = [sys.executable, "-m", "aegish_dist", *map(str, arguments)]
        return subprocess.run(
            command, env=self._environ, check=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ).stdout  # fmt: skip


def by_plain_sql(url: str, run: str) -> None:
    """Count in one session that reads the table, once per question."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "SET max_parallel_workers_per_gather = 0; SET enable_indexonlyscan = off"
        )
        connection.execute(_COUNTS.format(run=run)).fetchall()
        for part in PARTS:
            connection.execute(_PERCENTILES.format(run=run, part=part)).fetchall()


def by_duckdb(path: Path) -> None:
    """Count an exported file."""
    duckdb: Any = import_module("duckdb")
    duckdb.sql(
        f"SELECT model, target, category, cluster, outcome, count(*) FROM '{path}' GROUP BY ALL"
    ).fetchall()
    columns = ["latency_ms", *(f"{part}_ms" for part in PARTS[1:])]
    quantiles = ", ".join(f"quantile_cont({each}, [0.5, 0.9, 0.99])" for each in columns)
    duckdb.sql(f"SELECT model, sum(input_tokens), {quantiles} FROM '{path}' GROUP BY 1").fetchall()


def counting(command: Commands, url: str, run: str, home: Path) -> None:
    """Print how long a run takes to aggregate and to look at."""

    def documents() -> list[str]:
        printed = command("aggregate", "--run-id", run, "--recount", "--json")
        return [json.dumps(json.loads(printed)["models"], sort_keys=True)]

    first = documents()
    seconds = {
        "aggregate, everything counted": median_s(lambda: first.extend(documents())),
        "aggregate, nothing new": median_s(lambda: command("aggregate", "--run-id", run)),
        "status": median_s(lambda: command("status", "--run-id", run)),
        "plain SQL, one session": median_s(lambda: by_plain_sql(url, run)),
    }
    if find_spec("duckdb"):
        path = home / "all.parquet"
        command("verdicts", "export", "--run-id", run, "-o", path)
        seconds["DuckDB, exported Parquet"] = median_s(lambda: by_duckdb(path))
    for name, each in seconds.items():
        print(f"  {name:32} {each:8.2f} s")
    print(f"  metrics equal in {len(first)} counts: {len(set(first)) == 1}")


def moving(command: Commands, run: str, verdicts: int, home: Path) -> None:
    """Print how many verdicts a second leave the store and come back."""
    for suffix in ("jsonl", "parquet"):
        path = home / f"moved.{suffix}"
        out_s = median_s(
            lambda path=path: command("verdicts", "export", "--run-id", run, "-o", path)
        )
        in_s = median_s(lambda path=path: command("verdicts", "import", path))
        size = path.stat().st_size / 1e6
        print(f"  export .{suffix:24} {verdicts / out_s:10,.0f} verdicts/s   ({size:,.0f} MB)")
        print(f"  import .{suffix:24} {verdicts / in_s:10,.0f} verdicts/s")
        path.unlink()


def main() -> None:
    """Fill a store of its own and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verdicts", type=int, default=10_000_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--moved", type=int, default=1_000_000)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ab") as folder:
        home = Path(folder)
        url = start_embedded(home)
        command = Commands(url)
        command("db", "upgrade")
        started = time.monotonic()
        counted = fill(url, "0large", wanted.verdicts, wanted.epochs)
        moved = fill(url, "0small", wanted.moved, 1)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")  # the server would get to it within a minute
        print(f"{counted + moved:,} verdicts stored in {time.monotonic() - started:.0f} s")
        print(f"{counted:,} verdicts, {os.cpu_count()} cores, median of {REPEATS}:")
        counting(command, url, "0large", home)
        print(f"{moved:,} verdicts:")
        moving(command, "0small", moved, home)


if __name__ == "__main__":
    main()
