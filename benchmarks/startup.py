"""CPU of everyday commands beside the imports that they cannot do without, and a worker's start.

Run with `make bench`, or `python benchmarks/startup.py [--repeats N] [commands] [worker]`. Needs
redis-server.

commands:   CPU and wall time of whole processes against a server with a finished run, each in
            alternation with `python -c "import click, psycopg, sqlalchemy.orm"`; the ratio is the
            median of the pairs, so that it holds while the speed of the machine drifts.
worker:     from the start of `aegish-dist worker` to its first call; the queues are full before.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click
from cluster import MODELS, Cluster, Simulators, product
from measuring import cpu_s, ended_cpu_s, laid_out, number, print_table

from tests.services import START_TIMEOUT_S, wait_until

BASELINE = (sys.executable, "-c", "import click, psycopg, sqlalchemy.orm")
COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("runs",),
    ("models", "list"),
    ("aggregate",),
    ("report",),
    ("submit", "--models", "baseline/keyword", "--dry-run"),
    ("submit", "--models", "all", "--dry-run"),
    ("submit", "--help"),
)
SECTIONS = ("commands", "worker")
POLL_S = 0.01
SAMPLES = 20


class Cost(NamedTuple):
    """Of one process."""

    cpu_s: float
    wall_s: float


def cost(command: Sequence[str], environ: dict[str, str]) -> Cost:
    """Run a process to its end."""
    before, started = ended_cpu_s(), time.monotonic()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    return Cost(ended_cpu_s() - before, time.monotonic() - started)


def beside_baseline(
    command: Sequence[str], environ: dict[str, str], repeats: int
) -> dict[str, str]:
    """Return the medians of a command and of its ratio to the baseline, after one warm-up."""
    pairs = [(cost(command, environ), cost(BASELINE, environ)) for _ in range(repeats + 1)][1:]
    ours, base = zip(*pairs, strict=True)
    return {
        "CPU ms": number(1000 * statistics.median(each.cpu_s for each in ours)),
        "imports alone": number(1000 * statistics.median(each.cpu_s for each in base)),
        "CPU ratio": f"{statistics.median(a.cpu_s / b.cpu_s for a, b in pairs):.2f}",
        "wall ms": number(1000 * statistics.median(each.wall_s for each in ours)),
        "wall ratio": f"{statistics.median(a.wall_s / b.wall_s for a, b in pairs):.2f}",
    }


def first_call(cluster: Cluster, simulators: Simulators) -> dict[str, float]:
    """Fill the queues, start a worker, and stop it once everything is stored."""
    run_id, _ = cluster.submit("--dataset", "malicious", "--limit", str(SAMPLES))
    planned = SAMPLES * len(cluster.models)
    before, started = calls(simulators), time.monotonic()
    cluster.start_workers()
    worker = cluster.workers.pop()
    while calls(simulators) == before:
        time.sleep(POLL_S)
    row = {"1st call s": time.monotonic() - started, "CPU s": cpu_s(worker)}
    wait_until(lambda: cluster.stored(run_id) >= planned, "all verdicts", START_TIMEOUT_S)
    row["memory MB"] = worker.memory_info().rss / 1e6
    worker.terminate()
    worker.wait()
    return row


def calls(simulators: Simulators) -> int:
    """Return how many calls the simulated provider has counted."""
    return sum(simulators.stats()["requests"].values())


def show_commands(cluster: Cluster, simulators: Simulators, repeats: int) -> None:
    """Print what commands cost."""
    first_call(cluster, simulators)  # leaves a finished run
    rows = [
        {"command": " ".join(each)} | beside_baseline(product(*each), cluster.environ, repeats)
        for each in COMMANDS
    ]
    print_table(f"Whole processes, medians of {repeats} pairs", rows)


def show_worker(cluster: Cluster, simulators: Simulators, repeats: int) -> None:
    """Print how soon a worker works."""
    rows = [first_call(cluster, simulators) for _ in range(repeats + 1)][1:]
    table = [
        {
            "what": name,
            "median": number(statistics.median(row[name] for row in rows)),
            "least": number(min(row[name] for row in rows)),
            "most": number(max(row[name] for row in rows)),
        }
        for name in rows[0]
    ]
    print_table(f"A worker from its start to its first call, {repeats} times", table)


SHOWS: dict[str, Callable[[Cluster, Simulators, int], None]] = {
    "commands": show_commands,
    "worker": show_worker,
}


@click.command(help=laid_out(__doc__))
@click.argument("sections", nargs=-1, type=click.Choice(SECTIONS))
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
def main(*, sections: tuple[str, ...], repeats: int) -> None:
    """Measure the sections that are asked for."""
    with (
        Simulators(latency="constant:0.05") as simulators,
        Cluster(simulators, in_flight=100, models=MODELS[:3], workers=0) as cluster,
    ):
        for section in sections or SECTIONS:
            SHOWS[section](cluster, simulators, repeats)


if __name__ == "__main__":
    main()
