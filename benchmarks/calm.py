"""Refusals at random and congestion on real processes: answers, calls given up, wrong outcomes.

Run `python benchmarks/calm.py [refusals] [congestion] [--workers 1,4] [--minutes 10]
[--seconds 340] [--limit 60]`. Needs redis-server; runs a section for each number of workers.

refusals:    12 models in one run: 1, 5, 15 and 40 % of calls are answered 429 at random, without
             Retry-After, with 0 and with 1 s; 10 calls in flight of each, 1 s to an answer, a
             refusal at once. Possible is calls in flight x (1 - share refused) / latency, from 9.9
             to 6 answers a second; the columns of minutes are answers as a part of it. The goal is
             90 % in each minute from the second on. `falls` is the fall per minute since then, by
             least squares, where it is more than two standard errors. `errors` are items that
             were given up and scored without an answer.
congestion:  one model that answers 10 calls a second, 1 s unloaded, the others queue; each worker
             has 60 slots, and the catalog lists no limit of calls in flight (`--limit` lists one).
             A call ends after 60 s.
             From second 60 on, `used` is the part of the capacity (goal 90 %), `given up` the share
             of calls that the client left (goal 2 %), and `latency` the median of answers over the
             unloaded one (goal 2 x). `errors` are those of the whole run (goal none).
"""

import tempfile
import time
from collections import Counter
from itertools import product
from math import ceil, inf
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import click
from cluster import Cluster, Simulators
from material import Material
from measuring import laid_out, number, print_table

from tests.services import START_TIMEOUT_S, wait_until

SECTIONS = ("refusals", "congestion")
REFUSED = {
    f"{percent}-{name}": (percent / 100, asked)
    for percent, (name, asked) in product(
        (1, 5, 15, 40), (("none", '"absent"'), ("0s", "0"), ("1s", "1"))
    )
}
"""Share of refusals, and Retry-After as a scenario has it, by the name of a model."""
IN_FLIGHT = 10
LATENCY_S = 1.0
HELD = 500
"""Items that a worker holds: refused ones wait there between their calls."""
GOAL = 0.9
CONGESTED = "congested"
CAPACITY_PER_S = 10.0
SLOTS = 60
TIME_LIMIT_S = 60
LEAD_S = 60.0
MARGIN_S = 120.0
"""Items are enqueued for so much longer than is measured."""
MOST_GIVEN_UP, MOST_SLOWER = 0.02, 2.0


def _epochs(material: Material, per_s: float, seconds: float) -> int:
    return ceil(per_s * (seconds + MARGIN_S) / material.commands)


def _submit(cluster: Cluster, material: Material, epochs: int) -> tuple[str, float]:
    """Enqueue a run; return its id and when its first answer was stored."""
    # The last `--time-limit` counts.
    options = [*material.store(cluster), "--time-limit", str(TIME_LIMIT_S)]
    run_id, _ = cluster.submit(*options, "--epochs", str(epochs))
    wait_until(lambda: cluster.stored(run_id) > 0, "an answer", START_TIMEOUT_S)
    return run_id, time.time()


_ANSWERS = """
SELECT model.model, floor(extract(epoch FROM verdict.created_at - to_timestamp(:began)) / 60)
    AS minute, count(*) FILTER (WHERE error_class IS NULL) AS answers
FROM verdicts AS verdict JOIN run_models AS model ON model.id = verdict.run_model_id
WHERE model.run_id = :run GROUP BY 1, 2
"""
_ERRORS = """
SELECT model.model, verdict.outcome, count(*) AS items
FROM verdicts AS verdict JOIN run_models AS model ON model.id = verdict.run_model_id
WHERE model.run_id = :run AND error_class IS NOT NULL GROUP BY 1, 2
"""
_LATENCIES = """
SELECT service_ms / 1000 AS seconds
FROM verdicts AS verdict JOIN run_models AS model ON model.id = verdict.run_model_id
WHERE model.run_id = :run AND error_class IS NULL
    AND verdict.created_at BETWEEN to_timestamp(:first) AND to_timestamp(:last)
"""


def _errors(cluster: Cluster, run_id: str) -> Counter[str]:
    """Count the items of each model that were scored without an answer."""
    errors: Counter[str] = Counter()
    for row in cluster.rows(_ERRORS, run=run_id):
        errors[row.model.removeprefix("simulated/")] += row.items
    return errors


