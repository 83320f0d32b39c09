"""Pausing and cancelling runs that real workers are busy with."""

import time
from collections.abc import Mapping

import pytest

from aegish_dist.core.run import RunPause
from aegish_dist.core.status import State
from aegish_dist.pipeline.control import hold_run
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.workspace import Workspace
from aegish_dist.settings import load_settings
from tests.cluster import DEADLINE_S, Cluster, Simulator, run_json, started
from tests.services import wait_until

MODEL, LIMITED = "simulated/careful", "simulated/hasty"
LATENCY = "constant:0.5"
CALLS = ("--concurrency", "20")
LIMIT = 120
STOPS_WITHIN_S = 1.0
PREFETCHED = 20  # messages that a worker of so many calls may return after the others were dropped


def hold(env: Mapping[str, str], simulator: Simulator, run_id: str, reason: RunPause) -> None:
    """Hold a run without the time that a command takes to start, and check that calls end."""
    names = ("database_url", "broker_url", "home")
    values = {name: env.get(f"AEGISH_DIST_{name.upper()}") for name in names}
    with Workspace(load_settings({k: v for k, v in values.items() if v})) as workspace:
        found = find_run(workspace.engine, run_id)
        assert hold_run(workspace, found, reason).held is reason
    time.sleep(STOPS_WITHIN_S)
    began = simulator.calls()
    time.sleep(0.7)
    assert simulator.calls() == began, "a call that began a second after the pause"


def test_a_pause_with_a_kill_loses_nothing_and_pays_for_nothing_twice(cluster: Cluster) -> None:
    """Two workers stop within a second, one was killed; then each item gets one verdict.

    Only the calls that the killed one had in flight are made again. An extension, which the workers
    learn of while they know the run, is asked once.
    """
    cluster.simulator.start(latency=LATENCY)
    workers = cluster.start_workers(2, *CALLS)
    run_id = cluster.submit(MODEL, limit=LIMIT)
    cluster.wait_for_calls(45)

    workers[0].kill()
    hold(cluster.env, cluster.simulator, run_id, RunPause.PAUSED)
    wait_until(lambda: cluster.status(run_id).held, "the calls in flight to end", DEADLINE_S)
    stopped, calls = cluster.status(run_id), cluster.simulator.calls()
    repeated = calls - stopped.done
    assert stopped.state is State.PAUSED
    assert 0 <= repeated <= 20
    assert cluster.resume(run_id) == LIMIT - stopped.done
    more = f"--models {LIMITED} --skip-preflight --wait"
    extended = run_json(cluster.env, f"extend --run-id {run_id} {more}")

    assert (extended["tasks"], extended["missing"]) == (LIMIT, 0)
    assert len(cluster.verdicts(run_id)) == 2 * LIMIT
    assert cluster.simulator.calls() == 2 * LIMIT + repeated


@pytest.mark.parametrize("cluster", ["rabbitmq"], indirect=True)
def test_a_cancelled_run_on_rabbitmq(cluster: Cluster) -> None:
    """Its messages are dropped, its calls in flight are stored, and it can be resumed."""
    cluster.simulator.start(latency=LATENCY)
    cluster.start_workers(1, *CALLS)
    run_id = cluster.submit(MODEL, LIMITED, limit=60)
    cluster.wait_for_calls(25)
    hold(cluster.env, cluster.simulator, run_id, RunPause.CANCELLED)
    wait_until(lambda: cluster.status(run_id).held, "the calls in flight to end", DEADLINE_S)
    stopped = cluster.status(run_id)
    assert stopped.done == cluster.simulator.calls() < 120
    assert cluster.waiting(run_id, MODEL, LIMITED) <= PREFETCHED
    run_json(cluster.env, "resume --run-id", run_id)
    cluster.wait_until_complete(run_id)
    assert len(cluster.verdicts(run_id)) == cluster.simulator.calls() == 120


def test_a_run_that_another_process_works_on(alone: dict[str, str], simulator: Simulator) -> None:
    """Without servers, `pause` ends the `submit` that runs elsewhere; `resume` does the rest."""
    simulator.start(latency=LATENCY)
    asked = f"--models {MODEL} --dataset harmless --limit 150 --name mine --skip-preflight"
    with started(alone, f"submit {asked}") as submit:
        wait_until(lambda: simulator.calls() >= 30, "30 calls", DEADLINE_S)
        hold(alone, simulator, "mine", RunPause.PAUSED)
        _, messages = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 1, messages
    assert "paused: `aegish-dist resume" in messages
    paused = run_json(alone, "status")
    assert (paused["state"], paused["done"]) == ("paused", simulator.calls())
    assert simulator.calls() < 150
    assert run_json(alone, "resume --run-id mine")["missing"] == 0
    assert simulator.calls() == 150
