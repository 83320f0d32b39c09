"""One measured run of this project on a cluster."""

import time
from collections.abc import Sequence

from cluster import Cluster, Simulators
from measuring import Watch

from tests.services import wait_until

RUN_TIMEOUT_S = 3600.0


def measured(watch: Watch, *, wall_s: float, cpu_s: float) -> dict[str, float]:
    """Return the figures that every benchmarked program has.

    Args:
        cpu_s: CPU seconds in that time.
    """
    number = watch.planned
    return {
        "wall s": wall_s,
        "CPU s": cpu_s,
        "CPU ms/verdict": 1000 * cpu_s / number,
        "after 1st call": 1000 * (cpu_s - watch.cpu_at_first_call_s) / number,
        "verdicts/s": number / (wall_s - watch.first_call_s),
        "1st call s": watch.first_call_s,
        "max in flight": float(watch.in_flight_max),
        "sustained": watch.in_flight,
        "memory MB": watch.memory_mb,
    }


def run_ours(
    cluster: Cluster, simulators: Simulators, planned: int, options: Sequence[str], *, cold: bool
) -> tuple[str, dict[str, float]]:
    """Submit a run and wait until its last verdict is stored.

    Args:
        cold: Whether a worker process is started together with `submit` and its start counted.

    Returns:
        The run's id and the figures; CPU in ms per verdict also by process.
    """
    before = cluster.cpu()
    idle_s = sum(before.values())
    watch = Watch(
        stats=simulators.stats,
        planned=planned,
        cpu=lambda: sum(cluster.cpu().values()) - idle_s,
        memory=cluster.memory_mb,
    )
    with watch:
        if cold:
            cluster.start_workers()
        run_id, producer_s = cluster.submit(*options)
        wait_until(lambda: watch.all_arrived, f"{planned} calls", RUN_TIMEOUT_S)
        wait_until(lambda: cluster.stored(run_id) >= planned, f"{planned} verdicts", RUN_TIMEOUT_S)
        wall_s = time.monotonic() - watch.started
        spent = {name: total - before[name] for name, total in cluster.cpu().items()}
    spent["producer"] = producer_s
    row = measured(watch, wall_s=wall_s, cpu_s=sum(spent.values()))
    return run_id, row | {f"{name} ms": 1000 * s / planned for name, s in spent.items()}
