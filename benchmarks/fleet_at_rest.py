"""Load that workers put on the servers while there is nothing to do.

Run with `python benchmarks/fleet_at_rest.py [--workers N]... [--seconds S]`. Needs redis-server.

Every number is per worker: connections to PostgreSQL, its transactions a second, CPU of the server
for them, connections to Redis, its commands a second, CPU of its thread, and the CPU and memory of
the worker itself. A fleet's servers have to bear these times its size before the first call. The
last column is how long the first item of a run then waits in its queue; below the table, which
commands Redis gets.
"""

import time

import click
import psutil
from cluster import Cluster, Simulators
from measuring import cpu_s, laid_out, memory_mb, number, print_table
from redis import Redis
from sqlalchemy import create_engine, text

SETTLE_S = 8.0


def _counters(cluster: Cluster) -> dict[str, float]:
    redis = Redis.from_url(cluster.environ["AEGISH_DIST_BROKER_URL"])
    engine = create_engine(
        cluster.environ["AEGISH_DIST_DATABASE_URL"].replace("postgresql:", "postgresql+psycopg:")
    )
    with engine.connect() as connection:
        connections, transactions = connection.execute(
            text(
                "SELECT (SELECT count(*) FROM pg_stat_activity WHERE client_port IS NOT NULL),"
                " (SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database)"
            )
        ).one()
    engine.dispose()
    stats = {**redis.info("stats"), **redis.info("clients")}
    return {
        "connections": float(connections),
        "transactions": float(transactions),
        "clients": float(stats["connected_clients"]),
        "commands": float(stats["total_commands_processed"]),
        **{name: float(each["calls"]) for name, each in redis.info("commandstats").items()},
        "postgres": cpu_s(cluster.postgres),
        "redis": cpu_s(cluster.redis),
        "worker": sum(map(cpu_s, cluster.workers)),
    }


def at_rest(cluster: Cluster, seconds: float) -> dict[str, str]:
    """Watch a fleet that has nothing to do."""
    time.sleep(SETTLE_S)
    before, began = _counters(cluster), time.monotonic()
    time.sleep(seconds)
    after, elapsed_s = _counters(cluster), time.monotonic() - began
    workers = len(cluster.workers)
    cluster.submit("--limit", "4", "--wait")
    (waited,) = cluster.rows("SELECT min(queue_ms) / 1000 FROM verdicts")
    for name in sorted(after):
        if name.startswith("cmdstat_") and after[name] > before.get(name, 0):
            each_s = (after[name] - before.get(name, 0)) / elapsed_s / workers
            print(f"{name.removeprefix('cmdstat_')}: {each_s:.2f}/s")

    def rate(name: str) -> float:
        return (after[name] - before[name]) / elapsed_s / workers

    return {
        "workers": str(workers),
        "connections": number(after["connections"] / workers),
        "transactions/s": number(rate("transactions")),
        "PostgreSQL ms/s": number(1000 * rate("postgres")),
        "Redis connections": number(after["clients"] / workers),
        "commands/s": number(rate("commands")),
        "Redis ms/s": number(1000 * rate("redis")),
        "worker ms/s": number(1000 * rate("worker")),
        "first item waits s": number(float(waited[0])),
        "MB": number(memory_mb([psutil.Process(each.pid) for each in cluster.workers])),
    }


@click.command(help=laid_out(__doc__))
@click.option("--workers", multiple=True, type=int, default=(1, 8), show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="Time to watch each fleet.")
def main(*, workers: tuple[int, ...], seconds: float) -> None:
    """Watch fleets of several sizes."""
    rows = []
    with Simulators(latency="constant:1") as simulators:
        for size in workers:
            with Cluster(simulators, in_flight=100, workers=size) as cluster:
                rows.append(at_rest(cluster, seconds))
    print_table("A fleet at rest, per worker", rows)


if __name__ == "__main__":
    main()
