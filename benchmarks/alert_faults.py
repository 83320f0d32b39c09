"""The faults by which alerts are drilled, each defined once: how it begins and how it is mended."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import psycopg
from alert_stand import Stand

from tests.chaos.servers import frozen

Strike = Callable[[Stand], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class AlertDrill:
    """One alert and its fault."""

    alert: str
    fault: str
    """The fault and its remedy, for the table."""
    strike: Strike
    """Begins the fault on entering and mends it on leaving."""


# The database


@contextmanager
def _database_away(stand: Stand) -> Iterator[None]:
    stand.submit()
    stand.postgres.stop()
    yield
    stand.postgres.start()


@contextmanager
def _inserts_hang(stand: Stand) -> Iterator[None]:
    stand.submit()
    with stand.locked("verdicts"):
        yield


@contextmanager
def _aggregations_hang(stand: Stand) -> Iterator[None]:
    stand.submit("--limit", "5")
    with stand.locked("snapshots"):
        yield


@contextmanager
def _rows_refused(stand: Stand) -> Iterator[None]:
    stand.sql("ALTER TABLE verdicts ADD CONSTRAINT drill CHECK (outcome <> 'BLOCK') NOT VALID")
    stand.submit()
    yield
    stand.sql("ALTER TABLE verdicts DROP CONSTRAINT drill")
    stand.cancel()


@contextmanager
def _vacuum_held_up(stand: Stand) -> Iterator[None]:
    own = (
        "INSERT INTO datasets (name, fingerprint, source, licence, samples, malicious, selectable)"
        " VALUES ('drill', 'drill', '', '', 0, 0, false) RETURNING id"
    )
    dataset = int(stand.sql(own)[0][0])
    stand.sql(
        "INSERT INTO samples (dataset_id, sample_id, command, target, details)"
        f" SELECT {dataset}, n, n, 'harmless', '{{}}' FROM generate_series(1, 50000) AS n"
    )
    with stand.postgres.connect() as idle:
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT 1")
        for _ in range(22):
            stand.sql(f"UPDATE samples SET details = details WHERE dataset_id = {dataset}")
        yield
        idle.execute("ROLLBACK")
    stand.sql(f"DELETE FROM datasets WHERE id = {dataset}")
    stand.sql("VACUUM samples")


@contextmanager
def _connections_used(stand: Stand) -> Iterator[None]:
    most = int(stand.sql("SHOW max_connections")[0][0])
    with ExitStack() as stack:
        clients = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        used = int(stand.sql(clients)[0][0])
        for _ in range(int(most * 0.92) - used):
            stack.enter_context(psycopg.connect(stand.postgres.url))
        yield


# Redis


@contextmanager
def _broker_silent(stand: Stand) -> Iterator[None]:
    stand.submit()
    with frozen(stand.redis.pid):
        yield


@contextmanager
def _redis_nearly_full(stand: Stand) -> Iterator[None]:
    with stand.redis.client() as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", int(used / 0.9))
        yield
        client.config_set("maxmemory", 0)


# Workers and exporter


@contextmanager
def _all_workers_killed(stand: Stand) -> Iterator[None]:
    stand.submit()
    for port in stand.ports:
        stand.end_worker(port)
    yield
    for port in stand.ports:
        stand.start_worker(port)
    stand.wait_for_workers()


@contextmanager
def _worker_killed(stand: Stand) -> Iterator[None]:
    stand.end_worker(stand.ports[0])
    yield
    stand.start_worker(stand.ports[0])
    stand.wait_for_workers()


@contextmanager
def _worker_cut_off(stand: Stand) -> Iterator[None]:
    port = stand.ports[0]
    stand.end_worker(port)
    with stand.other_way_to_the_broker() as url:
        stand.start_worker(port, url)
        stand.wait_for_workers()
        stand.submit("--epochs", "5")
    yield
    stand.end_worker(port)
    stand.start_worker(port)
    stand.wait_for_workers()


@contextmanager
def _exporter_killed(stand: Stand) -> Iterator[None]:
    stand.end_exporter()
    yield
    stand.start_exporter()


# The provider


@contextmanager
def _provider_away(stand: Stand) -> Iterator[None]:
    stand.submit()
    with stand.provider_away():
        yield
    stand.command("resume", "--run-id", stand.run_id)


@contextmanager
def _provider_silent(stand: Stand) -> Iterator[None]:
    stand.submit("--time-limit", "300")
    with stand.provider_silent():
        yield


@contextmanager
def _provider_refuses(stand: Stand, faults: str) -> Iterator[None]:
    stand.simulate(scenario=f"[faults]\n{faults}\n")
    stand.submit("--epochs", "3")
    yield
    stand.simulate()
    stand.command("resume", "--run-id", stand.run_id)


# Spend


@contextmanager
def _cap_reached(stand: Stand) -> Iterator[None]:
    stand.submit("--max-cost", "0.2")
    yield
    stand.command("resume", "--run-id", stand.run_id, "--max-cost", "9")


@contextmanager
def _cap_passed(stand: Stand) -> Iterator[None]:
    stand.submit("--max-cost", "0.2", model="drilled/thinking")
    yield
    stand.command("resume", "--run-id", stand.run_id, "--max-cost", "99")


# Batches


@contextmanager
def _batch_unanswered(stand: Stand) -> Iterator[None]:
    with stand.provider_silent():
        stand.submit("--batch", "--limit", "20")
        yield


@contextmanager
def _batch_slow(stand: Stand) -> Iterator[None]:
    stand.simulate(scenario='[batches]\nduration = "constant:3600"\n')
    stand.submit("--batch", "--limit", "20")
    yield
    stand.cancel()


DRILLS = (
    AlertDrill("AegishDatabaseAway", "PostgreSQL is stopped; started", _database_away),
    AlertDrill("AegishBrokerAway", "Redis stands still; goes on", _broker_silent),
    AlertDrill("AegishNoWorkers", "kill -9 of all workers; new ones", _all_workers_killed),
    AlertDrill("AegishQueueNotDraining", "the provider answers nothing; goes on", _provider_silent),
    AlertDrill(
        "AegishSpendOverCap",
        "answers several times as long as expected; a higher cap",
        _cap_passed,
    ),
    AlertDrill("AegishModelParked", "the provider is killed; started, `resume`", _provider_away),
    AlertDrill(
        "AegishRateLimitStorm",
        "six of ten calls get a 429; none",
        partial(_provider_refuses, faults="rate_limit = 0.6\nretry_after_s = 0.1"),
    ),
    AlertDrill(
        "AegishCallsFailing",
        "four of ten calls get a 500; none",
        partial(_provider_refuses, faults="server_error = 0.4"),
    ),
    AlertDrill("AegishSpendNearCap", "a run reaches its cap; a higher cap", _cap_reached),
    AlertDrill("AegishVerdictsSpooled", "a constraint refuses rows; dropped", _rows_refused),
    AlertDrill("AegishStoreSlow", "a lock on verdicts; released", _inserts_hang),
    AlertDrill("AegishAggregationStuck", "a lock on snapshots; released", _aggregations_hang),
    AlertDrill(
        "AegishBatchCreatingStuck",
        "no answer to the creation of a batch; goes on",
        _batch_unanswered,
    ),
    AlertDrill("AegishBatchOverdue", "a batch that does not end; `cancel`", _batch_slow),
    AlertDrill(
        "AegishVacuumBehind",
        "an idle transaction over 1.1 million updates; ended, VACUUM",
        _vacuum_held_up,
    ),
    AlertDrill(
        "AegishDatabaseConnectionsShort",
        "92 % of the connections are taken; closed",
        _connections_used,
    ),
    AlertDrill(
        "AegishRedisMemoryShort", "maxmemory just above what is used; unbounded", _redis_nearly_full
    ),
    AlertDrill(
        "AegishWorkerNotReady", "one worker's way to the broker is cut; replaced", _worker_cut_off
    ),
    AlertDrill("AegishWorkerAway", "kill -9 of one worker; a new one", _worker_killed),
    AlertDrill("AegishExporterAway", "kill -9 of the exporter; a new one", _exporter_killed),
)
"""In the order of the rules."""
