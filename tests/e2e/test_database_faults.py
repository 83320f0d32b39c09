"""A database that fails in the middle of a run, and what becomes of answers that are paid for."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from aegish_dist.db.engine import open_engine
from tests.e2e.cluster import DEADLINE_S, Cluster
from tests.services import wait_until

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
ITEMS = 200


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """Have every session of the server refuse to write, those that are open too."""
    engine = open_engine(url).execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("SET default_transaction_read_only = off"))
        try:
            connection.execute(text("ALTER SYSTEM SET default_transaction_read_only = on"))
            connection.execute(text("SELECT pg_reload_conf()"))
            yield
        finally:
            connection.execute(text("ALTER SYSTEM RESET default_transaction_read_only"))
            connection.execute(text("SELECT pg_reload_conf()"))
    engine.dispose()


def test_database_that_takes_no_writes(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    """The run ends by itself, and no command is paid for twice: answers wait to be stored."""
    with Cluster(tmp_path, postgres_url, redis_url) as cluster:
        cluster.env["AEGISH_DIST_CONCURRENCY"] = "20"
        cluster.simulator.start("--latency", "constant:0.2")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        worker = cluster.start_worker()
        cluster.wait_for_calls(40)
        with read_only(postgres_url):
            wait_until(lambda: "database_fails" in cluster.log(), "a refused insert")
            wait_until(lambda: cluster.simulator.stats()["in_flight"] == 0, "calls to end")
            called = cluster.simulator.calls()
            wait_until(lambda: cluster.log().count("database_fails") >= 4, "a few more tries")
            assert cluster.simulator.calls() == called < ITEMS
        cluster.wait_until_complete(run_id)

        assert worker.poll() is None
        assert cluster.simulator.calls() == ITEMS
        assert len(cluster.verdicts(run_id)) == ITEMS


def test_worker_that_ends_while_the_database_takes_no_writes(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    """It leaves its answers in a file, and the next start stores them: none is paid for twice."""
    with Cluster(tmp_path, postgres_url, redis_url) as cluster:
        spool = tmp_path / "spool"
        cluster.env["AEGISH_DIST_CONCURRENCY"] = "20"
        cluster.env["AEGISH_DIST_SHUTDOWN_GRACE_S"] = "2"
        cluster.env["AEGISH_DIST_SPOOL"] = str(spool)
        cluster.simulator.start("--latency", "constant:0.2")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        worker = cluster.start_worker()
        cluster.wait_for_calls(40)
        with read_only(postgres_url):
            wait_until(lambda: "database_fails" in cluster.log(), "a refused insert")
            wait_until(lambda: cluster.simulator.stats()["in_flight"] == 0, "calls to end")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(DEADLINE_S) == 0
            done = cluster.status(run_id).done
        (path,) = spool.iterdir()
        left = len(path.read_text().splitlines())
        assert 0 < left <= 25
        assert done + left == cluster.simulator.calls() < ITEMS
        assert f"answers={left}" in cluster.log()
        cluster.start_worker()
        cluster.wait_until_complete(run_id)

        assert cluster.simulator.calls() == ITEMS
        assert len(cluster.verdicts(run_id)) == ITEMS
        assert list(spool.iterdir()) == []


def test_messages_that_come_twice(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    """A worker calls for each item once, whether its copies come together or one after another."""
    with Cluster(tmp_path, postgres_url, redis_url) as cluster:
        cluster.env["AEGISH_DIST_CONCURRENCY"] = "40"
        cluster.simulator.start("--latency", "constant:0.3")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        again = cluster.missing(run_id)
        cluster.publish([item for item in again for _ in range(2)])
        cluster.start_worker()
        cluster.wait_until_complete(run_id)
        wait_until(lambda: cluster.waiting(run_id, MODEL) == 0, "all copies to be taken")

        assert cluster.simulator.calls() == ITEMS


def test_worker_that_ends_while_its_statements_hang(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    """SIGTERM is obeyed within the grace and some seconds, whatever the database threads wait for."""
    with Cluster(tmp_path, postgres_url, redis_url) as cluster:
        spool = tmp_path / "spool"
        cluster.env["AEGISH_DIST_CONCURRENCY"] = "20"
        cluster.env["AEGISH_DIST_SHUTDOWN_GRACE_S"] = "1"
        cluster.env["AEGISH_DIST_SPOOL"] = str(spool)
        cluster.simulator.start("--latency", "constant:0.2")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        worker = cluster.start_worker()
        cluster.wait_for_calls(40)
        with cluster.engine.connect() as holder:
            holder.execute(text("LOCK TABLE verdicts IN ACCESS EXCLUSIVE MODE"))
            wait_until(lambda: cluster.simulator.stats()["in_flight"] == 0, "calls to end")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(15) == 0
            assert "answers_kept_in_file" in cluster.log()
        cluster.start_worker()
        cluster.wait_until_complete(run_id)

        assert cluster.simulator.calls() == ITEMS
        assert len(cluster.verdicts(run_id)) == ITEMS
        assert list(spool.iterdir()) == []
