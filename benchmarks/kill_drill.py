"""Cost of a killed worker: twenty `kill -9` in the middle of 5,272 items, without `resume`.

Run with `python benchmarks/kill_drill.py [KILLS]`; takes about a minute a kill. Needs redis-server.

Two workers share a run; one is killed at a random moment and replaced at once. `complete` is how
long after the kill the last verdict was there: the killed worker's leases have to expire first.
`lost` and `doubled` are counted in the store; `twice` are calls of the killed worker that were made
again, which nothing can avoid.
"""

import random
import time
from dataclasses import dataclass

import click
from cluster import Cluster, Simulators
from measuring import POLL_S, laid_out
from sqlalchemy import text

from aegish_dist.db.engine import open_engine

KILLS = 20
EPOCHS = 8
SAMPLES = 659
IN_FLIGHT = 100
LATENCY = "uniform:0.2,0.6"
KILL_WINDOW_S = (0.5, 6.0)
DEADLINE_S = 120.0
DOUBLED = """
    SELECT count(*) - count(DISTINCT (run_model_id, sample_key, epoch, generation)) FROM verdicts
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one kill."""

    killed_s: float
    complete_s: float
    lost: int
    doubled: int
    twice: int


def drill(cluster: Cluster, simulators: Simulators, chance: random.Random) -> Outcome:
    """Start a run, kill a worker meanwhile, and wait until all verdicts are there."""
    calls_before = calls(simulators)
    run_id, _ = cluster.submit("--epochs", str(EPOCHS))
    planned = SAMPLES * EPOCHS
    killed_s = chance.uniform(*KILL_WINDOW_S)
    time.sleep(killed_s)
    victim = cluster.workers.pop(chance.randrange(len(cluster.workers)))
    victim.kill()
    killed_at = time.monotonic()
    cluster.start_workers()
    while cluster.stored(run_id) < planned and time.monotonic() < killed_at + DEADLINE_S:
        time.sleep(POLL_S)
    return Outcome(
        killed_s,
        time.monotonic() - killed_at,
        planned - cluster.stored(run_id),
        doubled(cluster),
        calls(simulators) - calls_before - planned,
    )


def calls(simulators: Simulators) -> int:
    """Return how many calls the simulator has answered."""
    count: int = simulators.stats()["requests"].get("careful", 0)
    return count


def doubled(cluster: Cluster) -> int:
    """Return how many verdicts are in the store twice."""
    engine = open_engine(cluster.environ["AEGISH_DIST_DATABASE_URL"])
    with engine.connect() as connection:
        count = connection.scalar(text(DOUBLED))
    engine.dispose()
    return int(count or 0)


@click.command(help=laid_out(__doc__))
@click.argument("kills", type=click.IntRange(1), default=KILLS, metavar="[KILLS]")
def main(*, kills: int) -> None:
    """Drill and print the table."""
    chance = random.Random(7)
    columns = ("killed s", "complete s", "lost", "doubled", "twice")
    print("    " + "".join(f"{column:>12}" for column in columns), flush=True)
    with (
        Simulators(latency=LATENCY) as simulators,
        Cluster(simulators, in_flight=IN_FLIGHT, workers=2) as cluster,
    ):
        for number in range(1, kills + 1):
            o = drill(cluster, simulators, chance)
            print(
                f"{number:4}{o.killed_s:12.2f}{o.complete_s:12.1f}"
                f"{o.lost:12}{o.doubled:12}{o.twice:12}",
                flush=True,
            )


if __name__ == "__main__":
    main()
