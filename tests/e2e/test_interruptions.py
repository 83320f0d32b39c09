"""Workers that are stopped and brokers that vanish, in the middle of a run on Redis."""

import signal

import pytest
import redis

from aegish_dist.broker.redis_leases import LEASES, UNACKED
from tests.cluster import DEADLINE_S, Cluster
from tests.services import wait_until

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
ITEMS = 200


def test_a_worker_that_is_stopped(cluster: Cluster, redis_url: str) -> None:
    """On SIGTERM calls in flight are finished, stored and acknowledged, and the rest goes back."""
    cluster.set(concurrency=40)
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


def test_redis_that_takes_no_writes(cluster: Cluster, redis_url: str) -> None:
    """A worker waits for what an administrator repairs, and nothing is called twice or lost."""
    cluster.set(concurrency=20)
    cluster.simulator.start("--latency", "constant:0.3")
    run_id = cluster.submit(MODEL, limit=ITEMS)
    worker = cluster.start_worker()
    cluster.wait_for_calls(40)
    with redis.Redis.from_url(redis_url) as server:
        server.config_set("min-replicas-to-write", 1)
        try:
            wait_until(lambda: "redis_takes_no_writes" in cluster.log(), "a refusal")
        finally:
            server.config_set("min-replicas-to-write", 0)
    cluster.wait_until_complete(run_id)

    assert worker.poll() is None
    assert cluster.simulator.calls() == len(cluster.verdicts(run_id)) == ITEMS
