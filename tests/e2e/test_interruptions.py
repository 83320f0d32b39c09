"""Workers that are stopped and brokers that vanish, in the middle of a run on Redis."""

import signal
from pathlib import Path

import pytest
import redis

from aegish_dist.broker.redis_leases import LEASES, UNACKED
from tests.e2e.cluster import DEADLINE_S, Cluster
from tests.services import RedisServer, wait_until

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
ITEMS = 200


def test_a_worker_that_is_stopped(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    """On SIGTERM calls in flight are finished, stored and acknowledged, and the rest goes back."""
    with Cluster(tmp_path, postgres_url, redis_url) as cluster:
        cluster.env["AEGISH_DIST_CONCURRENCY"] = "40"
        cluster.simulator.start("--latency", "constant:1")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        worker = cluster.start_worker()
        cluster.wait_for_calls(60)
        worker.send_signal(signal.SIGTERM)

        assert worker.wait(DEADLINE_S) == 0

        done = cluster.status(run_id).done
        assert 60 <= done == cluster.simulator.calls() < ITEMS
        assert cluster.waiting(run_id, MODEL) == ITEMS - done
        with redis.Redis.from_url(redis_url) as server:
            assert (server.hlen(UNACKED), server.zcard(LEASES)) == (0, 0)


def test_redis_that_loses_everything(tmp_path: Path, postgres_url: str) -> None:
    """A worker outlives its broker and goes on when it is back and refilled."""
    with RedisServer(tmp_path) as broker, Cluster(tmp_path, postgres_url, broker.url) as cluster:
        cluster.env["AEGISH_DIST_CONCURRENCY"] = "20"
        cluster.simulator.start("--latency", "constant:0.3")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        worker = cluster.start_worker()
        cluster.wait_for_calls(40)
        broker.kill()
        wait_until(lambda: cluster.simulator.stats()["in_flight"] == 0, "calls in flight to end")
        broker.start()

        assert cluster.resume(run_id) > 0
        cluster.wait_until_complete(run_id)

        assert worker.poll() is None
        assert len(cluster.verdicts(run_id)) == ITEMS


def test_redis_that_keeps_its_data(tmp_path: Path, postgres_url: str) -> None:
    """Items that a worker holds while Redis restarts are called once: they stay with it."""
    with RedisServer(tmp_path) as broker, Cluster(tmp_path, postgres_url, broker.url) as cluster:
        cluster.env["AEGISH_DIST_CONCURRENCY"] = "80"
        cluster.simulator.start("--latency", "constant:3")
        run_id = cluster.submit(MODEL, limit=100)
        worker = cluster.start_worker()
        cluster.wait_for_calls(80)
        with redis.Redis.from_url(broker.url) as server:
            server.save()
        broker.kill()
        broker.start()

        cluster.wait_until_complete(run_id)

        assert worker.poll() is None
        assert cluster.simulator.calls() == 100


def test_redis_that_takes_no_writes(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    """A worker waits for what an administrator repairs, and nothing is called twice or lost."""
    with (
        Cluster(tmp_path, postgres_url, redis_url) as cluster,
        redis.Redis.from_url(redis_url) as server,
    ):
        cluster.env["AEGISH_DIST_CONCURRENCY"] = "20"
        cluster.simulator.start("--latency", "constant:0.3")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        worker = cluster.start_worker()
        cluster.wait_for_calls(40)
        server.config_set("min-replicas-to-write", 1)
        try:
            wait_until(lambda: "redis_takes_no_writes" in cluster.log(), "a refusal")
        finally:
            server.config_set("min-replicas-to-write", 0)
        cluster.wait_until_complete(run_id)

        assert worker.poll() is None
        assert cluster.simulator.calls() == ITEMS
        assert len(cluster.verdicts(run_id)) == ITEMS
