"""Connections of a worker that are cut or go silent in the middle of a run."""

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import redis

from aegish_dist.broker.redis_leases import LEASES
from tests.cluster import DEADLINE_S, Cluster, run
from tests.half_open import HalfOpenProxy
from tests.services import HOST, RedisServer, wait_until

pytestmark = pytest.mark.long

MODEL = "simulated/steady"
ITEMS = 40
LEASE_S = 5
WORKER = """
import aegish_dist.broker.app as app
app.RESCUE_INTERVAL_S = app.SILENCE_S = 1
app.HEALTH_CHECK_INTERVAL_S = 2
import aegish_dist.db.engine as engine
engine.WORKER_REPLY_TIMEOUT_S = 3.0
import runpy
runpy.run_module("workers", run_name="__main__")
"""
"""A worker that finds out in seconds about what takes others most of a minute."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path, postgres_url: str, broker: RedisServer) -> Iterator[Cluster]:
    """A cluster whose workers may hold all items each."""
    with Cluster(tmp_path, postgres_url, broker.url) as started:
        started.set(concurrency=2 * ITEMS, message_lease_s=LEASE_S)
        yield started


def start_worker(cluster: Cluster, **environment: str) -> "Popen[bytes]":
    """Start a worker with its own way to the servers."""
    shared = cluster.env
    cluster.env = shared | environment
    worker = cluster.start(sys.executable, "-c", WORKER)
    cluster.env = shared
    return worker


def test_a_cut_broker_connection(cluster: Cluster, broker: RedisServer) -> None:
    """An item that a worker is calling stays with it: no call is made twice, however long it takes."""
    cluster.simulator.start("--latency", "constant:3")
    with HalfOpenProxy(broker.port) as proxy, broker.client() as server:
        start_worker(cluster, AEGISH_DIST_BROKER_URL=f"redis://{HOST}:{proxy.port}/0")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        cluster.wait_for_calls(ITEMS)
        with cluster.simulator.halted():
            start_worker(cluster)
            cluster.wait_for_workers(2)
            cut_at = time.time()
            proxy.cut()
            wait_until(
                lambda: oldest_renewal(server) > cut_at + 1.5 * LEASE_S, "renewals", DEADLINE_S
            )

        cluster.wait_until_complete(run_id)

        assert cluster.simulator.calls() == ITEMS
        assert "Connection to broker lost" in cluster.log()
        assert "expired_leases_requeued" not in cluster.log()


def oldest_renewal(server: redis.Redis) -> float:
    """Return when the message that was not renewed for the longest time was."""
    oldest: Any = server.zrange(LEASES, 0, 0, withscores=True)
    return float(oldest[0][1]) - LEASE_S


def test_connections_that_go_silent(
    cluster: Cluster, broker: RedisServer, postgres_url: str
) -> None:
    """Half-open connections to both servers are replaced: the run completes, and SIGTERM is obeyed."""
    cluster.simulator.start("--latency", "constant:1")
    with HalfOpenProxy(broker.port) as queue, HalfOpenProxy.to_postgres(postgres_url) as postgres:
        worker = start_worker(
            cluster,
            AEGISH_DIST_BROKER_URL=f"redis://{HOST}:{queue.port}/0",
            AEGISH_DIST_DATABASE_URL=postgres.postgres_url(postgres_url),
        )
        run_id = cluster.submit(MODEL, limit=2 * ITEMS)
        cluster.wait_for_calls(ITEMS // 2)
        assert queue.swallow() > 0
        assert postgres.swallow() > 0

        cluster.wait_until_complete(run_id)
        queue.swallow()
        postgres.swallow()
        worker.send_signal(signal.SIGTERM)

        assert worker.wait(DEADLINE_S) == 0


def test_a_redis_whose_memory_is_full(cluster: Cluster, broker: RedisServer) -> None:
    """A worker without work and one with leases to renew live through it, and go on afterwards."""
    cluster.simulator.start("--latency", f"constant:{LEASE_S}")
    run_id = cluster.submit(MODEL, limit=ITEMS)
    workers = [start_worker(cluster), start_worker(cluster)]
    cluster.wait_for_calls(ITEMS)
    with broker.client() as server:
        server.config_set("maxmemory", 1)
        asked = ("submit", "--models", MODEL, "--dataset", "harmless", "--limit", "1")
        assert "its memory is full" in run(cluster.env, *asked, code=1).stderr
        wait_until(lambda: cluster.status(run_id).done > 0, "the calls", DEADLINE_S)
        server.config_set("maxmemory", 0)

    cluster.wait_until_complete(run_id)
    cluster.wait_until_complete(cluster.submit(MODEL, limit=ITEMS))
    assert [worker.poll() for worker in workers] == [None, None]
    assert cluster.simulator.calls() == 2 * ITEMS