def refusals(material: Material, workers: int, minutes: int) -> None:
    """Measure the 12 models and print a row for each."""
    with tempfile.TemporaryDirectory(prefix="calm") as home:
        scenario = Path(home, "scenario.toml")
        scenario.write_text(
            "\n".join(
                f'[models."{name}".faults]\nrate_limit = {share}\nretry_after_s = {asked}'
                for name, (share, asked) in REFUSED.items()
            )
        )
        with (
            Simulators(latency=f"constant:{LATENCY_S:g}", scenario=scenario) as simulators,
            Cluster(
                simulators, in_flight=IN_FLIGHT, concurrency=HELD, models=tuple(REFUSED),
                workers=workers,
            ) as cluster,
        ):  # fmt: skip
            epochs = _epochs(material, IN_FLIGHT / LATENCY_S, 60 * minutes)
            run_id, began = _submit(cluster, material, epochs)
            time.sleep(max(0.0, began + 60 * minutes - time.time()))
            found = cluster.rows(_ANSWERS, run=run_id, began=began)
            errors = _errors(cluster, run_id)
    answers = {
        (row.model.removeprefix("simulated/"), int(row.minute)): row.answers for row in found
    }
    table = []
    for name, (share, _) in REFUSED.items():
        possible = IN_FLIGHT * (1 - share) / LATENCY_S * 60
        parts = [answers.get((name, minute), 0) / possible for minute in range(minutes)]
        table.append({"refused": name} | _minutes(parts) | {"errors": str(errors[name])})
    title = f"random refusals, {workers} workers: answers of what is possible, by minute"
    print_table(title, table)


def _minutes(parts: list[float]) -> dict[str, str]:
    row = {str(minute): f"{part:.0%}" for minute, part in enumerate(parts, start=1)}
    row["least"] = f"{min(parts[1:]):.0%}"
    row["falls"] = _fall(parts[1:])
    return row | {"goal": "met" if min(parts[1:]) >= GOAL else "missed"}


def _fall(parts: list[float]) -> str:
    """Return the fall per minute if it is more than two standard errors of the slope."""
    if len(parts) < 4:
        return "-"
    minutes = range(len(parts))
    slope, start = linear_regression(minutes, parts)
    residual = sum((part - start - slope * x) ** 2 for x, part in zip(minutes, parts, strict=True))
    middle = (len(parts) - 1) / 2
    spread = sum((x - middle) ** 2 for x in minutes)
    stderr = (residual / (len(parts) - 2) / spread) ** 0.5
    return f"{-slope:.1%}" if slope < -2 * stderr else "no"


def congestion(
    material: Material, workers: int, seconds: float, limit: int | None
) -> dict[str, str]:
    """Measure the congested model and return its row."""
    with tempfile.TemporaryDirectory(prefix="calm") as home:
        scenario = Path(home, "scenario.toml")
        scenario.write_text(f'[models."{CONGESTED}".capacity]\nper_second = {CAPACITY_PER_S}\n')
        with (
            Simulators(latency=f"constant:{LATENCY_S:g}", scenario=scenario) as simulators,
            Cluster(
                simulators, in_flight=limit, concurrency=SLOTS, models=(CONGESTED,),
                workers=workers,
            ) as cluster,
        ):  # fmt: skip
            run_id, began = _submit(cluster, material, _epochs(material, CAPACITY_PER_S, seconds))
            first, last = began + LEAD_S, began + seconds
            time.sleep(max(0.0, first - time.time()))
            before = simulators.stats()
            time.sleep(max(0.0, last - time.time()))
            after = simulators.stats()
            rows = cluster.rows(_LATENCIES, run=run_id, first=first, last=last)
            errors = _errors(cluster, run_id)
    used = len(rows) / CAPACITY_PER_S / (last - first)
    slower = median([row.seconds for row in rows] or [inf]) / LATENCY_S
    left = (_left(after) - _left(before)) / (_calls(after) - _calls(before))
    is_met = used >= GOAL and left <= MOST_GIVEN_UP and slower <= MOST_SLOWER and not errors
    return {
        "workers": str(workers),
        "used": f"{used:.1%}",
        "given up": f"{left:.2%}",
        "latency": f"{slower:.2f} x",
        "most in flight": number(after["in_flight_max"]),
        "errors": str(errors.total()),
        "goal": "met" if is_met else "missed",
    }


def _calls(stats: dict[str, Any]) -> int:
    return int(sum(stats["requests"].values()))


def _left(stats: dict[str, Any]) -> int:
    """Return how many calls got neither an answer nor a refusal, and are not under way."""
    return _calls(stats) - int(stats["answers"] + stats["refused"] + stats["in_flight"])


def _numbers(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    return [int(each) for each in value.split(",")]


@click.command(help=laid_out(__doc__))
@click.argument("sections", nargs=-1, type=click.Choice(SECTIONS))
@click.option("--workers", default="1,4", show_default=True, callback=_numbers)
@click.option(
    "--minutes", type=click.IntRange(2), default=10, show_default=True, help="Of `refusals`."
)
@click.option("--seconds", default=340.0, show_default=True, help="Of `congestion`, over 60.")
@click.option("--limit", type=click.IntRange(1), help="Of calls in flight in `congestion`.")
def main(
    sections: tuple[str, ...], workers: list[int], minutes: int, seconds: float, limit: int | None
) -> None:
    """Measure the sections that are asked for."""
    material = Material.load()
    if "refusals" in (sections or SECTIONS):
        for each in workers:
            refusals(material, each, minutes)
    if "congestion" in (sections or SECTIONS):
        rows = [congestion(material, each, seconds, limit) for each in workers]
        print_table(f"congestion, capacity {CAPACITY_PER_S:g}/s, {SLOTS} slots a worker", rows)


if __name__ == "__main__":
    main()
