"""Fleets whose workers have the role of workers: all that they do, and what is left to others."""

from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from sqlalchemy import Engine

from aegish_dist.broker.client import queue_depths
from aegish_dist.broker.messages import AGGREGATION_QUEUE
from tests.cluster import BATCH_SERVER, DEADLINE_S, Cluster, aegish_dist, run, run_json
from tests.roles import as_role, roles
from tests.services import wait_until

pytestmark = pytest.mark.long

MODELS = ("simulated/careful", "simulated/hasty")
LIMIT = 4  # twice as many empty answers in a row do not park the model
BATCHES = 'batches.duration = "constant:1"\n'
MUTE = f"{BATCHES}[models.hasty.faults]\nempty = 1.0\n"
PROBLEMS = (
    "permission denied",
    "verdict_refused",
    "database_fails",
    "heartbeat_fails",
    "Traceback",
)


@pytest.fixture
def fleet(tmp_path: Path, engine: Engine, postgres_url: str, redis_url: str) -> Iterator[Cluster]:
    """Commands have their role; nothing is started yet."""
    app_url = as_role(postgres_url, "aegish_app")
    with roles(postgres_url), Cluster(tmp_path, app_url, redis_url) as fleet:
        fleet.set(batch_poll_s=0.3)
        fleet.simulator.program = BATCH_SERVER
        yield fleet


def start_as_worker(fleet: Cluster, line: str = "worker") -> "Popen[bytes]":
    app_url = fleet.env["AEGISH_DIST_DATABASE_URL"]
    fleet.set(database_url=as_role(app_url, "aegish_worker"))
    process = fleet.start(*aegish_dist(line))
    fleet.set(database_url=app_url)
    return process


def wait_for_snapshots(fleet: Cluster, number: int) -> None:
    made = "SELECT count(*) FROM aggregations WHERE snapshot_ids IS NOT NULL"
    wait_until(lambda: fleet.scalar(made) == number, f"{number} snapshots", DEADLINE_S)


def test_workers_do_all_that_runs_need(fleet: Cluster) -> None:
    """Epochs, retries, more models and epochs, batches: answered; the aggregator makes the rest."""
    fleet.simulator.start(scenario=MUTE)
    worker = start_as_worker(fleet)
    aggregator = fleet.start(*aegish_dist("worker --aggregate-only"))
    fleet.wait_for_workers(1)
    run_id = fleet.submit(MODELS[1], limit=LIMIT, options="--epochs 2")
    fleet.wait_until_complete(run_id)
    wait_for_snapshots(fleet, 1)

    fleet.simulator.stop()
    fleet.simulator.start(scenario=BATCHES)
    retried = run_json(fleet.env, "retry --outcome timeout_error --run-id", run_id)
    assert retried["asked"] == 2 * LIMIT
    fleet.wait_until_complete(run_id)
    wait_for_snapshots(fleet, 2)
    more = f"--models {MODELS[0]} --epochs 3 --skip-preflight"
    run(fleet.env, f"extend --run-id {run_id} {more}")
    fleet.wait_until_complete(run_id)
    wait_for_snapshots(fleet, 3)
    batched = fleet.submit(*MODELS, limit=LIMIT, options="--batch")
    fleet.wait_until_complete(batched)
    wait_for_snapshots(fleet, 4)

    (replaced,) = {model.replaced for model in fleet.status(run_id).models} - {0}
    assert replaced == 2 * LIMIT
    assert len(fleet.verdicts(run_id)) == LIMIT * (2 + 3 + 3)
    assert fleet.scalar("SELECT count(*) FROM batches WHERE state <> 'ended'") == 0
    assert fleet.scalar("SELECT count(*) FROM batched_items") == 0
    fleet.stop(worker, aggregator)
    assert fleet.log().count("aggregations_left_to_others") == 1
    assert [problem for problem in PROBLEMS if problem in fleet.log()] == []


def test_a_fleet_without_an_aggregator(fleet: Cluster) -> None:
    """A run completes, commands score it, and its one message waits for who may make snapshots."""
    fleet.simulator.start()
    worker = start_as_worker(fleet)
    run_id = fleet.submit(MODELS[0], limit=LIMIT)
    fleet.wait_until_complete(run_id)
    enqueued = "SELECT count(*) FROM aggregations WHERE enqueued_at IS NOT NULL"
    wait_until(lambda: fleet.scalar(enqueued) == 1, "a message", DEADLINE_S)

    status = run_json(fleet.env, "status --run-id", run_id)
    assert (status["state"], status["snapshot_id"]) == ("complete", None)
    reported = run_json(fleet.env, "aggregate --run-id", run_id)
    run(fleet.env, "report --run-id", run_id)
    assert reported["models"][0]["counts"]["done"] == LIMIT
    fleet.stop(worker)
    assert queue_depths(fleet.app, [AGGREGATION_QUEUE])[AGGREGATION_QUEUE] == 1
    aggregator = fleet.start(*aegish_dist("worker --aggregate-only"))
    wait_for_snapshots(fleet, 1)
    fleet.stop(aggregator)


def test_a_role_that_may_not_aggregate_is_named(fleet: Cluster) -> None:
    aggregator = start_as_worker(fleet, "worker --aggregate-only")
    assert aggregator.wait(DEADLINE_S) == 1
    assert "worker_cannot_start" in fleet.log()
    assert "--aggregate-only has nothing to do: the role in" in fleet.log()
