"""Runs on a cluster of real processes, from the command line to the stored verdicts."""

import pytest

from tests.cluster import Cluster, run, run_json

pytestmark = pytest.mark.usefixtures("instant")

WIRES = ("simulated/careful", "simulated-anthropic/lenient", "simulated-google/hasty")


def assert_called_once_each(cluster: Cluster, run_id: str, planned: int) -> None:
    assert len(cluster.verdicts(run_id)) == planned
    assert cluster.simulator.calls() == planned


def test_plain_celery_command(cluster: Cluster) -> None:
    """A worker started by Celery's own command completes a run over all wire formats."""
    run_id = cluster.submit(*WIRES, limit=40)
    assert cluster.waiting(run_id, *WIRES) == 120
    worker = cluster.start_worker()
    cluster.wait_until_complete(run_id)
    cluster.stop(worker)
    assert cluster.waiting(run_id, *WIRES) == 0
    assert_called_once_each(cluster, run_id, 3 * 40)
    status = run_json(cluster.env, "status --run-id", run_id)
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
    refused = run(cluster.env, "resume --run-id", left, code=1)
    assert cluster.log().count("queue_refused") == 1
    assert "Connection to broker lost" not in cluster.log()
    assert "AEGISH_DIST_QUEUE_TYPE" in refused.stderr
    assert worker.poll() is None
    assert (cluster.status(left).done, cluster.simulator.calls()) == (0, 30)
