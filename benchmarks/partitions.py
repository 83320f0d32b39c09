"""Whether `verdicts` should be partitioned by run, measured as the table grows.

Run `python benchmarks/partitions.py [--sizes 1,3,6] [--partitions 400]`. Sizes are millions of
verdicts in runs of 100,000 and eleven models; with six it takes ten minutes and 5 GB of disk.

Each layout is filled step by step, and at each size the same is asked: one table as it is, and one
partition per run. Of the partitions as many are there as a store of `--partitions` runs has, the
later ones empty: planning knows of them all. CPU is that of PostgreSQL's process for the session,
which other work on the machine disturbs little:

insert   20,000 verdicts in groups of 50, as workers store them: us per verdict
look up  20,000 items in groups of 50, as workers look them up: us per item
count    what `aggregate` counts of one run: ms
delete   one run of 100,000: seconds in batches of `runs delete` and the vacuum after it, against
         dropping its partition
prune    the completions of one run: seconds, and the vacuum after it
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import click
import psutil
from measuring import laid_out, print_table
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session
from synthetic import MODELS, fill

from aegish_dist.core.parsing import judge
from aegish_dist.core.verdict import Completion, Item, Usage
from aegish_dist.db import schema
from aegish_dist.db.counting import count_models
from aegish_dist.db.deletion import delete_batch, delete_run, model_keys
from aegish_dist.db.embedded import embedded_server
from aegish_dist.db.engine import open_engine, transaction
from aegish_dist.db.pruning import prune_batch
from aegish_dist.db.runs import load_run
from aegish_dist.db.tables import VerdictKey
from aegish_dist.db.verdicts import insert_verdicts, look_up

RUN = 100_000
GROUP = 50
ASKED = 20_000
BATCH = 20_000
ANSWER = judge(
    Completion(
        '{"action": "BLOCK", "reason": "reads what only root may read"}', usage=Usage(1400, 40)
    )
)

_PARTITIONED = """
    CREATE TABLE parted (LIKE verdicts INCLUDING ALL EXCLUDING INDEXES)
        PARTITION BY RANGE (run_model_id);
    ALTER TABLE call_errors DROP CONSTRAINT fk_call_errors_verdicts;
    DROP TABLE verdicts;
    ALTER TABLE parted RENAME TO verdicts;
    ALTER TABLE verdicts ADD CONSTRAINT pk_verdicts
        PRIMARY KEY (run_model_id, sample_key, epoch, generation) INCLUDE ({covered});
    ALTER TABLE call_errors ADD CONSTRAINT fk_call_errors_verdicts
        FOREIGN KEY (run_model_id, sample_key, epoch, generation)
        REFERENCES verdicts (run_model_id, sample_key, epoch, generation) ON DELETE CASCADE;
    CREATE TRIGGER check_references AFTER INSERT ON verdicts REFERENCING NEW TABLE AS inserted
        FOR EACH STATEMENT EXECUTE FUNCTION check_verdict_references();
"""
_COVERED = text("""
    SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = 'pk_verdicts'::regclass AND attnum > 4
""")


class Store:
    """A database in one of the layouts, with a number of runs."""

    def __init__(self, engine: Engine, partitions: int) -> None:
        self.engine = engine
        self.partitioned = partitions > 0
        self.runs: list[str] = []
        self._names = (f"0{number:08}" for number in count())
        schema.upgrade(engine)
        if self.partitioned:
            with engine.begin() as connection:
                covered = connection.scalar(_COVERED)
                connection.exec_driver_sql(_PARTITIONED.format(covered=covered))
                for number in range(partitions):
                    first = 1 + number * MODELS
                    connection.exec_driver_sql(
                        f"CREATE TABLE part_{number} PARTITION OF verdicts FOR VALUES"
                        f" FROM ({first}) TO ({first + MODELS}) WITH (fillfactor = 100)"
                    )

    def add_runs(self, number: int) -> None:
        """Fill so many more runs."""
        url = self.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        for run in (next(self._names) for _ in range(number)):
            fill(url, run, RUN)
            self.runs.append(run)
        self.vacuum()

    def vacuum(self) -> float:
        """Vacuum and analyze the table, and return the seconds it took."""
        started = time.monotonic()
        with self.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(text("VACUUM (ANALYZE) verdicts"))
        return time.monotonic() - started

    def items(self, run: str, number: int) -> list[list[Item]]:
        """Return items of a run in groups."""
        with Session(self.engine) as session:
            names = load_run(session, run).models
            keys = session.scalars(
                text(
                    "SELECT key FROM samples JOIN run_datasets USING (dataset_id)"
                    " WHERE run_id = :run ORDER BY random() LIMIT :limit"
                ),
                {"run": run, "limit": number // len(names) + 1},
            ).all()
        every = [Item(run, spec.id, key, 1, 0) for key in keys for spec in names][:number]
        return [every[at : at + GROUP] for at in range(0, len(every), GROUP)]

    def size(self) -> int:
        """Return the bytes of the verdicts on disk."""
        parts = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('verdicts')"
        whole = "SELECT pg_total_relation_size('verdicts')"
        with self.engine.connect() as connection:
            return int(connection.scalar(text(parts if self.partitioned else whole)) or 0)


def cpu_s(store: Store, work: Callable[[Session], object]) -> float:
    """Return the CPU seconds that PostgreSQL's process of a session takes over some work."""
    with Session(store.engine) as session:
        server = psutil.Process(session.scalar(text("SELECT pg_backend_pid()")) or 0)
        before = server.cpu_times()
        work(session)
        after = server.cpu_times()
        session.rollback()
    return float(after.user + after.system - before.user - before.system)


