"""Runs that workers aggregate: exactly once, soon, and whatever is killed meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import text

from aegish_dist.broker.messages import AGGREGATION_QUEUE
from tests.cluster import DEADLINE_S, Cluster, aegish_dist, run, run_json
from tests.services import wait_until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("instant")]

MODELS = ("simulated/careful", "simulated/hasty")
SOON_S = 5.0  # seconds from the last verdict of a run to its snapshot, on a busy machine


def snapshots(cluster: Cluster) -> int:
    return int(cluster.scalar("SELECT count(*) FROM snapshots"))


def wait_until_aggregated(cluster: Cluster, run_id: str) -> None:
    wait_until(lambda: cluster.status(run_id).snapshot_id is not None, "a snapshot", DEADLINE_S)


@contextmanager
def no_snapshot_can_be_stored(cluster: Cluster) -> Iterator[None]:
    """Lock the table for the length of the body: an aggregation that has begun does not end."""
    with cluster.engine.begin() as connection:
        connection.execute(text("LOCK TABLE snapshot_metrics IN ACCESS EXCLUSIVE MODE"))
        yield


def wait_until_making(cluster: Cluster) -> None:
    """Wait until a worker waits for that lock."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
    wait_until(lambda: cluster.scalar(waiting) > 0, "an aggregation under way", DEADLINE_S)


def test_a_complete_run_is_aggregated(cluster: Cluster) -> None:
    """The snapshot is there within seconds, made once by one of the workers, and is shown."""
    workers = cluster.start_workers(2)
    asked = f"--models {','.join(MODELS)} --dataset harmless --limit 40 --skip-preflight --wait"

    submitted = run_json(cluster.env, f"submit {asked}")

    status = run_json(cluster.env, "status --run-id", submitted["run_id"])
    assert status["snapshot_id"] == submitted["snapshot_id"] is not None
    assert status["aggregation_problem"] is None
    shown = run(cluster.env, "status --run-id", submitted["run_id"])
    assert f"its scores are stored as snapshot {submitted['snapshot_id']}" in shown.stderr
    delay_s = cluster.scalar(
        "SELECT extract(epoch FROM (SELECT max(created_at) FROM snapshots)"
        " - (SELECT max(stored_at) FROM verdicts))"
    )
    assert 0 < delay_s < SOON_S
    cluster.stop(*workers)
    assert snapshots(cluster) == 1


@pytest.mark.parametrize("cluster", ["rabbitmq"], indirect=True)
def test_rabbitmq(cluster: Cluster) -> None:
    """The queue of aggregations is the same whatever the type of the others."""
    for number, queue_type in enumerate(("classic", "quorum"), 1):
        cluster.set(queue_type=queue_type)
        run_id = cluster.submit(f"simulated/aggregated-{queue_type}", limit=20)
        worker = cluster.start_worker()
        wait_until_aggregated(cluster, run_id)
        cluster.stop(worker)
        assert snapshots(cluster) == number
    assert "queue_refused" not in cluster.log()


def test_a_worker_that_only_aggregates(cluster: Cluster) -> None:
    """It calls no model, does not count as a worker that could, and makes what is asked for."""
    cluster.set(message_lease_s=5)
    caller = cluster.start_worker()
    with no_snapshot_can_be_stored(cluster):
        run_id = cluster.submit(MODELS[0], limit=10)
        wait_until_making(cluster)
        caller.kill()
        caller.wait(DEADLINE_S)
    aggregator = cluster.start(*aegish_dist("worker --aggregate-only"))
    cluster.takes_from(AGGREGATION_QUEUE)
    left = cluster.submit(MODELS[0], limit=10)

    wait_until_aggregated(cluster, run_id)

    assert snapshots(cluster) == 1
    wait_until(
        lambda: cluster.status(left).workers == 0, "the killed worker to be gone", DEADLINE_S
    )
    assert cluster.waiting(left, MODELS[0]) == 10
    cluster.stop(aggregator)


def test_calls_go_on_while_a_worker_aggregates(cluster: Cluster) -> None:
    """Another run completes meanwhile, its heartbeat is there, and its lease is renewed."""
    cluster.set(message_lease_s=5)
    cluster.start_worker()
    with no_snapshot_can_be_stored(cluster):
        first = cluster.submit(MODELS[0], limit=10)
        wait_until_making(cluster)
        second = cluster.submit(MODELS[1], limit=200)
        cluster.wait_until_complete(second)
        assert cluster.status(second).workers == 1
        assert "expired_leases_requeued" not in cluster.log()
    for run_id in (first, second):
        wait_until_aggregated(cluster, run_id)
    assert snapshots(cluster) == 2


def test_a_message_that_is_lost(cluster: Cluster, redis_url: str) -> None:
    """A kill between commit and publication, and an emptied Redis, leave an old row: it is swept."""
    run_id = cluster.submit(MODELS[0], limit=10)
    worker = cluster.start_worker()
    wait_until_aggregated(cluster, run_id)
    cluster.stop(worker)
    with redis.Redis.from_url(redis_url) as client, cluster.engine.begin() as connection:
        client.flushall()
        connection.execute(text("DELETE FROM snapshots"))
        lost = "finished_at = NULL, snapshot_ids = NULL, enqueued_at = now() - interval '61 s'"
        connection.execute(text(f"UPDATE aggregations SET {lost}"))

    for _ in range(2):
        cluster.start_worker()
    wait_until_aggregated(cluster, run_id)

    assert snapshots(cluster) == 1
    assert cluster.scalar("SELECT count(*) FROM aggregations") == 1


def test_an_aggregator_takes_no_models(cluster: Cluster) -> None:
    run(cluster.env, f"worker --aggregate-only --models {MODELS[0]}", code=2)
