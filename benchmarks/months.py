"""Drills of a fleet that runs for months: a restored backup, and an upgrade while workers run.

Run `python benchmarks/months.py backup` and `python benchmarks/months.py upgrade --old FOLDER`; a
minute each. FOLDER is a checkout of the release before, `git worktree add FOLDER TAG`, which has to
run with the packages that are installed. Needs redis-server.

backup:   `pg_dump` in the middle of a run; later every worker is killed, the database is lost, and
          so is what Redis holds. The dump is restored elsewhere, and `resume` goes on. `asked
          again` are calls whose verdicts came after the dump: what such a backup loses.
upgrade:  workers of the old release; in the middle of their run `db upgrade`, workers of this one
          beside them, then SIGTERM to the old ones, one after the other.

Both count items without a verdict, with two, and calls that were made twice.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import click
from cluster import Cluster, Simulators, product
from measuring import POLL_S, laid_out, print_table
from sqlalchemy import text

from aegish_dist.db.embedded.server import binaries
from aegish_dist.db.engine import open_engine

EPOCHS = 4
PLANNED = 659 * EPOCHS
IN_FLIGHT = 20
LATENCY = "constant:0.2"
DEADLINE_S = 300.0
DOUBLED = "SELECT count(*) - count(DISTINCT (sample_key, epoch)) FROM verdicts"


def reached(cluster: Cluster, run_id: str, verdicts: int) -> int:
    """Wait until so many verdicts are stored, and return how many there are."""
    until = time.monotonic() + DEADLINE_S
    while (stored := cluster.stored(run_id)) < verdicts and time.monotonic() < until:
        time.sleep(POLL_S)
    return stored


def result(cluster: Cluster, simulators: Simulators, url: str) -> dict[str, str]:
    """Return what is in a database, and how often the provider was asked."""
    engine = open_engine(url)
    with engine.connect() as connection:
        stored = connection.scalar(text("SELECT count(*) FROM verdicts")) or 0
        doubled = connection.scalar(text(DOUBLED)) or 0
    engine.dispose()
    calls = sum(simulators.stats()["requests"].values())
    return {
        "planned": str(PLANNED),
        "without a verdict": str(PLANNED - stored),
        "with two": str(doubled),
        "asked again": str(calls - PLANNED),
    }


def backup(simulators: Simulators) -> dict[str, str]:
    """Lose a database in the middle of a run, and go on from a dump."""
    with Cluster(simulators, in_flight=IN_FLIGHT, workers=2) as cluster:
        url = cluster.environ["AEGISH_DIST_DATABASE_URL"]
        run_id, _ = cluster.submit("--epochs", str(EPOCHS))
        reached(cluster, run_id, PLANNED // 3)
        dump = str(cluster.home / "dump")
        started = time.monotonic()
        tool("pg_dump", "--format=custom", "--file", dump, url)
        seconds = time.monotonic() - started
        at_loss = reached(cluster, run_id, PLANNED * 2 // 3)
        for worker in cluster.workers:
            worker.kill()
        cluster.workers.clear()
        subprocess.run(
            ["redis-cli", "-u", cluster.environ["AEGISH_DIST_BROKER_URL"], "FLUSHALL"],
            check=True, capture_output=True,
        )  # fmt: skip
        tool("psql", "--quiet", "--command", "CREATE DATABASE restored", url)
        restored = url.replace("/postgres?", "/restored?")
        tool("pg_restore", "--dbname", restored, dump)
        cluster.environ["AEGISH_DIST_DATABASE_URL"] = restored
        in_dump = int(tool("psql", "-At", "--command", "SELECT count(*) FROM verdicts", restored))
        cluster.start_workers(2)
        cluster.run("resume", "--run-id", run_id)
        cluster.run("status", "--run-id", run_id)
        wait_for(lambda: count_in(restored) >= PLANNED)
        found = result(cluster, simulators, restored)
        lost = {"lost with the database": str(at_loss - in_dump), "dump s": f"{seconds:.1f}"}
        return {
            "drill": "backup",
            **found,
            **lost,
            "check": cluster.run("db", "check").strip() or "ok",
        }


def upgrade(simulators: Simulators, old: Path) -> dict[str, str]:
    """Replace workers of the release before in the middle of their run."""
    with Cluster(simulators, in_flight=IN_FLIGHT, workers=0) as cluster:
        url = cluster.environ["AEGISH_DIST_DATABASE_URL"]
        tool(
            "psql", "--quiet", "--command", "DROP SCHEMA public CASCADE; CREATE SCHEMA public", url
        )
        before = {**cluster.environ, "PYTHONPATH": str(old)}
        schemas = [of_release(old, before, "db", "upgrade").split()[-1]]
        workers = [
            subprocess.Popen(
                product("worker"),
                cwd=old,
                env=before,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(2)
        ]
        model = ("--models", ",".join(cluster.models), "--epochs", str(EPOCHS))
        run_id = of_release(old, before, "submit", *model).strip()
        reached(cluster, run_id, PLANNED // 4)
        schemas.append(cluster.run("db", "upgrade").split()[-1])
        migrated_at = cluster.stored(run_id)
        cluster.start_workers(2)
        new = "SELECT count(*) FROM workers WHERE about IS NOT NULL"
        wait_for(lambda: tool("psql", "-At", "--command", new, url).strip() == "2")
        both = cluster.stored(run_id)
        doctor = subprocess.run(
            product("doctor", "--fleet"),
            env=cluster.environ,
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for worker in workers:
            worker.terminate()
            worker.wait(60)
        reached(cluster, run_id, PLANNED)
        found = result(cluster, simulators, url)
        print(*(line for line in doctor.splitlines() if "versions" in line), sep="\n")
        when = f"migrated at {migrated_at}, both at {both}"
        return {"drill": "upgrade", **found, "schema": " -> ".join(schemas), "verdicts": when}


def count_in(url: str) -> int:
    """Return how many verdicts a database has."""
    return int(tool("psql", "-At", "--command", "SELECT count(*) FROM verdicts", url))


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds or the time is over."""
    until = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.5)


def of_release(folder: Path, environ: dict[str, str], *arguments: str) -> str:
    """Run a command of a checkout and return what it printed."""
    done = subprocess.run(
        product(*arguments), cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{folder}: aegish-dist {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def tool(name: str, *arguments: str) -> str:
    """Run one of PostgreSQL's programs and return what it printed."""
    command = [str(binaries() / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr}")
    return done.stdout


@click.command(help=laid_out(__doc__))
@click.argument("drills", nargs=-1, type=click.Choice(["backup", "upgrade"]))
@click.option("--old", type=click.Path(path_type=Path, exists=True), help="For `upgrade`.")
def main(drills: tuple[str, ...], old: Path | None) -> None:
    """Run the drills."""
    for name in drills or ("backup",):
        with Simulators(latency=LATENCY) as simulators:
            if name == "backup":
                print_table("A database lost in the middle of a run", [backup(simulators)])
            elif old is None:
                raise click.UsageError("`upgrade` needs --old")
            else:
                print_table("An upgrade in the middle of a run", [upgrade(simulators, old)])


if __name__ == "__main__":
    main()
