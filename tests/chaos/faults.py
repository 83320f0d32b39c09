"""The faults: each defined once, for the tests and for the published table."""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg
from msgspec.structs import replace

from aegish_dist.broker.messages import queue_name
from aegish_dist.core.status import RunStatus, State
from tests.chaos.drill import Drill, Fault
from tests.chaos.fleet import GRACE_S, Layout
from tests.chaos.provider import Trouble
from tests.chaos.servers import Postgres
from tests.cluster import run
from tests.forged import forged_messages
from tests.services import PgBouncer, RabbitServer, RedisServer, wait_until

RABBIT = Layout(broker="rabbitmq")
QUORUM = Layout(broker="rabbitmq", queue_type="quorum")
SHORT_LEASE = Layout(lease_s=5.0)  # where a call has to outlive a lease
KEPT = Layout(persistent=True)
POOLED = Layout(pooled=True)
ALONE = Layout(workers=1, concurrency=100)  # one worker that holds nearly a whole run at once
END_BACKENDS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'aegish-dist'"
)
"""Ends every connection of the product."""
KILLS_OF_RESUME = 5
KILLS = 15  # of one server within a run


# Workers


def _victim(drill: Drill) -> "subprocess.Popen[bytes]":
    workers = drill.fleet.workers
    return workers.pop(drill.chance.randrange(len(workers)))


def _kill_worker(drill: Drill) -> None:
    victim = _victim(drill)
    victim.kill()
    victim.wait()
    drill.fleet.start_worker()


def _stop_worker(drill: Drill) -> None:
    _terminate(_victim(drill))
    drill.fleet.start_worker()


def _terminate(worker: "subprocess.Popen[bytes]") -> None:
    worker.terminate()
    try:
        code = worker.wait(GRACE_S + 15)
    except subprocess.TimeoutExpired:
        worker.kill()
        raise AssertionError("a worker did not end within its grace") from None
    assert code == 0, f"a stopped worker ended with {code}"


def _stop_half_open(drill: Drill) -> None:
    _half_open_postgres(drill)
    _half_open_broker(drill)
    _stop_worker(drill)


def _stop_without_database(drill: Drill) -> None:
    fleet = drill.fleet
    fleet.postgres.stop()
    wait_until(lambda: fleet.provider.in_flight == 0, "the calls in flight", 30)
    while fleet.workers:
        _terminate(fleet.workers.pop())
    fleet.postgres.start()
    for _ in range(fleet.layout.workers):
        fleet.start_worker()


# PostgreSQL


