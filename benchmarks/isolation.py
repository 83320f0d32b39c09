"""Whether a sick model holds up the healthy ones.

Run `python benchmarks/isolation.py [--quick]`. Needs redis-server.

Three healthy models run alone, then beside a fourth one that is throttled to a twentieth of their
rate (429 with Retry-After), then beside one that answers 503 throughout, all on one worker process
with its usual 500 items. A model's time is from `submit` to its last stored verdict. The ratio is
that time beside the sick model over the time alone, in the worst of the three; the goal is 1.1.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from cluster import MODELS, Cluster, Simulators
from material import Material
from measuring import POLL_S, laid_out, medians, number, print_table

HEALTHY, SICK = MODELS[:3], MODELS[3]
CONCURRENCY = 500
IN_FLIGHT = 100
LATENCY_S = 1.0
THROTTLE = 20
GOAL = 1.1
PATIENCE = 10
"""Times what the healthy models took alone; then a run is given up."""
ILLNESSES = {
    "throttled": (
        f'[models."{SICK}".rate_limit]\n'
        f"requests_per_minute = {60 * IN_FLIGHT / LATENCY_S / THROTTLE:g}\nburst = 5\n"
    ),
    "503": f'[models."{SICK}".faults]\noverloaded = 1.0\n',
}


def run(
    material: Material, epochs: int, models: Sequence[str], illness: str, patience_s: float
) -> dict[str, float]:
    """Return the seconds that each healthy model took, `patience_s` where it did not end."""
    planned = material.commands * epochs
    with tempfile.TemporaryDirectory(prefix="isolation") as home:
        scenario = Path(home, "scenario.toml")
        scenario.write_text(illness)
        with (
            Simulators(latency=f"constant:{LATENCY_S:g}", scenario=scenario) as simulators,
            Cluster(
                simulators, in_flight=IN_FLIGHT, concurrency=CONCURRENCY, models=models
            ) as cluster,
        ):
            options = [*material.store(cluster), "--epochs", str(epochs)]
            started = time.time()
            run_id, _ = cluster.submit(*options)
            ended: dict[str, float] = {}
            while len(ended) < len(HEALTHY) and time.time() < started + patience_s:
                time.sleep(10 * POLL_S)
                ended = {
                    name: each.last_stored_at - started
                    for name, each in cluster.progress(run_id).items()
                    if name in HEALTHY and each.verdicts >= planned
                }
    return {name: ended.get(name, patience_s) for name in HEALTHY}


@click.command(help=laid_out(__doc__))
@click.option("--quick", is_flag=True, help="A short run, once.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--epochs", default=3, show_default=True)
def main(*, quick: bool, repeats: int, epochs: int) -> None:
    """Measure alone and beside each illness in turn, as often as asked."""
    material = Material.load()
    repeats, epochs = (1, 1) if quick else (repeats, epochs)
    alone: list[dict[str, float]] = []
    beside: dict[str, list[dict[str, float]]] = {name: [] for name in ILLNESSES}
    for _ in range(repeats):
        alone.append(run(material, epochs, HEALTHY, "", 3600))
        patience_s = PATIENCE * max(alone[-1].values())
        for name, illness in ILLNESSES.items():
            beside[name].append(run(material, epochs, MODELS, illness, patience_s))
    base = medians(alone)
    table = [{"beside": "nobody"} | {name: f"{number(base[name])} s" for name in HEALTHY}]
    table[0] |= {"worst ratio": "1", "goal": ""}
    for name, rows in beside.items():
        times = medians(rows)
        worst = max(times[each] / base[each] for each in HEALTHY)
        more = ">= " if worst >= PATIENCE * 0.9 else ""
        table.append(
            {"beside": f"a model that is {name}" if name == "throttled" else "a model with 503"}
            | {each: f"{number(times[each])} s" for each in HEALTHY}
            | {"worst ratio": f"{more}{worst:.2f}", "goal": "met" if worst <= GOAL else "missed"}
        )
    print_table(
        f"{material.commands * epochs} verdicts per model, {IN_FLIGHT} calls per model,"
        f" {LATENCY_S:g} s latency, 1 worker; medians of {repeats}",
        table,
    )


if __name__ == "__main__":
    main()
