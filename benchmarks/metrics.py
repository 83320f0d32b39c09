"""Cost of measures: of a scrape, of a worker that serves them, and of the exporter's readings.

Run with `python benchmarks/metrics.py [scrape] [worker] [exporter]`. `worker` needs redis-server.

scrape:    CPU milliseconds of a worker's page with 30 models, every series present: made, then
           compressed as Prometheus asks for it; and microseconds of counting a verdict.
worker:    CPU milliseconds per verdict of one worker that is called at 0 s latency, without a port
           for metrics and with one that is scraped every second, in turn.
exporter:  CPU milliseconds and duration of one reading of the database, with 300,000 verdicts of
           an open run in it, and of one count of them.
"""

import gzip
import os
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from cluster import Cluster, Simulators
from measuring import laid_out, medians, number, print_table
from run_ours import run_ours
from sqlalchemy import text

from aegish_dist.core.completion import Completion, Usage
from aegish_dist.core.status import Blocked
from aegish_dist.core.verdict import CallError, ErrorClass, Outcome, Timing, Verdict
from aegish_dist.db.embedded import embedded_server
from aegish_dist.db.engine import open_engine, transaction
from aegish_dist.db.fleet_state import count_models, read_fleet
from aegish_dist.db.schema import upgrade
from aegish_dist.telemetry.exposition import exposition
from aegish_dist.telemetry.measures import WORKER
from aegish_dist.telemetry.work import Work
from tests.services import free_port
from workers.telemetry import of_models

SECTIONS = ("scrape", "worker", "exporter")
MODELS = 30
SCRAPES = 100
PAIRS = 5
SAMPLES, EPOCHS = 659, 8
VERDICTS = 300_000


def worked() -> Work:
    """Return the counts of a worker that has met everything, with every model."""
    work = Work()
    for place in range(MODELS):
        model = f"vendor/a-model-of-some-length-{place}"
        for kind in ErrorClass:
            work.failed(model, CallError(2, kind, 500, None, "", None))  # type: ignore[arg-type]
        for outcome in Outcome:
            work.stored([(model, a_verdict(outcome))] * 100, 0.02)
    return work


def a_verdict(outcome: Outcome) -> Verdict:
    """Return a verdict with everything that is counted."""
    return Verdict(
        outcome,
        Completion("", usage=Usage(1_000, 50, 20, 500, 10)),
        cost_usd=Decimal("0.00123"),
        timing=Timing(12_345.678, 0.5, 0.0, 987.654, 13_333.832),
    )


def parts_of(work: Work) -> Any:
    """Return the parts of a worker whose state is read, every model in use."""
    models = [model for (model,) in work.readings["aegish_retries_total"]]
    limiter = SimpleNamespace(
        calls=9, permits=3, parked=False, waiting={"run": 5}, blocked_by=Blocked.RATE
    )
    return SimpleNamespace(
        evaluator=SimpleNamespace(
            in_flight=Counter({("run", model): 20 for model in models}),
            failing=SimpleNamespace(backing_off=Counter({("run", model): 1 for model in models})),
        ),
        limiters=SimpleNamespace(by_model=dict.fromkeys(models, limiter)),
    )


def counting_us() -> float:
    """Return the CPU microseconds of counting one verdict, in a group of 100."""
    work, group = Work(), [("vendor/a", a_verdict(Outcome.BLOCK))] * 100
    return 10 * cpu_ms(lambda: work.stored(group, 0.02))


def cpu_ms(call: Callable[[], object]) -> float:
    """Return the CPU milliseconds of one call."""
    began = time.process_time()
    for _ in range(SCRAPES):
        call()
    return 1000 * (time.process_time() - began) / SCRAPES


def measure_scrape() -> None:
    """Print what a page costs."""
    work = worked()
    parts = parts_of(work)

    def page() -> str:
        return exposition(WORKER, {**of_models(parts), **work.readings})

    body = page().encode()
    row = {
        "lines": number(body.count(b"\n")),
        "KB": number(len(body) / 1000),
        "made, ms": number(cpu_ms(page)),
        "compressed, ms": number(cpu_ms(lambda: gzip.compress(body, 1))),
        "KB sent": number(len(gzip.compress(body, 1)) / 1000),
        "counting a verdict, us": number(counting_us()),
    }
    print_table(f"CPU of one scrape of a worker with {MODELS} models", [row])


