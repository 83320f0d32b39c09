"""Runs on one model take turns from the queue on, and queues come and go with runs."""

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.db.missing import FinishedModels
from tests.cluster import DEADLINE_S, Cluster, aegish_dist
from tests.services import wait_until

pytestmark = [
    pytest.mark.long,
    pytest.mark.parametrize("cluster", ["redis", "rabbitmq"], indirect=True),
]

SLOW, CAREFUL, LENIENT = "simulated/patient", "simulated/careful", "simulated-anthropic/lenient"
SLOW_ENTRY = f'[[models]]\nid = "{SLOW}"\nsimulated = true\nrequests_per_minute = 600'
BIG, SMALL = 200, 20


@pytest.fixture
def cluster(cluster: Cluster, redis_url: str) -> Cluster:
    """A cluster with a model of a known limit."""
    cluster.simulator.start()
    cluster.simulator.know(SLOW_ENTRY)
    cluster.set(limiter_url=redis_url, concurrency=20)
    return cluster


def test_a_small_run_does_not_wait_for_a_big_one(cluster: Cluster) -> None:
    """Of a throttled model, a run gets its half although another was submitted before it."""
    big = cluster.submit(SLOW, limit=BIG)
    small = cluster.submit(SLOW, limit=SMALL)
    for number in range(2):
        cluster.start_worker("-n", f"w{number}")
    cluster.wait_until_complete(small)
    assert cluster.status(big).missing > BIG / 2


def test_queues_of_finished_runs_are_left(cluster: Cluster) -> None:
    """A worker leaves the queue of a finished run, and finds it when the run is opened again."""
    cluster.start_worker()
    run_id = cluster.submit(CAREFUL, limit=10)
    cluster.wait_until_complete(run_id)
    queue = f"aegish.{CAREFUL}#{run_id}"
    lines = cluster.log().splitlines()
    assert sum("queue_followed" in line and queue in line for line in lines) == 1
    with Session(cluster.engine) as session, session.begin():
        FinishedModels().close(session)
    wait_until(lambda: f"Canceling queue {queue} " in cluster.log(), "leaving", DEADLINE_S)
    # A run that lacks nothing may be closed again before the worker looks for it.
    one = "DELETE FROM verdicts WHERE sample_key = (SELECT min(sample_key) FROM verdicts)"
    with Session(cluster.engine) as session, session.begin():
        session.execute(text(one))
    assert cluster.resume(run_id) == 1
    cluster.wait_until_complete(run_id)
    lines = cluster.log().splitlines()
    assert sum("queue_followed" in line and queue in line for line in lines) == 2


def test_a_pinned_worker(cluster: Cluster) -> None:
    """`worker --models` takes those models of all runs, present and future."""
    first = cluster.submit(CAREFUL, LENIENT, limit=10)
    cluster.start(*aegish_dist("worker --models", CAREFUL))
    wait_until(lambda: cluster.status(first).done == 10, "the pinned model", DEADLINE_S)
    second = cluster.submit(CAREFUL, LENIENT, limit=10)
    wait_until(lambda: cluster.status(second).done == 10, "the later run", DEADLINE_S)
    cluster.takes_from(f"aegish.{CAREFUL}#{second}")  # at once: it is left when the model is closed
    assert {item.model for run in (first, second) for item in cluster.missing(run)} == {LENIENT}
    assert cluster.waiting(first, LENIENT) == cluster.waiting(second, LENIENT) == 10


def test_a_worker_for_other_queues(cluster: Cluster) -> None:
    run_id = cluster.submit(CAREFUL, limit=10)
    cluster.start_worker("-Q", "elsewhere")
    wait_until(lambda: " ready." in cluster.log(), "the worker", DEADLINE_S)
    cluster.takes_from("elsewhere")
    assert cluster.waiting(run_id, CAREFUL) == 10
