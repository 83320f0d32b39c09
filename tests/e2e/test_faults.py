"""A provider that fails in every way it knows, and what becomes of the items."""

from collections import Counter

import pytest

from aegish_dist.core.outcome import ErrorClass
from tests.cluster import Cluster
from tests.defined import defined

pytestmark = pytest.mark.long

RETRY_AFTER_S = 1.2
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


def test_passing_faults(cluster: Cluster) -> None:
    """Faults that pass are tried again until an answer comes, and every attempt is on record."""
    faults = "".join(f"{fault} = 0.04\n" for fault in ERROR_CLASSES)
    scenario = f"[faults]\nretry_after_s = {RETRY_AFTER_S}\n{faults}"
    cluster.simulator.start("--seed", "7", scenario=scenario)
    cluster.start_worker()
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
        backoff_ms = defined(verdict.timing.backoff_ms)
        assert (backoff_ms > 0) == (verdict.attempts > 1)
        assert backoff_ms >= asked_s * 1000
