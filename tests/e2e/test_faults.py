"""A provider that fails in every way it knows, and what becomes of the items."""

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.db.fleet import living_fleet
from tests.cluster import DEADLINE_S, Cluster
from tests.services import wait_until

pytestmark = pytest.mark.long

RETRY_AFTER_S = 1.2
SCENARIO = f"""
seed = 7
latency = "constant:0"

[faults]
retry_after_s = {RETRY_AFTER_S}
rate_limit = 0.04
server_error = 0.04
overloaded = 0.04
reset = 0.04
malformed = 0.04
truncated = 0.04

[models.locked.faults]
auth = 1.0
"""
PROVIDERS = ("simulated", "simulated-anthropic", "simulated-google")
ERROR_CLASSES = {
    "rate_limit": ErrorClass.RATE_LIMIT,
    "server_error": ErrorClass.SERVER,
    "overloaded": ErrorClass.OVERLOADED,
    "reset": ErrorClass.CONNECTION,
    "truncated": ErrorClass.CONNECTION,
    "malformed": ErrorClass.MALFORMED,
}
"""Sign of each passing fault in the log."""


@pytest.fixture
def cluster(cluster: Cluster, tmp_path: Path) -> Cluster:
    """One worker and a provider that follows the scenario."""
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    cluster.simulator.start("--scenario", str(scenario))
    cluster.start_worker()
    return cluster


ACTIONS = {Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK}


def test_passing_faults(cluster: Cluster) -> None:
    """Faults that pass are tried again until an answer comes, and every attempt is on record."""
    models = [f"{provider}/shaky-{provider}" for provider in PROVIDERS]
    run_id = cluster.submit(*models, limit=40)
    cluster.wait_until_complete(run_id)
    verdicts = [recording.verdict for recording in cluster.verdicts(run_id)]

    assert len(verdicts) == 3 * 40
    assert all(verdict.completion is not None for verdict in verdicts)
    assert sum(verdict.attempts for verdict in verdicts) == cluster.simulator.calls()
    errors = [error for verdict in verdicts for error in verdict.call_errors]
    struck = Counter[ErrorClass]()
    for fault, times in cluster.simulator.stats()["faults"].items():
        struck[ERROR_CLASSES[fault]] += times
    assert Counter(error.error_class for error in errors) == struck
    assert set(struck) == set(ERROR_CLASSES.values())
    assert {e.retry_after_s for e in errors if e.error_class is ErrorClass.RATE_LIMIT} == {
        RETRY_AFTER_S
    }
    for verdict in verdicts:
        assert [error.attempt for error in verdict.call_errors] == [*range(1, verdict.attempts)]
        asked_s = sum(error.retry_after_s or 0.0 for error in verdict.call_errors)
        backoff_ms = verdict.timing.backoff_ms
        assert backoff_ms is not None
        assert (backoff_ms > 0) == (verdict.attempts > 1)
        assert backoff_ms >= asked_s * 1000


def test_a_refused_key(cluster: Cluster) -> None:
    """It is no verdict: the model is parked with the provider's words, and when the key is right
    every command is called once more.
    """
    models = [f"{provider}/locked" for provider in PROVIDERS]
    run_id = cluster.submit(*models, limit=20)

    def parked() -> dict[str, str | None]:
        with Session(cluster.engine) as session:
            fleet = living_fleet(session)
        return {model: fleet.reason(run_id, model) for (_, model) in fleet.halts}

    wait_until(lambda: len(parked()) == 3, "three parked models", DEADLINE_S)
    assert all((words or "").startswith("HTTP 401: ") for words in parked().values())
    assert cluster.verdicts(run_id) == []
    assert cluster.simulator.calls() <= 3 * (20 + 20)
    cluster.simulator.stop()
    cluster.simulator.start("--latency", "constant:0")
    cluster.resume(run_id)
    cluster.wait_until_complete(run_id)

    assert {recording.verdict.outcome for recording in cluster.verdicts(run_id)} <= ACTIONS
    assert cluster.simulator.calls() == 3 * 20
