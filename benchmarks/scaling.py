"""Throughput of more worker processes, and the time of a short run.

Run `python benchmarks/scaling.py [--quick] [workers] [wall] [in-flight]`. Needs redis-server.

workers:    1, 2 and 4 worker processes on four models, 0 s and 1 s latency, 500 calls held by
            each process. The queues fill while the workers halt, so that neither their start nor
            the producer limits anything; the rate is taken while the middle half of the calls
            arrives. CPU is that of workers, PostgreSQL and Redis from the first call to the last
            commit. All share the machine: `busy` tells how many cores each side kept busy, and
            a simulator process near 1.0 is itself the limit (`--simulators` starts more).
wall:       from `submit` to the last commit of one model at 1 s latency with 500 calls allowed,
            with a worker that is up, and with one that is started at the same moment.
in-flight:  what one worker process sustains at 1 s latency when 500 and 1,000 calls are allowed,
            and its memory.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import click
from cluster import MODELS, Cluster, Simulators
from material import Material
from measuring import Watch, laid_out, medians, number, print_table, ratio
from msgspec import Struct
from run_ours import RUN_TIMEOUT_S, measured, run_ours

from tests.services import wait_until

PER_WORKER = 500
K = TypeVar("K")
Measure = Callable[[], dict[str, float]]
SECTIONS = ("workers", "wall", "in-flight")


class Plan(Struct, frozen=True):
    """Options that all sections share."""

    material: Material
    simulators: int
    workers: tuple[int, ...]
    epochs: int
    repeats: int

    def medians(self, measures: Mapping[K, Measure]) -> dict[K, dict[str, float]]:
        """Take every measure in turn, as often as asked, and return the medians of each."""
        taken = [{key: take() for key, take in measures.items()} for _ in range(self.repeats)]
        return {key: medians([each[key] for each in taken]) for key in measures}


def filled_queue(plan: Plan, workers: int, latency_s: float) -> dict[str, float]:
    """Fill the queues while the workers halt, let them go, and measure until the last commit."""
    with (
        Simulators(latency=f"constant:{latency_s:g}", number=plan.simulators) as simulators,
        Cluster(
            simulators, in_flight=PER_WORKER * workers, concurrency=PER_WORKER, models=MODELS,
            workers=workers,
        ) as cluster,
    ):  # fmt: skip
        options = [*plan.material.store(cluster), "--epochs", str(plan.epochs)]
        planned = plan.material.commands * len(MODELS) * plan.epochs
        with cluster.paused():
            run_id, _ = cluster.submit(*options)
            before, served = cluster.cpu(), simulators.cpu_s()
        idle_s = sum(before.values())
        watch = Watch(
            stats=simulators.stats,
            planned=planned,
            cpu=lambda: sum(cluster.cpu().values()) - idle_s,
            memory=cluster.memory_mb,
        )
        with watch:
            wait_until(lambda: watch.all_arrived, f"{planned} calls", RUN_TIMEOUT_S)
            wait_until(lambda: cluster.stored(run_id) >= planned, "all verdicts", RUN_TIMEOUT_S)
            wall_s = time.monotonic() - watch.started
            after, served = cluster.cpu(), simulators.cpu_s() - served
        spent = sum(after.values()) - idle_s
        row = measured(watch, wall_s=wall_s, cpu_s=spent)
        working_s = wall_s - watch.first_call_s
        parts = {f"{name} ms": 1000 * (after[name] - before[name]) / planned for name in before}
        return row | {
            **parts,
            "verdicts/s": watch.calls_per_s,
            "cores busy": (spent - watch.cpu_at_first_call_s) / working_s,
            "simulator cores busy": served / working_s,
        }


def show_workers(plan: Plan) -> None:
    """Print what more worker processes bring."""
    for latency_s in (0.0, 1.0):
        rows = plan.medians(
            {each: partial(filled_queue, plan, each, latency_s) for each in plan.workers}
        )
        base = rows[plan.workers[0]]["verdicts/s"]
        table = [
            {
                "workers": str(workers),
                "verdicts/s": number(row["verdicts/s"]),
                "speed-up": ratio(row["verdicts/s"], base),
                "CPU ms/verdict": number(row["after 1st call"]),
                "worker": number(row["worker ms"]),
                "PostgreSQL": number(row["postgres ms"]),
                "Redis": number(row["redis ms"]),
                "sustained in flight": number(row["sustained"]),
                "memory MB": number(row["memory MB"]),
                "cores busy": number(row["cores busy"]),
                "simulator cores busy": number(row["simulator cores busy"]),
            }
            for workers, row in rows.items()
        ]
        planned = plan.material.commands * len(MODELS) * plan.epochs
        print_table(
            f"{latency_s:g} s latency, {len(MODELS)} models, {planned} verdicts, {PER_WORKER} held"
            f" per worker, {plan.simulators} simulator processes; medians of {plan.repeats}",
            table,
        )


def one_model(plan: Plan, *, allowed: int, epochs: int, cold: bool) -> dict[str, float]:
    """Measure one run of one model at 1 s latency on one worker process."""
    with (
        Simulators(latency="constant:1", number=1) as simulators,
        Cluster(simulators, in_flight=allowed, workers=0 if cold else 1) as cluster,
    ):
        options = [*plan.material.store(cluster), "--epochs", str(epochs)]
        planned = plan.material.commands * epochs
        return run_ours(cluster, simulators, planned, options, cold=cold)[1]


def show_wall(plan: Plan) -> None:
    """Print how long a short run takes."""
    columns = ("wall s", "1st call s", "sustained", "CPU ms/verdict")
    ways = {"up": False, "started with submit": True}
    rows = plan.medians(
        {
            name: partial(one_model, plan, allowed=PER_WORKER, epochs=1, cold=cold)
            for name, cold in ways.items()
        }
    )
    table = [
        {"worker": name} | {column: number(row[column]) for column in columns}
        for name, row in rows.items()
    ]
    print_table(
        f"{plan.material.commands} commands, 1 s latency, {PER_WORKER} allowed, 1 worker;"
        f" medians of {plan.repeats}",
        table,
    )


def show_in_flight(plan: Plan) -> None:
    """Print what one worker process sustains."""
    rows = plan.medians(
        {
            allowed: partial(one_model, plan, allowed=allowed, epochs=4 * plan.epochs, cold=False)
            for allowed in (500, 1000)
        }
    )
    table = [
        {
            "allowed": str(allowed),
            "sustained": number(row["sustained"]),
            "of allowed": f"{row['sustained'] / allowed:.0%}",
            "max in flight": number(row["max in flight"]),
            "memory MB": number(row["memory MB"]),
            "CPU ms/verdict": number(row["CPU ms/verdict"]),
        }
        for allowed, row in rows.items()
    ]
    print_table(f"1 s latency, 1 worker; medians of {plan.repeats}", table)


@click.command(help=laid_out(__doc__))
@click.argument("sections", nargs=-1, type=click.Choice(SECTIONS))
@click.option("--quick", is_flag=True, help="Small runs, once each.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--epochs", default=4, show_default=True, help="Length of the longer runs.")
@click.option("--simulators", default=2, show_default=True)
@click.option("--commands", multiple=True, type=click.Path(exists=True, path_type=Path))
def main(
    *,
    sections: tuple[str, ...],
    quick: bool,
    repeats: int,
    epochs: int,
    simulators: int,
    commands: tuple[Path, ...],
) -> None:
    """Measure the sections that are asked for."""
    plan = Plan(
        Material.load(commands),
        simulators,
        workers=(1, 2) if quick else (1, 2, 4),
        epochs=1 if quick else epochs,
        repeats=1 if quick else repeats,
    )
    shows = dict(zip(SECTIONS, (show_workers, show_wall, show_in_flight), strict=True))
    for section in sections or SECTIONS:
        shows[section](plan)


if __name__ == "__main__":
    main()
