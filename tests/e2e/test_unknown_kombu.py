"""Workers with a kombu that was not tested: kombu's own transport, slower, and nothing is lost."""

import signal
from pathlib import Path

import pytest
import redis

from tests.e2e.cluster import DEADLINE_S, Cluster, run_json
from tests.services import wait_until

MODEL = "simulated/careful"
ITEMS = 120

NEWER_VERSION = 'import kombu\nkombu.__version__ = "5.9.0"\n'
ANOTHER_SIGNATURE = """
from kombu.transport.redis import Channel

start = Channel._brpop_start
Channel._brpop_start = lambda self, timeout=None, keys=(): start(self, timeout)
"""


@pytest.mark.parametrize("kombu", [NEWER_VERSION, ANOTHER_SIGNATURE], ids=["version", "signature"])
def test_a_run_on_an_unknown_kombu(
    tmp_path: Path, postgres_url: str, redis_url: str, kombu: str
) -> None:
    """A killed worker's items come with `resume`, a stopped one's by themselves; each counts once.

    Each process logs one line.
    """
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(kombu)
    with (
        Cluster(tmp_path, postgres_url, redis_url) as cluster,
        redis.Redis.from_url(redis_url) as server,
    ):
        cluster.env |= {"PYTHONPATH": f"{site}:.", "AEGISH_DIST_CONCURRENCY": "20"}
        cluster.simulator.start("--latency", "constant:0.3")
        run_id = cluster.submit(MODEL, limit=ITEMS)
        killed = cluster.start_worker()
        cluster.wait_for_calls(20)
        killed.kill()
        killed.wait(DEADLINE_S)
        held = server.hlen("unacked")
        assert held > 0

        stopped = cluster.start_worker()
        calls = cluster.simulator.calls()
        cluster.wait_for_calls(calls + 20)
        stopped.send_signal(signal.SIGTERM)
        assert stopped.wait(DEADLINE_S) == 0
        assert server.hlen("unacked") == held

        cluster.start_worker()
        wait_until(lambda: cluster.waiting(run_id, MODEL) == 0, "an empty queue", DEADLINE_S)
        wait_until(lambda: server.hlen("unacked") == held, "acknowledgements", DEADLINE_S)
        lost = cluster.missing(run_id)
        assert 0 < len(lost) <= held + 1  # one more may be on its way from the queue
        assert run_json(cluster.env, "resume", "--run-id", run_id)["enqueued"] == len(lost)
        cluster.wait_until_complete(run_id)

        assert len(cluster.verdicts(run_id)) == ITEMS
        assert ITEMS <= cluster.simulator.calls() <= ITEMS + len(lost)
        assert cluster.log().count("kombu_not_tested") == 3