def _read_only(drill: Drill) -> None:
    postgres = drill.fleet.postgres
    postgres.run("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    drill.rest(15)
    postgres.run("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")


def _kill(drill: Drill, server: str) -> None:
    """Kill a server of the fleet, and start it again."""
    _restart(getattr(drill.fleet, server))


def _restart(server: Postgres | PgBouncer | RedisServer | RabbitServer) -> None:
    server.kill()
    server.start()


def _kill_often(drill: Drill, server: str, *, resumed: bool = False) -> None:
    """Kill a server of the fleet again and again, and start it again each time."""
    for number in range(KILLS):
        if number:
            drill.rest(drill.chance.uniform(0.2, 2.0))
            drill.begin()
        _kill(drill, server)
        if resumed:
            _resume(drill)


def _postgres_away(drill: Drill) -> None:
    drill.fleet.postgres.stop()
    drill.rest(8)
    drill.fleet.postgres.start()


def _end_backends(drill: Drill) -> None:
    for _ in range(8):
        drill.fleet.postgres.run(END_BACKENDS)
        drill.rest(1)


def _exhaust_connections(drill: Drill) -> None:
    # The first holds on to one, by which it makes the others' room.
    postgres, until = drill.fleet.postgres, time.monotonic() + 8
    with ExitStack() as stack:
        first = stack.enter_context(postgres.connect())
        while time.monotonic() < until:
            try:
                stack.enter_context(postgres.connect())
            except psycopg.OperationalError:
                first.execute(END_BACKENDS)
                time.sleep(0.1)


def _cut_commits(drill: Drill) -> None:
    proxy = drill.fleet.database_proxy
    for _ in range(4):
        proxy.cut_commits = True
        drill.rest(0.7)
        proxy.cut_commits = False
        drill.rest(0.7)


def _half_open_postgres(drill: Drill) -> None:
    assert drill.fleet.database_proxy.swallow() > 0


# Redis


def _redis(drill: Drill) -> RedisServer:
    broker = drill.fleet.broker
    assert isinstance(broker, RedisServer)
    return broker


def _wipe_broker(drill: Drill) -> None:
    _kill(drill, "broker")
    _resume(drill)


def _kill_worker_wipe_redis(drill: Drill) -> None:
    _kill_worker(drill)
    _wipe_broker(drill)


def _stop_redis(drill: Drill) -> None:
    with _redis(drill).halted():
        drill.rest(8)


def _set_redis(drill: Drill, name: str, bad: str, good: str, seconds: float) -> None:
    with _redis(drill).client() as client:
        client.config_set(name, bad)
        drill.rest(seconds)
        client.config_set(name, good)


def _replica(drill: Drill) -> None:
    with _redis(drill).client() as client:
        client.replicaof("127.0.0.1", 1)  # nothing listens there: it keeps what it has
        drill.rest(8)
        client.replicaof("NO", "ONE")


def _cut_broker(drill: Drill) -> None:
    drill.fleet.broker_proxy.cut()


def _half_open_broker(drill: Drill) -> None:
    assert drill.fleet.broker_proxy.swallow() > 0


# RabbitMQ


def _kill_and_pause(drill: Drill) -> None:
    """Kill RabbitMQ, and have `resume` wait for what workers hold: none of it is called again."""
    _kill(drill, "broker")
    for command in ("pause", "resume"):
        run(drill.fleet.direct, f"{command} --run-id {drill.run_id}")


def _stop_rabbit(drill: Drill) -> None:
    for _ in range(3):
        drill.begin()
        drill.fleet.broker.stop()
        drill.fleet.broker.start()
        drill.rest(drill.chance.uniform(1, 4))


def _alarm_rabbit(drill: Drill) -> None:
    broker = drill.fleet.broker
    assert isinstance(broker, RabbitServer)
    with broker.alarmed():
        drill.rest(5)


# Messages


def _send_twice(drill: Drill) -> None:
    cluster = drill.fleet.cluster
    cluster.publish(cluster.missing(drill.run_id))


def _resume(drill: Drill) -> None:
    drill.fleet.resume(drill.run_id)


def _kill_resume(drill: Drill) -> None:
    """Kill `resume` of a paused run whose messages are lost, at one step after the other."""
    fleet, resume = drill.fleet, f"resume --run-id {drill.run_id}"
    run(fleet.direct, f"pause --run-id {drill.run_id}")
    for _ in range(KILLS_OF_RESUME):
        step = int(10 ** drill.chance.uniform(0, 2.95))  # it takes about 900
        drill.begin()
        command = (sys.executable, "-m", "tests.chaos.killed", "resume_run", str(step))
        subprocess.run(  # a step beyond the last one lets it end well
            (*command, *resume.split()),
            env=fleet.direct,
            capture_output=True,
            timeout=60,
            check=False,
        )
    drill.begin()
    run(fleet.direct, resume)


def _reach_cap(drill: Drill) -> None:
    """Kill a worker over open batches, reach the cap of the run, and raise it."""
    fleet = drill.fleet
    _wait_for(drill, lambda status: any(m.batches and m.batches.open for m in status.models))
    drill.begin()
    _kill_worker(drill)
    _wait_for(drill, lambda status: status.state is State.OVER_BUDGET)
    status = fleet.cluster.status(drill.run_id)
    cap, billed = drill.fault.cap_usd, fleet.provider.billed_usd
    assert cap is not None
    assert 0 < status.missing < drill.planned
    assert billed <= cap, f"{billed} USD spent, {cap} allowed"
    run(fleet.direct, f"resume --run-id {drill.run_id} --max-cost 100")


def _wait_for(drill: Drill, what: Callable[[RunStatus], bool]) -> None:
    wait_until(lambda: what(drill.fleet.cluster.status(drill.run_id)), "a state of the run", 60)


def _forge(drill: Drill) -> None:
    items = drill.fleet.cluster.missing(drill.run_id)
    queue = queue_name(items[0].model, drill.run_id)
    # Also items that no run plans, in the queues of one that does.
    drill.fleet.cluster.publish([replace(item, generation=7) for item in items])
    with _redis(drill).client() as client:
        client.rpush(queue, *forged_messages(queue))


# The provider


def _trouble(drill: Drill, trouble: Trouble, seconds: float) -> None:
    drill.fleet.provider.trouble = trouble
    drill.rest(seconds)
    drill.fleet.provider.trouble = Trouble.NONE


def _long_wait(drill: Drill) -> None:
    _trouble(drill, Trouble.LONG_WAIT, 5)
    _resume(drill)  # or five minutes pass, as asked


def _wrong_key(drill: Drill) -> None:
    _trouble(drill, Trouble.KEY_REFUSED, 5)
    if drill.outcomes().get("API_ERROR"):
        run(drill.fleet.direct, f"retry --run-id {drill.run_id} --outcome API_ERROR")
    _resume(drill)


def _provider(name: str, title: str, trouble: Trouble, seconds: float, **how: Any) -> Fault:
    return Fault(name, title, partial(_trouble, trouble=trouble, seconds=seconds), **how)


LONG: dict[str, Any] = {"latency": "uniform:0.5,1.5", "items_per_model": 300, "moment": (0.05, 0.1)}

_ALL: tuple[Fault, ...] = (
    Fault("none", "none, for comparison", lambda _: None, twice=0),
    Fault("worker-killed", "a worker gets `kill -9` (leases of 5 s, not 40)", _kill_worker, SHORT_LEASE),
    Fault("worker-stopped", "a worker gets SIGTERM", _stop_worker, twice=0),
    Fault("worker-stopped-without-database", "all workers get SIGTERM while PostgreSQL is away",
          _stop_without_database, twice=0),
    Fault("worker-stopped-half-open", "connections to PostgreSQL and Redis go silent, then SIGTERM",
          _stop_half_open, SHORT_LEASE),
    Fault("postgres-read-only", "PostgreSQL is read-only for 15 s", _read_only, twice=2),
    Fault("postgres-killed", "PostgreSQL is killed and starts again", partial(_kill, server="postgres")),
    Fault("postgres-killed-often", f"PostgreSQL is killed {KILLS} times (600 calls of 0.5 to 1.5 s)",
          partial(_kill_often, server="postgres"), **LONG),
    Fault("pgbouncer-killed", "PgBouncer before PostgreSQL is killed and starts again",
          partial(_kill, server="pooler"), POOLED),
    Fault("pgbouncer-postgres-killed", "PostgreSQL behind PgBouncer is killed and starts again",
          partial(_kill, server="postgres"), POOLED),
    Fault("postgres-away", "PostgreSQL is away for 8 s", _postgres_away, twice=0),
    Fault("postgres-backends-ended", "PostgreSQL ends all connections every second for 8 s",
          _end_backends),
    Fault("postgres-connections-exhausted", "PostgreSQL has no connection left for 8 s",
          _exhaust_connections, moment=(0.0, 0.5)),
    Fault("postgres-half-open", "connections to PostgreSQL go silent", _half_open_postgres),
    Fault("postgres-commit-cut", "connections are cut right after COMMIT, on and off for 6 s",
          _cut_commits),
    Fault("redis-wiped", "Redis is killed and starts again empty; `resume`", _wipe_broker),
    Fault("redis-wiped-worker-killed", "the same, and a worker gets `kill -9`",
          _kill_worker_wipe_redis),
    Fault("redis-killed-often", f"a Redis with an append-only file is killed {KILLS} times"
          " (600 calls of 0.5 to 1.5 s)", partial(_kill_often, server="broker"), KEPT, **LONG),
    Fault("redis-wiped-often", f"Redis is killed {KILLS} times and starts again empty; `resume`"
          " each time (600 calls of 0.5 to 1.5 s)",
          partial(_kill_often, server="broker", resumed=True), **LONG),
    Fault("redis-stopped", "Redis stands still for 8 s", _stop_redis),
    Fault("redis-full", "Redis has no memory left for 10 s",
          partial(_set_redis, name="maxmemory", bad="1mb", good="0", seconds=10)),
    Fault("redis-replica", "Redis is a read-only replica for 8 s", _replica),
    Fault("redis-cut", "connections to Redis are cut (calls of 14 s, leases of 5 s)",
          _cut_broker, SHORT_LEASE, latency="constant:14", items_per_model=10,
          moment=(0.5, 0.9), twice=0),
    Fault("redis-half-open", "connections to Redis go silent", _half_open_broker),
    Fault("rabbitmq-killed", "RabbitMQ is killed and starts again",
          partial(_kill, server="broker"), RABBIT),
    Fault("rabbitmq-restarted", "RabbitMQ is stopped and starts again, three times", _stop_rabbit,
          RABBIT, latency="uniform:1,2", moment=(0.0, 0.3)),
    Fault("rabbitmq-alarm", "RabbitMQ has a memory alarm for 5 s", _alarm_rabbit, RABBIT),
    Fault("rabbitmq-cut", "connections to RabbitMQ are cut", _cut_broker, RABBIT),
    Fault("rabbitmq-worker-killed", "a worker on RabbitMQ gets `kill -9`", _kill_worker, RABBIT),
    # What it was sent some seconds before, RabbitMQ may have confirmed and yet forget.
    Fault("quorum-killed", "RabbitMQ with quorum queues is killed (calls of 1 to 2 s); `pause`, `resume`",
          _kill_and_pause, QUORUM, latency="uniform:1,2", moment=(0.6, 0.9)),
    Fault("quorum-cut", "connections to RabbitMQ with quorum queues are cut", _cut_broker, QUORUM),
    Fault("messages-twice", "every open message is sent again (one worker)", _send_twice, ALONE,
          moment=(0.0, 0.3), twice=0),
    # A copy costs a call where the other worker takes it while the first one calls: 2 x 10 at most.
    Fault("resumed-untimely", "`resume` while all is well", _resume, twice=20),
    Fault("resume-killed", f"`pause`, and {KILLS_OF_RESUME} times `kill -9` of `resume`; `resume`",
          _kill_resume),
    Fault("resume-killed-quorum", "the same on RabbitMQ with quorum queues", _kill_resume, QUORUM),
    Fault("batches-capped", "a worker gets `kill -9` over batches, and the cap on cost is reached;"
          " `resume --max-cost`", _reach_cap, SHORT_LEASE, moment=(0.0, 0.0), cap_usd=Decimal("0.12")),
    Fault("messages-forged", "forged and damaged messages", _forge, moment=(0.0, 0.5), twice=0),
    _provider("provider-silent", "the provider is silent for 12 s (time limit 3 s)",
              Trouble.SILENT, 12, time_limit_s=3.0, twice=0, errors=30),
    _provider("provider-429", "429 for every call for 10 s", Trouble.THROTTLED, 10, twice=0),
    _provider("provider-5xx", "503 for every call for 10 s", Trouble.BROKEN, 10, twice=0),
    Fault("provider-retry-after-301", "429 with Retry-After 301 for 5 s (one worker); `resume`",
          _long_wait, ALONE, twice=0),
    _provider("provider-redirects", "307 for every call for 5 s", Trouble.REDIRECTED, 5, twice=0),
    Fault("provider-key-refused", "401 for every call for 5 s (one worker); `resume`",
          _wrong_key, ALONE, twice=0),
)  # fmt: skip
FAULTS = {fault.name: fault for fault in _ALL}  # by name, in the order of the table
