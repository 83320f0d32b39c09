"""Whether a sick model holds up the healthy ones.

Run `python benchmarks/isolation.py [--quick] [--only time|share]`. Needs redis-server.

Three healthy models run alone, then beside a fourth one that is throttled to a twentieth of their
rate (429 with Retry-After), then beside one that answers 503 throughout, all on one worker process
with its usual 500 items. A model's time is from `submit` to its last stored verdict. The ratio is
that time beside the sick model over the time alone, in the worst of the three; the goal is 1.1.

Then slots are short: a fast model beside one that would take every slot of the worker, because its
calls take 20 s, because it is congested (an answer a second, the other calls queue), or because it
answers 503. Its fair share is half of the slots, or its own limit of 10 calls; the goal is 90 % of
its answers alone on so many slots.
"""

import tempfile
import time
from collections.abc import Sequence
from itertools import product
from math import ceil
from pathlib import Path

import click
from cluster import MODELS, Cluster, Simulators
from material import Material
from measuring import POLL_S, laid_out, medians, number, print_table

from tests.services import START_TIMEOUT_S, wait_until

HEALTHY, SICK = MODELS[:3], MODELS[3]
CONCURRENCY = 500
IN_FLIGHT = 100
LATENCY_S = 1.0
THROTTLE = 20
GOAL = 1.1
PATIENCE = 10
"""Times what the healthy models took alone; then a run is given up."""
FAST = MODELS[0]
SLOTS = (60, 500)
LIMIT = 10
LEAD_S = 10.0
"""After the first answer; the rate is measured from then on."""
MEASURED_S = 30.0
SHARE_GOAL = 0.9
CONGESTED_PER_S = 1
"""Capacity of the congested model: with 60 calls in flight its latency is a minute."""
ILLNESSES = {
    "throttled": (
        f'[models."{SICK}".rate_limit]\n'
        f"requests_per_minute = {60 * IN_FLIGHT / LATENCY_S / THROTTLE:g}\nburst = 5\n"
    ),
    "503": f'[models."{SICK}".faults]\noverloaded = 1.0\n',
}
NEIGHBOURS = {
    "of 20 s": f'[models."{SICK}"]\nlatency = "constant:20"\n',
    "that is congested": f'[models."{SICK}".capacity]\nper_second = {CONGESTED_PER_S}\n',
    "with 503": ILLNESSES["503"],
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


def answers_per_s(
    material: Material, slots: int, limit: int | None, latency_s: float, neighbour: str | None
) -> float:
    """Return the answers of the fast model a second, beside a neighbour or alone."""
    calls = min(limit or slots, slots)
    epochs = ceil(calls / latency_s * (LEAD_S + MEASURED_S + 30) / material.commands)
    with tempfile.TemporaryDirectory(prefix="isolation") as home:
        scenario = Path(home, "scenario.toml")
        scenario.write_text(neighbour or "")
        with (
            Simulators(latency=f"constant:{latency_s:g}", scenario=scenario) as simulators,
            Cluster(
                simulators,
                in_flight=slots,
                concurrency=slots,
                models=(FAST,) if neighbour is None else (FAST, SICK),
                limits={FAST: calls},
            ) as cluster,
        ):
            run_id, _ = cluster.submit(*material.store(cluster), "--epochs", str(epochs))
            wait_until(lambda: FAST in cluster.progress(run_id), "an answer", START_TIMEOUT_S)
            time.sleep(LEAD_S)
            began, before = time.time(), cluster.progress(run_id)[FAST].verdicts
            time.sleep(MEASURED_S)
            answers = cluster.progress(run_id)[FAST].verdicts - before
            return answers / (time.time() - began)


def measure_shares(material: Material, latency_s: float) -> None:
    """Measure the fast model beside each neighbour, with each number of slots."""
    table = []
    for slots, limit in product(SLOTS, (None, LIMIT)):
        share = min(limit or slots, slots // 2)
        alone = answers_per_s(material, share, None, latency_s, None)
        row = {"slots": number(slots), "its limit": number(limit) if limit else "none"}
        row["alone on its share"] = f"{number(alone)}/s, {alone * latency_s / share:.0%}"
        parts = {
            f"beside one {name}": answers_per_s(material, slots, limit, latency_s, each) / alone
            for name, each in NEIGHBOURS.items()
        }
        row |= {name: f"{part:.0%}" for name, part in parts.items()}
        row["goal"] = "met" if min(parts.values()) >= SHARE_GOAL else "missed"
        table.append(row)
    print_table(f"answers of a model of {latency_s:g} s, of those alone on its share", table)


@click.command(help=laid_out(__doc__))
@click.option("--quick", is_flag=True, help="A short run, once.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--epochs", default=3, show_default=True)
@click.option("--latency", default=0.5, show_default=True, help="Of the fast model, in seconds.")
@click.option("--only", type=click.Choice(["time", "share"]), help="One of the two measurements.")
def main(*, quick: bool, repeats: int, epochs: int, latency: float, only: str | None) -> None:
    """Measure times beside each illness, and shares beside each neighbour."""
    material = Material.load()
    if only != "share":
        measure_times(material, quick=quick, repeats=repeats, epochs=epochs)
    if only != "time":
        measure_shares(material, latency)


def measure_times(material: Material, *, quick: bool, repeats: int, epochs: int) -> None:
    """Measure alone and beside each illness in turn, as often as asked."""
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
