"""Workers that are stopped and servers that refuse writes in the middle of a run: what was paid for stays."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.cluster import Cluster
from tests.services import as_superuser, opened

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
ITEMS = 200


@contextmanager
def read_only(cluster: Cluster) -> Iterator[None]:
    """Have every session of the server refuse to write, those that are open too."""
    url = as_superuser(cluster.engine.url.render_as_string(hide_password=False))
    with opened(url) as engine, engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(text("SET default_transaction_read_only = off"))
        try:
            connection.execute(text("ALTER SYSTEM SET default_transaction_read_only = on"))
            connection.execute(text("SELECT pg_reload_conf()"))
            yield
        finally:
            connection.execute(text("ALTER SYSTEM RESET default_transaction_read_only"))
            connection.execute(text("SELECT pg_reload_conf()"))
            connection.invalidate()


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


@pytest.mark.parametrize("fault", [read_only, hanging])
def test_worker_that_ends_while_it_cannot_store(
    cluster: Cluster, tmp_path: Path, fault: Callable[[Cluster], AbstractContextManager[None]]
) -> None:
    """SIGTERM is obeyed in time, answers are left in a file, and the next start stores them."""
    spool = tmp_path / "spool"
    cluster.set(shutdown_grace_s=2, spool=spool)
    run_id, worker = begin(cluster)
    with fault(cluster):
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
