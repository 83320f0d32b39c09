"""Workers that are stopped and servers that refuse writes in the middle of a run: what was paid for stays."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.cluster import Cluster

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
ITEMS = 200


@contextmanager
def hanging(cluster: Cluster) -> Iterator[None]:
    """Have every statement about verdicts wait."""
    with cluster.engine.connect() as holder:
        holder.execute(text("LOCK TABLE verdicts IN ACCESS EXCLUSIVE MODE"))
        yield


def begin(cluster: Cluster) -> tuple[str, "subprocess.Popen[bytes]"]:
    """Start a run and a worker; return when it is in the middle of the calls."""
    cluster.set(concurrency=20)
    cluster.simulator.start(latency="constant:0.2")
    run_id = cluster.submit(MODEL, limit=ITEMS)
    worker = cluster.start_worker()
    cluster.wait_for_calls(40)
    return run_id, worker


def test_worker_that_ends_while_it_cannot_store(cluster: Cluster, tmp_path: Path) -> None:
    """SIGTERM is obeyed in time, answers are left in a file, and the next start stores them."""
    spool = tmp_path / "spool"
    cluster.set(shutdown_grace_s=2, spool=spool)
    run_id, worker = begin(cluster)
    with hanging(cluster):
        cluster.wait_until_idle()
        worker.terminate()
        assert worker.wait(16) == 0
    done = cluster.status(run_id).done
    (path,) = spool.iterdir()
    left = len(path.read_text().splitlines())
    assert 0 < left <= 25
    assert done + left == cluster.simulator.calls() < ITEMS
    assert f"answers={left}" in cluster.log()
    cluster.start_worker()
    cluster.wait_until_complete(run_id)
    assert cluster.simulator.calls() == len(cluster.verdicts(run_id)) == ITEMS
    assert list(spool.iterdir()) == []
