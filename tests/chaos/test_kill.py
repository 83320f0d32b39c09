"""Workers and servers that end in the middle of a run: no verdict is lost, none stored twice."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from aegish_dist.db import schema
from aegish_dist.db.embedded import embedded_server
from aegish_dist.db.engine import open_engine
from tests.e2e.cluster import DEADLINE_S, Cluster
from tests.services import HOST, RedisServer, ServerProcess, free_port, require_binary, wait_until

MODELS = ("simulated/sturdy", "simulated-anthropic/stubborn")
"""Of names that no other test uses: queues of RabbitMQ outlive a test."""
HELD = 20
"""Items a worker holds at once."""


def start_worker(cluster: Cluster) -> "Popen[bytes]":
    """Start a worker that holds few items, so that it is not done too soon."""
    return cluster.start_worker("--concurrency", str(HELD))


def test_worker_and_broker_die(tmp_path: Path, postgres_url: str):
    """After `kill -9` of a worker and the loss of all messages, `resume` completes the run."""
    with RedisServer(tmp_path) as redis, Cluster(tmp_path, postgres_url, redis.url) as cluster:
        cluster.simulator.start("--latency", "constant:0.5")
        run_id = cluster.submit(*MODELS, limit=60)
        doomed, survivor = start_worker(cluster), start_worker(cluster)
        cluster.wait_for_calls(60)
        doomed.kill()
        redis.kill()
        redis.start()

        assert cluster.waiting(run_id, *MODELS) == 0
        assert 0 < cluster.resume(run_id) < 120
        cluster.wait_until_complete(run_id)

        assert survivor.poll() is None
        assert len(cluster.verdicts(run_id)) == 120
        # Called again is at most what both workers held in that moment.
        assert 120 <= cluster.simulator.calls() <= 120 + 2 * HELD


def test_worker_dies(tmp_path: Path, postgres_url: str, rabbitmq_url: str):
    """RabbitMQ passes on at once what a dead worker held; workers need no names of their own."""
    with Cluster(tmp_path, postgres_url, rabbitmq_url) as cluster:
        cluster.simulator.start("--latency", "constant:0.5")
        run_id = cluster.submit(*MODELS, limit=50)
        doomed = start_worker(cluster)
        start_worker(cluster)
        cluster.wait_for_calls(2 * HELD + 1)
        doomed.kill()

        cluster.wait_until_complete(run_id)

        assert len(cluster.verdicts(run_id)) == 100
        assert 100 <= cluster.simulator.calls() <= 100 + HELD


def test_orderly_shutdown(tmp_path: Path, postgres_url: str, redis_url: str):
    """A stopped worker finishes its calls and gives the rest back: no call is lost or repeated."""
    with Cluster(tmp_path, postgres_url, redis_url) as cluster:
        cluster.simulator.start("--latency", "constant:1")
        run_id = cluster.submit(*MODELS, limit=30)
        worker = start_worker(cluster)
        cluster.wait_for_calls(HELD + 1)
        worker.terminate()

        assert worker.wait(DEADLINE_S) == 0
        called = cluster.simulator.calls()
        assert HELD < called == cluster.status(run_id).done < 60
        assert cluster.waiting(run_id, *MODELS) == 60 - called
        start_worker(cluster)
        cluster.wait_until_complete(run_id)

        assert cluster.simulator.calls() == 60


def test_broker_restarts(tmp_path: Path, postgres_url: str):
    """A broker that keeps its messages may crash and return: the run completes by itself."""
    broker = ServerProcess(free_port(), tmp_path / "redis.log")
    command = [require_binary("redis-server"), "--port", str(broker.port), "--bind", HOST]
    command += ["--dir", str(tmp_path), "--appendonly", "yes", "--appendfsync", "always"]
    url = f"redis://{HOST}:{broker.port}/0"
    with ExitStack() as stack, Cluster(tmp_path, postgres_url, url) as cluster:
        stack.callback(broker.stop)
        broker.launch(command)
        cluster.simulator.start("--latency", "constant:1")
        run_id = cluster.submit(*MODELS, limit=30)
        worker = start_worker(cluster)
        cluster.wait_for_calls(HELD)
        broker.kill()
        # What is held now is answered and stored, but cannot be acknowledged.
        wait_until(lambda: cluster.status(run_id).done == HELD, "the calls in flight", DEADLINE_S)
        broker.launch(command)

        cluster.wait_until_complete(run_id)

        assert worker.poll() is None
        assert cluster.simulator.calls() == 60


@contextmanager
def own_postgres() -> Iterator[tuple[str, Any]]:
    """A migrated PostgreSQL that nobody else uses: its URL, and the server to stop and start."""
    home = Path(tempfile.mkdtemp(prefix="aegish-dist-"))
    server = embedded_server(home)
    engine = open_engine(server.url)
    schema.upgrade(engine)
    engine.dispose()
    try:
        yield server.url, server
    finally:
        server.close()
        shutil.rmtree(home)


def test_database_restarts(tmp_path: Path, redis_url: str):
    """Answers wait for a database that is away; nothing is asked without it, or asked again."""
    with own_postgres() as (url, server), Cluster(tmp_path, url, redis_url) as cluster:
        cluster.simulator.start("--latency", "constant:0.5")
        run_id = cluster.submit(*MODELS, limit=40)
        worker = start_worker(cluster)
        cluster.wait_for_calls(HELD + 1)
        server.stop()
        wait_until(lambda: not cluster.simulator.stats()["in_flight"], "the calls", DEADLINE_S)
        called = cluster.simulator.calls()
        server.start()

        assert HELD < called < 80
        cluster.wait_until_complete(run_id)

        assert worker.poll() is None
        assert cluster.simulator.calls() == 80
