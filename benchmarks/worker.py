"""Cost and capacity of one worker process: CPU per verdict, calls in flight, memory.

Run with `make bench`, or `python benchmarks/worker.py [cpu] [in-flight]`. Needs redis-server.

cpu:        the simulator answers at once; CPU milliseconds per verdict of each process, from
            `submit` to the last commit. The worker is up before.
in-flight:  the simulator takes one second and the worker may have 500, then 1,000 calls in flight.
"""

import click
from cluster import Cluster, Simulators
from measuring import laid_out, medians, number, print_table
from run_ours import run_ours

EPOCHS = 8
SAMPLES = 659
REPEATS = 3
ALLOWED = (500, 1000)
SECTIONS = ("cpu", "in-flight")


def measure(latency_s: float, allowed: int, epochs: int) -> dict[str, float]:
    """Return the figures of a run of the bundled datasets on one worker process."""
    with (
        Simulators(latency=f"constant:{latency_s:g}") as simulators,
        Cluster(simulators, in_flight=allowed) as cluster,
    ):
        before = simulators.cpu_s()
        planned = SAMPLES * epochs
        _, row = run_ours(cluster, simulators, planned, ["--epochs", str(epochs)], cold=False)
        return row | {"simulator ms": 1000 * (simulators.cpu_s() - before) / planned}


def show(title: str, rows: list[dict[str, float]], columns: list[str]) -> None:
    """Print medians with their range."""
    middle = medians(rows)
    table = [
        {
            "what": name,
            "median": number(middle[name]),
            "least": number(min(row[name] for row in rows)),
            "most": number(max(row[name] for row in rows)),
        }
        for name in columns
    ]
    print_table(title, table)


@click.command(help=laid_out(__doc__))
@click.argument("sections", nargs=-1, type=click.Choice(SECTIONS))
def main(*, sections: tuple[str, ...]) -> None:
    """Measure the sections that are asked for."""
    wanted = sections or SECTIONS
    if "cpu" in wanted:
        parts = ["worker ms", "postgres ms", "redis ms", "producer ms", "CPU ms/verdict"]
        rows = [measure(0, ALLOWED[0], EPOCHS) for _ in range(REPEATS)]
        show(
            f"CPU per verdict at 0 s latency, {SAMPLES * EPOCHS} verdicts",
            rows,
            [*parts, "simulator ms", "verdicts/s"],
        )
    if "in-flight" in wanted:
        for allowed in ALLOWED:
            epochs = EPOCHS * allowed // ALLOWED[0]
            rows = [measure(1, allowed, epochs)]
            show(
                f"Calls in flight at 1 s latency, {allowed} allowed",
                rows,
                ["sustained", "max in flight", "memory MB"],
            )


if __name__ == "__main__":
    main()
