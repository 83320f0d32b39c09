"""Every row of one run is mutated while a worker asks another one."""

import re

import pytest

from tests.bad_rows import mutated, mutations
from tests.cluster import DEADLINE_S, Cluster, run
from tests.services import wait_until

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
OURS = {"prompts"}  # the other run has the same


def test_a_worker_goes_on_whatever_the_rows_of_another_run_hold(cluster: Cluster) -> None:
    """Its heartbeat and its look for runs outlive every mutation, and the other run completes."""
    cluster.simulator.start(latency="constant:0.5")
    bad = cluster.submit(MODEL, "simulated/lenient", limit=30)
    worker = cluster.start_worker("-c", "4")
    wait_until(lambda: cluster.status(bad).done > 0, "a verdict", DEADLINE_S)
    good = cluster.submit(MODEL, limit=100)
    taken = 0
    for mutation in [each for each in mutations(cluster.engine, bad) if each.table not in OURS]:
        with mutated(cluster.engine, bad, mutation) as was_taken:
            taken += was_taken
    assert taken > 300
    cluster.wait_until_complete(good)
    cluster.wait_for_workers(1)
    assert worker.poll() is None
    for line in ("runs", f"status --run-id {good}", f"report --run-id {good}"):
        run(cluster.env, line)
    failed = r"(\w*_failed|heartbeat_fails|Traceback)"
    assert re.findall(failed, cluster.log()) == []