@contextmanager
def scraped(port: int) -> Iterator[None]:
    """Scrape a worker every second meanwhile."""
    stopped = threading.Event()

    def scrape() -> None:
        while not stopped.wait(1.0):
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"}
            )
            urllib.request.urlopen(request, timeout=10).read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def measure_run(port: int | None) -> float:
    """Return the CPU milliseconds per verdict of a worker, with a port for metrics or without."""
    os.environ.pop("AEGISH_DIST_METRICS_PORT", None)
    if port is not None:
        os.environ["AEGISH_DIST_METRICS_PORT"] = str(port)
    planned = SAMPLES * EPOCHS
    with (
        Simulators(latency="constant:0") as simulators,
        Cluster(simulators, in_flight=500) as cluster,
    ):
        options = ["--epochs", str(EPOCHS), "--skip-preflight"]
        if port is None:
            return run_ours(cluster, simulators, planned, options, cold=False)[1]["worker ms"]
        with scraped(port):
            return run_ours(cluster, simulators, planned, options, cold=False)[1]["worker ms"]


def measure_worker(pairs: int) -> None:
    """Print what serving measures costs a worker, pair by pair."""
    rows = []
    for _ in range(pairs):
        off = measure_run(None)
        on = measure_run(free_port())
        rows.append({"off": off, "on": on, "ratio": on / off})
        print_table("pair", [{name: number(value) for name, value in rows[-1].items()}])
    middle = medians(rows)
    print_table(
        f"CPU ms per verdict of a worker, medians of {pairs} pairs",
        [{name: f"{value:.3f}" for name, value in middle.items()}],
    )


def measure_exporter() -> None:
    """Print what readings of the database take."""
    with (
        tempfile.TemporaryDirectory(prefix="ab") as home,
        closing(embedded_server(Path(home))) as server,
    ):
        engine = open_engine(server.url)
        upgrade(engine)
        with transaction(engine) as session:
            for statement in _FILL:
                session.execute(text(statement), {"verdicts": VERDICTS})
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE verdicts"))
        rows = []
        for title, call in (("reading", read_fleet), ("count", lambda s: count_models(s, [1]))):
            began, used = time.monotonic(), time.process_time()
            for _ in range(10):
                with transaction(engine) as session:
                    call(session)
            rows.append(
                {
                    "what": title,
                    "ms": number(100 * (time.monotonic() - began)),
                    "CPU ms of the exporter": number(100 * (time.process_time() - used)),
                }
            )
        print_table(f"Database with {VERDICTS:,} verdicts of an open run", rows)
        engine.dispose()


_FILL = (
    "INSERT INTO datasets (name, fingerprint, source, licence, samples, malicious, selectable)"
    " VALUES ('many', 'f', '', '', :verdicts, 0, false)",
    "INSERT INTO samples (dataset_id, sample_id, command, target, details)"
    " SELECT 1, n::text, 'ls', 'harmless', '{}' FROM generate_series(1, :verdicts) AS n",
    "INSERT INTO runs (id, name, origin, package_version, epochs, created_at, parameters)"
    " VALUES ('0abcdefgh', '', 'submit', '0', 1, now(), '{}')",
    "INSERT INTO run_datasets VALUES ('0abcdefgh', 1)",
    "INSERT INTO run_models (run_id, model, spec, queue, open)"
    " VALUES ('0abcdefgh', 'test/a', '{}', 'aegish.test/a#0abcdefgh', true)",
    "INSERT INTO verdicts (run_model_id, sample_key, epoch, generation, outcome, parser_version,"
    " attempts, cost_usd) SELECT 1, key, 1, 0, 'BLOCK', 1, 1, 0.001 FROM samples",
)


@click.command(help=laid_out(__doc__))
@click.option("--pairs", type=click.IntRange(1), default=PAIRS, show_default=True)
@click.argument("sections", nargs=-1, type=click.Choice(SECTIONS))
def main(*, sections: tuple[str, ...], pairs: int) -> None:
    """Measure the sections that are asked for."""
    measures = {
        "scrape": measure_scrape,
        "worker": lambda: measure_worker(pairs),
        "exporter": measure_exporter,
    }
    for section in sections or SECTIONS:
        measures[section]()


if __name__ == "__main__":
    main()
