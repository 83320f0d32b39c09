"""Runs on a cluster of real processes, from the command line to the stored verdicts."""

import pytest

from tests.cluster import DEADLINE_S, Cluster, aegish_dist, run, run_json
from tests.services import wait_until

WIRES = ("simulated/careful", "simulated-anthropic/lenient", "simulated-google/hasty")


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """A cluster whose simulated models answer at once."""
    cluster.simulator.start("--latency", "constant:0")
    return cluster


def assert_called_once_each(cluster: Cluster, run_id: str, planned: int) -> None:
    """Check that a run is complete and that no call was made twice."""
    assert len(cluster.verdicts(run_id)) == planned
    assert cluster.simulator.calls() == planned


@pytest.mark.parametrize("cluster", ["redis", "rabbitmq"], indirect=True)
def test_plain_celery_command(cluster: Cluster) -> None:
    """A worker started by Celery's own command completes a run over all wire formats."""
    run_id = cluster.submit(*WIRES, limit=40)
    assert cluster.waiting(run_id, *WIRES) == 120
    worker = cluster.start_worker()

    cluster.wait_until_complete(run_id)
    worker.terminate()

    assert worker.wait(DEADLINE_S) == 0
    assert cluster.waiting(run_id, *WIRES) == 0
    assert_called_once_each(cluster, run_id, 3 * 40)
    status = run_json(cluster.env, "status", "--run-id", run_id)
    assert (status["state"], status["planned"], status["missing"]) == ("complete", 120, 0)
    assert sum(status["outcomes"].values()) == status["done"] == 120
    assert {model["model"]: model["done"] for model in status["models"]} == dict.fromkeys(WIRES, 40)


@pytest.mark.parametrize("cluster", ["rabbitmq"], indirect=True)
def test_queue_of_another_type(cluster: Cluster) -> None:
    """A worker leaves a run alone whose queues RabbitMQ has of another type, and serves others."""
    left = cluster.submit("simulated/classic", limit=5)
    cluster.set(queue_type="quorum")
    worker = cluster.start_worker()
    served = cluster.submit("simulated/quorum", limit=30)

    cluster.wait_until_complete(served)
    refused = run(cluster.env, "resume", "--run-id", left, code=1)

    assert cluster.log().count("queue_refused") == 1
    assert "Connection to broker lost" not in cluster.log()
    assert "AEGISH_DIST_QUEUE_TYPE" in refused.stderr
    assert worker.poll() is None
    assert (cluster.status(left).done, cluster.simulator.calls()) == (0, 30)


def test_worker_of_one_model(cluster: Cluster) -> None:
    """A worker with pinned models leaves the queues of other models alone."""
    served, left, _ = WIRES
    run_id = cluster.submit(served, left, limit=30)
    cluster.start(*aegish_dist("worker", "--models", served))

    wait_until(lambda: cluster.status(run_id).done == 30, "the served model", DEADLINE_S)

    assert cluster.simulator.stats()["requests"] == {"careful": 30}
    assert cluster.waiting(run_id, left) == 30
    assert {item.model for item in cluster.missing(run_id)} == {left}


def test_duplicate_messages(cluster: Cluster) -> None:
    """Whatever the queue delivers again costs no call and adds no verdict."""
    run_id = cluster.submit(*WIRES, limit=30)
    items = cluster.missing(run_id)
    worker = cluster.start_worker()
    cluster.wait_until_complete(run_id)
    stored = cluster.verdicts(run_id)

    assert cluster.resume(run_id) == 0
    cluster.publish(items * 2)
    wait_until(lambda: cluster.waiting(run_id, *WIRES) == 0, "the duplicates", DEADLINE_S)
    worker.terminate()

    assert worker.wait(DEADLINE_S) == 0
    assert cluster.waiting(run_id, *WIRES) == 0
    assert cluster.verdicts(run_id) == stored
    assert_called_once_each(cluster, run_id, 3 * 30)
