"""What a worker listens to, as runs open and finish, on the in-memory broker."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.consumer import Consumer
from redis.exceptions import OutOfMemoryError
from sqlalchemy.exc import SQLAlchemyError

from aegish_dist.broker.app import create_app
from aegish_dist.broker.messages import IDLE_QUEUE, queue_name
from aegish_dist.broker.producer import publish
from aegish_dist.core.model import Destination
from aegish_dist.core.verdict import Item
from aegish_dist.db.missing import FinishedModels, OpenModel
from workers import discovery

MODEL = "discovery/guard"
FIRST, SECOND = (queue_name(MODEL, run) for run in ("run1", "run2"))


class FakeConsumer(SimpleNamespace):
    """What of Celery's consumer discovery needs."""

    add_task_queue = Consumer.add_task_queue
    cancel_task_queue = Consumer.cancel_task_queue


@pytest.fixture
def consumer() -> Iterator[Any]:
    """A consumer that listens to nothing but the queue without messages."""
    app = create_app("memory://localhost/", database_url="")
    with app.connection_for_read() as connection:
        yield FakeConsumer(app=app, task_consumer=app.amqp.TaskConsumer(connection))


def follow(consumer: Any, *queues: str, stopped: bool = False) -> None:
    """Have it listen to these queues."""
    event = threading.Event()
    if stopped:
        event.set()
    discovery.follow(consumer, frozenset(queues), event)


def listened(consumer: Any) -> set[str]:
    """Return what it listens to, the same in what is kept and in what is told the broker."""
    kept = set(consumer.app.amqp.queues.consume_from)
    assert {queue.name for queue in consumer.task_consumer.queues} == kept
    return kept - {IDLE_QUEUE}


def test_queues_of_runs_come_and_go(consumer: Any) -> None:
    """The queue of a finished run is left, and forgotten; opened again, it is listened to again."""
    follow(consumer, FIRST, SECOND)
    assert listened(consumer) == {FIRST, SECOND}

    follow(consumer, SECOND)
    assert listened(consumer) == {SECOND}
    assert FIRST not in consumer.app.amqp.queues

    follow(consumer, FIRST, SECOND)
    assert listened(consumer) == {FIRST, SECOND}


def test_a_queue_with_messages_is_not_left(consumer: Any) -> None:
    """What was delivered twice is taken out before."""
    follow(consumer, FIRST)
    publish(consumer.app, [Item("run1", MODEL, 1)])

    follow(consumer)
    assert listened(consumer) == {FIRST}

    consumer.task_consumer.purge()
    follow(consumer)
    assert listened(consumer) == set()


def test_queues_of_other_kinds_stay(consumer: Any) -> None:
    """Discovery leaves alone what it does not find."""
    consumer.add_task_queue("elsewhere")

    follow(consumer, FIRST)
    follow(consumer)

    assert listened(consumer) == {"elsewhere"}


def test_a_throttled_queue_is_left(consumer: Any) -> None:
    """A queue that is not consumed for the moment is neither consumed nor kept."""
    follow(consumer, FIRST)
    consumer.task_consumer.cancel_by_queue(FIRST)

    follow(consumer, FIRST)
    assert not consumer.task_consumer.consuming_from(FIRST)

    follow(consumer)
    assert listened(consumer) == set()


def test_what_an_earlier_connection_found(consumer: Any) -> None:
    """It comes too late."""
    follow(consumer, FIRST)

    follow(consumer, SECOND, stopped=True)

    assert listened(consumer) == {FIRST}


def test_a_look_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in one look for runs, the next one is made."""
    looks = iter(
        [
            SQLAlchemyError("away"),
            ValueError("a bug"),
            {FIRST: OpenModel("run1", MODEL, Destination("baseline", "", None))},
        ]
    )
    found: list[Any] = []
    step = discovery.QueueDiscovery(None)
    stopped = threading.Event()

    def look(_session: Any) -> Any:
        result = next(looks)
        if isinstance(result, Exception):
            raise result
        return result

    def call_soon(callback: Any) -> None:
        found.append(callback.args[1])
        stopped.set()

    monkeypatch.setattr(discovery, "open_queues", look)
    monkeypatch.setattr(FinishedModels, "close", lambda _self, _session: None)
    monkeypatch.setattr(discovery, "RETRY_S", 0.0)
    monkeypatch.setattr(discovery, "RETRY_AFTER_BUG_S", 0.0)
    app = create_app("memory://localhost/", database_url="postgresql://nowhere/db")
    controller = SimpleNamespace(pins=frozenset())
    step._watch(FakeConsumer(app=app, controller=controller, call_soon=call_soon), stopped)

    assert found == [frozenset({FIRST})]


def test_a_broker_that_refuses(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker lives, and listens as soon as the broker lets it."""
    step = discovery.QueueDiscovery(consumer)
    refusals = iter([OutOfMemoryError("OOM command not allowed")])
    declare = consumer.add_task_queue

    def add_task_queue(name: str) -> None:
        for refusal in refusals:
            raise refusal
        declare(name)

    monkeypatch.setattr(discovery, "RETRY_S", 0.0)
    consumer.add_task_queue = add_task_queue
    step._follow(consumer, frozenset({FIRST}), threading.Event())
    assert listened(consumer) == set()

    step._follow(consumer, frozenset({FIRST}), threading.Event())
    assert listened(consumer) == {FIRST}
