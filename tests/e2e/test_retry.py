"""Asking again what ended in an outcome, with and without a broker."""

from pathlib import Path

import pytest

from aegish_dist.core.outcome import Outcome
from tests.cluster import Cluster, Simulator, environment, run, run_json

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
LIMIT = 9  # empty answers in a row that do not park the model
MUTE = "[models.careful.faults]\nempty = 1.0\n"
"""Every answer is empty, which is the model's own TIMEOUT_ERROR for so few of them."""
AGAIN = ("--outcome", "timeout_error,format_error")


def speak(simulator: Simulator) -> None:
    """Have the provider answer from now on."""
    simulator.stop()
    simulator.start()


def test_without_a_broker_retry_asks_in_its_own_process(simulator: Simulator, home: Path) -> None:
    """Every item is asked once more, the newest answers count, and a third time there is nothing."""
    simulator.start(scenario=MUTE)
    env = environment(home=home, catalog=simulator.catalog)
    asked = ("--models", MODEL, "--dataset", "harmless", "--limit", str(LIMIT))
    run(env, "submit", *asked)
    speak(simulator)
    retried = run_json(env, "retry", "--run-id", "latest", *AGAIN)
    calls = simulator.calls()
    again = run_json(env, "retry", "--run-id", "latest", *AGAIN)
    assert (retried["generation"], retried["asked"], retried["missing"]) == (1, LIMIT, 0)
    assert (again["generation"], again["asked"]) == (None, 0)
    assert simulator.calls() == calls == LIMIT
    status = run_json(env, "status", "--run-id", "latest")
    assert (status["state"], status["replaced"]) == ("complete", LIMIT)
    assert status["outcomes"].keys() <= {"ALLOW", "WARN", "BLOCK"}
    (entry,) = run_json(env, "aggregate", "--run-id", "latest")["models"]
    assert (entry["counts"]["done"], entry["counts"]["replaced"]) == (LIMIT, LIMIT)


def test_workers_answer_a_retry_and_earlier_verdicts_stay(cluster: Cluster) -> None:
    cluster.simulator.start(scenario=MUTE)
    cluster.start_worker()
    run_id = cluster.submit(MODEL, limit=LIMIT)
    cluster.wait_until_complete(run_id)
    speak(cluster.simulator)
    retried = run_json(cluster.env, "retry", "--run-id", run_id, *AGAIN, "--wait")
    assert (retried["asked"], retried["missing"]) == (LIMIT, 0)
    assert cluster.simulator.calls() == LIMIT
    verdicts = cluster.verdicts(run_id)
    first = [each.verdict.outcome for each in verdicts if each.generation == 0]
    assert first == [Outcome.TIMEOUT_ERROR] * LIMIT
    assert len([each for each in verdicts if each.generation == 1]) == LIMIT


def test_resume_leaves_no_item_waiting_twice(cluster: Cluster) -> None:
    cluster.simulator.start(scenario=MUTE)
    run_id = cluster.submit(MODEL, limit=LIMIT)
    assert [cluster.resume(run_id) for _ in range(2)] == [LIMIT, LIMIT]
    assert cluster.waiting(run_id, MODEL) == LIMIT
