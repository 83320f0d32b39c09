"""What one worker process costs and carries: CPU per verdict, calls in flight, memory.

Run with `make bench`, or `python benchmarks/worker.py [cpu] [in-flight]`. Needs redis-server.

cpu:        the simulator answers at once; CPU milliseconds per verdict of each process, from
            `submit` to the last commit. The worker is up before.
in-flight:  the simulator takes one second and the worker may hold 500 calls.
"""

import sys

from cluster import Cluster, Simulators
from measuring import medians, number, print_table
from run_ours import run_ours

EPOCHS = 8
SAMPLES = 659
REPEATS = 3
ALLOWED = 500


def measure(latency_s: float) -> dict[str, float]:
    """Return the figures of a run of the bundled datasets on one worker process."""
    with (
        Simulators(latency=f"constant:{latency_s:g}") as simulators,
        Cluster(simulators, in_flight=ALLOWED) as cluster,
    ):
        before = simulators.cpu_s()
        planned = SAMPLES * EPOCHS
        _, row = run_ours(cluster, simulators, planned, ["--epochs", str(EPOCHS)], cold=False)
        return row | {"simulator ms": 1000 * (simulators.cpu_s() - before) / planned}


def show(title: str, latency_s: float, columns: list[str], repeats: int) -> None:
    """Measure and print medians with their range."""
    rows = [measure(latency_s) for _ in range(repeats)]
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
    print_table(f"{title}, {SAMPLES * EPOCHS} verdicts, {ALLOWED} allowed, {repeats} runs", table)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["cpu", "in-flight"]
    if "cpu" in wanted:
        parts = ["worker ms", "postgres ms", "redis ms", "producer ms", "CPU ms/verdict"]
        show("CPU per verdict at 0 s latency", 0, [*parts, "simulator ms", "verdicts/s"], REPEATS)
    if "in-flight" in wanted:
        show("Calls in flight at 1 s latency", 1, ["sustained", "max in flight", "memory MB"], 1)
