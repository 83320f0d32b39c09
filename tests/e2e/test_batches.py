"""Runs that are asked in batches by real workers, of which one is killed."""

import pytest

from aegish_dist.core.status import RunStatus
from tests.cluster import BATCH_SERVER, DEADLINE_S, Cluster
from tests.services import wait_until

pytestmark = pytest.mark.long

MODELS = ("simulated/careful", "simulated-anthropic/lenient")
LIMIT = 60


def live_first(status: RunStatus) -> bool:
    return any(model.batches and model.batches.open for model in status.models)


def test_live_first_and_the_rest_in_batches(cluster: Cluster) -> None:
    """Each item is asked once, live or in a batch, although a worker is killed over its batches."""
    cluster.set(batch_poll_s=0.3)
    cluster.simulator.program = BATCH_SERVER
    cluster.simulator.start(latency="constant:1", scenario='batches.duration = "constant:3"')
    workers = cluster.start_workers(2, "--concurrency", "4")
    run_id = cluster.submit(*MODELS, limit=LIMIT, options="--batch-after 2s")

    wait_until(lambda: live_first(cluster.status(run_id)), "an open batch", DEADLINE_S)
    workers[0].kill()
    cluster.wait_until_complete(run_id)

    verdicts = cluster.verdicts(run_id)
    bill = cluster.simulator.stats()["bill"]
    asked = {m: (each["live"], each["batch"]) for m, each in bill["models"].items()}
    live = sum(live["requests"] for live, _ in asked.values())
    batched = sum(batch["requests"] for _, batch in asked.values())
    assert 0 < live < 2 * LIMIT
    assert live + batched == len(verdicts) == 2 * LIMIT
    assert (bill["charged_twice"], bill["tokens_used_twice"]) == (0, [])
    untimed = [each for each in verdicts if each.verdict.timing.service_ms is None]
    assert len(untimed) == batched
    assert cluster.waiting(run_id, *MODELS) == 0
