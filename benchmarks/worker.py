"""What one worker process costs and carries: CPU per verdict, calls in flight, memory.

Run with `make bench`, or `python benchmarks/worker.py [cpu] [in-flight]`. Needs redis-server.

cpu:        the simulator answers at once; CPU seconds of each process from the first call to the
            last commit, divided by the verdicts; the producer's with its start. Median of three.
in-flight:  the simulator takes one second and the worker may have 500, then 1,000 calls in flight;
            calls in flight as the simulator counts them, over the steady part of the run.
"""

import os
import statistics
import sys
import time

from cluster import POLL_S, Cluster, cpu_s

EPOCHS = 8
SAMPLES = 659
REPEATS = 3
ALLOWED = (500, 1000)


def submit(cluster: Cluster, epochs: int) -> str:
    """Enqueue a run of the bundled datasets and return its id."""
    printed = cluster.run("submit", "--models", "simulated/careful", "--epochs", str(epochs))
    return printed.strip()


def cpu_per_verdict() -> None:
    """Print CPU milliseconds per verdict of every process."""
    rows = []
    with Cluster(latency="constant:0", in_flight=ALLOWED[0]) as cluster:
        parts = {
            "worker": cluster.worker,
            "postgres": cluster.postgres,
            "redis": cluster.redis,
            "simulator": cluster.simulator,
        }
        for _ in range(REPEATS):
            before = {name: cpu_s(process) for name, process in parts.items()}
            done_before = cluster.stats()["requests"].get("careful", 0)
            started = time.monotonic()
            ended_s = ended_children_s()
            run_id = submit(cluster, EPOCHS)
            producer_s = ended_children_s() - ended_s
            planned = SAMPLES * EPOCHS
            while cluster.stats()["requests"].get("careful", 0) - done_before < planned:
                time.sleep(POLL_S)
            while cluster.status(run_id)["missing"]:
                time.sleep(POLL_S)
            elapsed = time.monotonic() - started
            spent = {name: cpu_s(process) - before[name] for name, process in parts.items()}
            spent["producer"] = producer_s
            rows.append({name: 1000 * s / planned for name, s in spent.items()})
            rows[-1]["verdicts/s"] = planned / elapsed
    print(f"0 s latency, {planned} verdicts, median of {REPEATS}; ms CPU per verdict:")
    for name in rows[0]:
        values = [row[name] for row in rows]
        print(
            f"  {name:12} {statistics.median(values):8.2f}   ({min(values):.2f}-{max(values):.2f})"
        )


def ended_children_s() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def in_flight(allowed: int) -> None:
    """Print how many calls one worker process sustains, and its memory."""
    epochs = EPOCHS * allowed // 250
    with Cluster(latency="constant:1", in_flight=allowed) as cluster:
        run_id = submit(cluster, epochs)
        seen, memory = [], 0
        while True:
            stats = cluster.stats()
            if stats["requests"].get("careful", 0) >= SAMPLES * epochs:
                break
            seen.append(stats["in_flight"])
            memory = max(memory, cluster.worker.memory_info().rss)
            time.sleep(POLL_S)
        status = cluster.status(run_id)
    steady = seen[len(seen) // 4 : len(seen) * 3 // 4]
    print(f"1 s latency, {allowed} allowed, {status['planned']} verdicts:")
    print(
        f"  in flight    {statistics.mean(steady):8.0f}   (median {statistics.median(steady):.0f})"
    )
    print(f"  memory MB    {memory / 1e6:8.0f}")


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["cpu", "in-flight"]
    if "cpu" in wanted:
        cpu_per_verdict()
    if "in-flight" in wanted:
        for allowed in ALLOWED:
            in_flight(allowed)
