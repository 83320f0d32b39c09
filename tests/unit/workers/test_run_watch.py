"""The queues that a worker listens to, as runs open and finish, on the in-memory broker."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.consumer import Consumer
from msgspec.structs import replace
from redis.exceptions import OutOfMemoryError
from sqlalchemy.exc import SQLAlchemyError

from aegish_dist.broker.app import process_of
from aegish_dist.broker.client import publish
from aegish_dist.broker.messages import AGGREGATION_QUEUE, IDLE_QUEUE, pin_name, queue_name
from aegish_dist.core.model import Destination
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import RunChanges
from aegish_dist.db.missing import OpenModel
from tests.services import queue_application
from workers import run_watch
from workers.lifecycle import Readiness

MODEL = "discovery/guard"
FIRST, SECOND = (queue_name(MODEL, run) for run in ("run1", "run2"))


class FakeConsumer(SimpleNamespace):
    """The parts of Celery's consumer that discovery uses."""

    cancel_task_queue = Consumer.cancel_task_queue


class NothingAnnounced(RunChanges):
    """A database that is asked again and again."""

    def wait(self, seconds: float) -> bool:
        return False


@pytest.fixture
def consumer() -> Iterator[Any]:
    app = queue_application(None)
    with app.connection_for_read() as connection:
        pool = SimpleNamespace(
            readiness=Readiness(),
            evaluator=SimpleNamespace(begun=[], in_flight={}),
            aggregates=True,
        )
        pool.runs_changed = lambda _announced: None
        tasks = app.amqp.TaskConsumer(connection)
        yield FakeConsumer(app=app, task_consumer=tasks, pool=pool)


def follow(consumer: Any, *queues: str, stopped: bool = False) -> None:
    event = threading.Event()
    if stopped:
        event.set()
    run_watch.follow(consumer, frozenset(queues), frozenset(), event)


def listened(consumer: Any) -> set[str]:
    kept = set(consumer.app.amqp.queues.consume_from)
    assert {queue.name for queue in consumer.task_consumer.queues} == kept
    return kept - {IDLE_QUEUE, AGGREGATION_QUEUE}


def test_queues_of_runs_come_and_go(consumer: Any) -> None:
    follow(consumer, FIRST, SECOND)
    assert listened(consumer) == {FIRST, SECOND}
    follow(consumer, SECOND)
    assert listened(consumer) == {SECOND}
    assert FIRST not in consumer.app.amqp.queues
    follow(consumer, FIRST, SECOND)
    assert listened(consumer) == {FIRST, SECOND}


def test_a_queue_with_messages_is_not_left(consumer: Any) -> None:
    """Messages that were delivered twice are taken out before."""
    follow(consumer, FIRST)
    publish(consumer.app, [Item("run1", MODEL, 1)])
    follow(consumer)
    assert listened(consumer) == {FIRST}
    consumer.task_consumer.purge()
    follow(consumer)
    assert listened(consumer) == set()


def test_queues_of_other_kinds_stay(consumer: Any) -> None:
    consumer.app.amqp.queues.select_add("elsewhere")
    consumer.task_consumer.add_queue(consumer.app.amqp.queues["elsewhere"])
    consumer.task_consumer.consume()
    follow(consumer, FIRST)
    follow(consumer)
    assert listened(consumer) == {"elsewhere"}


def test_a_throttled_queue_is_left(consumer: Any) -> None:
    follow(consumer, FIRST)
    consumer.task_consumer.cancel_by_queue(FIRST)
    follow(consumer, FIRST)
    assert not consumer.task_consumer.consuming_from(FIRST)
    follow(consumer)
    assert listened(consumer) == set()


def test_what_an_earlier_connection_found(consumer: Any) -> None:
    follow(consumer, FIRST)
    follow(consumer, SECOND, stopped=True)
    assert listened(consumer) == {FIRST}


def found(*queues: str) -> dict[str, OpenModel]:
    return {queue: OpenModel("run1", MODEL, Destination("baseline", "", None)) for queue in queues}


@contextmanager
def discovering(
    consumer: Any, monkeypatch: pytest.MonkeyPatch, *looks: Any, pins: frozenset[str] = frozenset()
) -> Iterator[Callable[[], None]]:
    """Run discovery on a store that gives these results, the last one without end.

    Yields a function that waits for the next result and has the consumer follow it.
    """
    results = chain(looks[:-1], repeat(looks[-1]))
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def look(_session: Any) -> Any:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(run_watch, "open_queues", look)
    monkeypatch.setattr(run_watch, "RunChanges", NothingAnnounced)
    for pause in ("LOOK_S", "RETRY_S", "RETRY_AFTER_BUG_S"):
        monkeypatch.setattr(run_watch, pause, 0.0)
    process_of(consumer.app).database_url = "postgresql://nowhere/db"
    consumer.controller = SimpleNamespace(pins=pins)
    consumer.call_soon = calls.put
    step = run_watch.RunWatch(consumer)
    step.start(consumer)

    def follow_next() -> None:
        calls.get(timeout=5)()

    try:
        yield follow_next
    finally:
        step.stop(consumer)
        for thread in threading.enumerate():
            if thread.name == "aegish-runs":  # it would take a result of the next test
                thread.join(timeout=5)


def test_a_look_that_fails(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = (SQLAlchemyError("away"), ValueError("a bug"), found(FIRST))
    with discovering(consumer, monkeypatch, *looks) as follow_next:
        follow_next()
        assert listened(consumer) == {FIRST}


def test_pins_say_which_models_are_called(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of one model, and one of none, takes aggregations as every other one does."""
    for pins, models in ((pin_name("discovery/other"), set()), (pin_name(MODEL), {FIRST})):
        pinned = frozenset({pins})
        with discovering(consumer, monkeypatch, found(FIRST), pins=pinned) as follow_next:
            for _ in range(3):
                follow_next()
            assert listened(consumer) == models
            assert AGGREGATION_QUEUE in consumer.app.amqp.queues.consume_from


def test_the_queue_of_a_held_run_is_left_with_its_messages(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {name: replace(each, held=True) for name, each in found(FIRST).items()}
    looks = (found(FIRST, SECOND), found(SECOND) | held, found(FIRST))
    with discovering(consumer, monkeypatch, *looks) as follow_next:
        follow_next()
        publish(consumer.app, [Item("run1", MODEL, 1)])
        follow_next()
        assert listened(consumer) == {SECOND}
        follow_next()
        assert listened(consumer) == {FIRST}


@pytest.mark.parametrize("step", ["add_queue", "consume"])
def test_a_broker_that_refuses(consumer: Any, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    refusals = iter([OutOfMemoryError("OOM command not allowed")])
    listen = getattr(consumer.task_consumer, step)

    def refuse(*queues: Any) -> None:
        for refusal in refusals:
            raise refusal
        listen(*queues)

    monkeypatch.setattr(consumer.task_consumer, step, refuse)
    with discovering(consumer, monkeypatch, found(FIRST)) as follow_next:
        follow_next()
        assert FIRST not in consumer.app.amqp.queues.consume_from
        follow_next()
        assert listened(consumer) == {FIRST}
