"""Runs that stop when their question is answered, on real workers and in one process."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from aegish_dist.core.status import State
from tests.e2e.cluster import Cluster, run, run_json
from tests.services import wait_until

FAR_APART = "simulated/careful,baseline/always-allow"
DEADLINE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[Cluster]:
    """A cluster on Redis with a provider that takes its time; no worker yet."""
    with Cluster(tmp_path, postgres_url, redis_url) as started:
        started.simulator.start("--latency", "constant:0.2")
        yield started


def in_flight_at_the_decision(cluster: Cluster) -> int:
    """Count the verdicts that were stored after it."""
    with cluster.engine.connect() as connection:
        return int(
            connection.scalar(
                text(
                    "SELECT count(*) FROM verdicts JOIN run_models AS model"
                    " ON model.id = run_model_id JOIN runs AS run ON run.id = model.run_id"
                    " WHERE stored_at > (run.decision ->> 'read_at')::timestamptz"
                )
            )
            or 0
        )


def test_two_models_far_apart(cluster: Cluster) -> None:
    """The run stops early; nothing is paid for after the decision but calls in flight."""
    calls = 20
    cluster.start_worker("-c", str(calls))
    asked = ("--models", "simulated/careful,simulated/hasty", "--skip-preflight")
    everything = ("--models", FAR_APART, *asked[2:], "--stop-when", "decided", "--wait")
    submitted = run_json(cluster.env, "submit", *everything)

    status = run_json(cluster.env, "status", "--run-id", submitted["run_id"])
    (question,) = status["reading"]["decision"]["questions"]
    assert status["state"] == "decided"
    assert status["reading"]["settled"]
    assert (question["a"], question["answer"]) == ("baseline/always-allow", "above")
    assert question["low"] > 0
    made = cluster.simulator.calls()
    assert made < 659 / 2
    assert status["reading"]["saved_calls"] == status["missing"] > 0
    assert in_flight_at_the_decision(cluster) <= 2 * calls
    assert status["snapshot_id"] == submitted["snapshot_id"] is not None
    shown = run(cluster.env, "status", "--run-id", submitted["run_id"])
    assert "scores higher than baseline/always-allow" in shown.stderr
    assert "saved by the stop rule" in shown.stderr

    time.sleep(1.0)
    assert cluster.simulator.calls() == made
    run(cluster.env, "resume", "--run-id", submitted["run_id"], code=1)
    run(cluster.env, "resume", "--run-id", submitted["run_id"], "--reopen")
    wait_until(
        lambda: cluster.status(submitted["run_id"]).state is State.COMPLETE, "the rest", DEADLINE_S
    )
    assert cluster.simulator.calls() == 659
    wait_until(
        lambda: (cluster.status(submitted["run_id"]).snapshot_id or 0) > submitted["snapshot_id"],
        "another snapshot",
        DEADLINE_S,
    )


def test_two_equal_models(cluster: Cluster) -> None:
    """Few commands decide nothing: they are asked to the end, and the last reading says so."""
    cluster.start_worker()
    equal = ("--models", "simulated/one,simulated/other", "--limit", "5")
    run(cluster.env, "submit", *equal, "--margin", "0.02", code=2)
    submitted = run_json(
        cluster.env, "submit", *equal, "--skip-preflight", "--stop-when", "decided", "--wait"
    )

    status = run_json(cluster.env, "status", "--run-id", submitted["run_id"])
    assert status["state"] == "complete"
    assert not status["reading"]["settled"]
    assert status["reading"]["decision"]["questions"][0]["samples"] == 15
    assert status["reading"]["saved_calls"] == 0
    assert submitted["snapshot_id"] is not None
