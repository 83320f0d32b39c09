"""Asking again what ended in an outcome, with and without a broker."""

import pytest

from tests.cluster import Cluster, Simulator, run, run_json

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
LIMIT = 9  # empty answers in a row that do not park the model
MUTE = "[models.careful.faults]\nempty = 1.0\n"
"""Every answer is empty, which is the model's own TIMEOUT_ERROR for so few of them."""
AGAIN = "retry --outcome timeout_error,format_error --run-id"


def speak(simulator: Simulator) -> None:
    """Have the provider answer from now on."""
    simulator.stop()
    simulator.start()


def test_without_a_broker_retry_asks_in_its_own_process(
    simulator: Simulator, alone: dict[str, str]
) -> None:
    """Every item is asked once more, the newest answers count, and a third time there is nothing."""
    simulator.start(scenario=MUTE)
    run(alone, f"submit --models {MODEL} --dataset harmless --limit {LIMIT}")
    speak(simulator)
    retried = run_json(alone, AGAIN, "latest")
    calls = simulator.calls()
    again = run_json(alone, AGAIN, "latest")
    assert (retried["generation"], retried["asked"], retried["missing"]) == (1, LIMIT, 0)
    assert (again["generation"], again["asked"]) == (None, 0)
    assert simulator.calls() == calls == LIMIT
    status = run_json(alone, "status --run-id latest")
    assert (status["state"], status["replaced"]) == ("complete", LIMIT)
    assert status["outcomes"].keys() <= {"ALLOW", "WARN", "BLOCK"}
    (entry,) = run_json(alone, "aggregate --run-id latest")["models"]
    assert (entry["counts"]["done"], entry["counts"]["replaced"]) == (LIMIT, LIMIT)


def test_resume_leaves_no_item_waiting_twice(cluster: Cluster) -> None:
    cluster.simulator.start(scenario=MUTE)
    run_id = cluster.submit(MODEL, limit=LIMIT)
    assert [cluster.resume(run_id) for _ in range(2)] == [LIMIT, LIMIT]
    assert cluster.waiting(run_id, MODEL) == LIMIT
