"""A stranger writes to the broker: none of it ends a worker, stays, or is executed."""

import re
from collections import Counter
from typing import Any

import pytest
import redis
from celery import Celery

from aegish_dist.broker.messages import EVALUATE, queue_name
from aegish_dist.broker.redis_leases import UNACKED
from tests.cluster import DEADLINE_S, Cluster
from tests.forged import forged_messages
from tests.services import wait_until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("instant")]

MODEL = "simulated/besieged"
ITEMS = 30
UNKNOWN = 2  # forged messages that look like ours, but name items that no run plans
HEADERS: list[dict[str, Any]] = [
    {},
    {"task": {"of": "a map"}},
    {"task": ["a", "list"]},
    {"task": "celery.backend_cleanup"},
    {"task": EVALUATE, "compression": "zlib"},
    {"task": EVALUATE},
]
REFUSED = ["shutdown", "add_consumer", "cancel_consumer", "pool_grow", "pool_restart", "rate_limit"]
REFUSED += ["revoke", "terminate", "time_limit", "autoscale", "enable_events", "active_queues"]
REFUSED += ["conf", "stats", "election", "no_such_command"]


def test_forged_messages_in_redis(cluster: Cluster, redis_url: str) -> None:
    """Each is dropped with one line, and the items around them reach their verdicts.

    The worker survives what is published where Celery listens for commands as well.
    """
    run_id = cluster.submit(MODEL, limit=ITEMS)
    queue = queue_name(MODEL, run_id)
    forged = forged_messages(queue)
    with redis.Redis.from_url(redis_url) as server:
        server.lpush(queue, *forged)
        server.rpush(queue, *forged)
        worker = cluster.start_worker()
        wait_until(lambda: server.llen(queue) + server.hlen(UNACKED) == 0, "all", DEADLINE_S)
        cluster.wait_until_complete(run_id)
        log = cluster.log()
        for text in ["[]", "5", "{}", "no JSON", '{"properties": {}}', *forged_messages("x")]:
            assert server.publish("aegish:0:fanout:celery.pidbox", text) == 1

    wait_until(lambda: bool(cluster.app.control.ping(timeout=0.5)), "an answer", DEADLINE_S)
    assert worker.poll() is None
    assert len(cluster.verdicts(run_id)) == cluster.simulator.calls() == ITEMS
    said = Counter(re.findall("message_dropped|message_unreadable|unknown_item", log))
    # Copies of an unknown item that are held together are looked up, and named, once.
    unknown = said.pop("unknown_item")
    assert said.total() == 2 * (len(forged) - UNKNOWN)
    assert 1 <= unknown <= 2 * UNKNOWN
    assert "Traceback" not in log


@pytest.mark.parametrize("cluster", ["rabbitmq"], indirect=True)
def test_forged_messages_in_rabbitmq(cluster: Cluster) -> None:
    run_id = cluster.submit(MODEL, limit=ITEMS)
    with cluster.app.connection_for_write() as connection:
        for headers in HEADERS:
            for body in (b"", b"\xff", b"[]", b"{}", b'[["run", 1], {}, {}]'):
                connection.Producer().publish(
                    body,
                    routing_key=queue_name(MODEL, run_id),
                    headers=headers,
                    content_type="application/json",
                    content_encoding="utf-8",
                )
    worker = cluster.start_worker()
    cluster.wait_until_complete(run_id)
    wait_until(lambda: cluster.waiting(run_id, MODEL) == 0, "all", DEADLINE_S)
    assert worker.poll() is None
    assert len(cluster.verdicts(run_id)) == cluster.simulator.calls() == ITEMS
    assert "Traceback" not in cluster.log()


@pytest.mark.parametrize("cluster", ["redis", "rabbitmq"], indirect=True)
def test_remote_commands(cluster: Cluster) -> None:
    """A worker answers a ping and obeys nothing else, command or none, and goes on working."""
    (worker,) = cluster.start_workers(1)
    app = cluster.app
    wait_until(lambda: bool(app.control.ping(timeout=0.5)), "an answer", DEADLINE_S)
    for command in REFUSED:
        (answer,) = _reply(app, command).values()
        assert answer["error"].startswith("not accepted: ")
    with app.connection_for_write() as connection:
        producer = connection.Producer(exchange=app.control.mailbox.exchange(connection))
        hostile: list[Any] = [{"method": ["ping"], "destination": 5}, [], "x", {"method": {}}]
        for each in hostile:
            producer.publish(each, serializer="json")
    run_id = cluster.submit(MODEL, limit=ITEMS)
    cluster.wait_until_complete(run_id)
    assert worker.poll() is None
    refused = list(re.findall(r"remote_command_refused.*?'(\w+)'", cluster.log()))
    assert refused == REFUSED


def _reply(app: Celery, command: str) -> dict[str, Any]:
    """Return a worker's answer; on a busy machine single replies failed to arrive, cause unknown."""
    replies: list[dict[str, Any]] = []

    def answered() -> bool:
        arguments = {"queue": "celery"}
        replies.extend(app.control.broadcast(command, arguments, reply=True, limit=1) or ())
        return bool(replies)

    wait_until(answered, f"an answer to {command}", DEADLINE_S)
    return replies[0]