def insert_us(store: Store) -> float:
    """Store verdicts of a new run as workers do, and take them back."""
    items = store.items(store.runs[-1], ASKED)

    def insert(session: Session) -> None:
        models = model_keys(session, store.runs[-1])
        for number, group in enumerate(items):
            # Another epoch, so that none is there; the last model of the store grows at its end.
            rows = [
                (VerdictKey(models[at % len(models)], each.sample_key, 2 + number % 9, 0), ANSWER)
                for at, each in enumerate(group)
            ]
            insert_verdicts(session, rows)

    return cpu_s(store, insert) / ASKED * 1e6


def look_up_us(store: Store) -> float:
    """Look items of a run in the middle up."""
    groups = store.items(store.runs[len(store.runs) // 2], ASKED)
    return cpu_s(store, lambda session: [look_up(session, each) for each in groups]) / ASKED * 1e6


def count_ms(store: Store) -> float:
    """Count a run in the middle."""
    run = store.runs[len(store.runs) // 2]
    work = lambda session: list(count_models(session, load_run(session, run), {}))  # noqa: E731
    return cpu_s(store, work) * 1e3


def _batches(store: Store, run: str, batch: Callable[[Session, int, int], int | None]) -> float:
    started = time.monotonic()
    with transaction(store.engine) as session:
        models = model_keys(session, run)
    for model in models:
        after: int | None = -1
        while after is not None:
            with transaction(store.engine) as session:
                after = batch(session, model, after)
    return time.monotonic() - started


def delete_s(store: Store) -> tuple[float, float]:
    """Delete the oldest run; return the seconds, and those of the vacuum after it."""
    run = store.runs.pop(0)
    if store.partitioned:
        started = time.monotonic()
        with store.engine.begin() as connection:
            (first,) = connection.execute(
                text("SELECT min(id) FROM run_models WHERE run_id = :run"), {"run": run}
            ).one()
            connection.exec_driver_sql(f"DROP TABLE part_{(first - 1) // MODELS} CASCADE")
        with transaction(store.engine) as session:
            delete_run(session, run)
        return time.monotonic() - started, 0.0

    def batch(session: Session, model: int, after: int) -> int | None:
        gone = delete_batch(session, model, after, BATCH)
        return None if gone is None else gone.through

    seconds = _batches(store, run, batch)
    with transaction(store.engine) as session:
        delete_run(session, run)
    return seconds, store.vacuum()


def prune_s(store: Store) -> tuple[float, float]:
    """Prune the oldest run; return the seconds, and those of the vacuum after it."""
    run, before = store.runs[0], datetime.now(UTC)

    def batch(session: Session, model: int, after: int) -> int | None:
        pruned = prune_batch(session, run, model, after, BATCH, before=before)
        return None if pruned is None else pruned.through

    return _batches(store, run, batch), store.vacuum()


def measured(store: Store, sizes: Sequence[int]) -> Iterator[dict[str, str]]:
    """Yield a row for each size."""
    for size in sizes:
        runs = size * 1_000_000 // RUN
        store.add_runs(runs - len(store.runs))
        each = store.size() / (len(store.runs) * RUN)
        cpu = [min(ask(store) for _ in range(3)) for ask in (insert_us, look_up_us, count_ms)]
        pruned, deleted = prune_s(store), delete_s(store)
        yield {
            "layout": "partitions" if store.partitioned else "one table",
            "million": str(size),
            "bytes each": f"{each:.0f}",
            "insert us": f"{cpu[0]:.1f}",
            "look up us": f"{cpu[1]:.1f}",
            "count ms": f"{cpu[2]:.0f}",
            "delete s + vacuum s": "{:.1f} + {:.1f}".format(*deleted),
            "prune s + vacuum s": "{:.1f} + {:.1f}".format(*pruned),
        }


@click.command(help=laid_out(__doc__))
@click.option("--sizes", default="1,3,6", show_default=True, help="Millions of verdicts.")
@click.option("--partitions", default=400, show_default=True, help="Runs of the store planned for.")
def main(sizes: str, partitions: int) -> None:
    """Measure both layouts, one after the other."""
    rows: list[dict[str, str]] = []
    for parts in (0, partitions):
        with (
            tempfile.TemporaryDirectory() as home,
            closing(embedded_server(Path(home))) as server,
        ):
            engine = open_engine(server.url)
            for row in measured(Store(engine, parts), [int(size) for size in sizes.split(",")]):
                print(row, flush=True)
                rows.append(row)
            engine.dispose()
    print_table(f"Runs of {RUN:,} verdicts", rows)


if __name__ == "__main__":
    main()
