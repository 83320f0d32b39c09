"""Publishing items to real brokers."""

import base64
import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import redis
from amqp.exceptions import PreconditionFailed
from celery import Celery
from kombu import Queue
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.broker import client
from aegish_dist.broker.app import process_of, run_queue
from aegish_dist.broker.client import BATCH, check_broker, drop_waiting, publish, queue_depths
from aegish_dist.broker.messages import ENQUEUED_AT, EVALUATE, queue_name
from aegish_dist.core.model import CallParameters
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import open_engine
from aegish_dist.db.runs import resolve_run_id
from aegish_dist.errors import QueueError, StoreError
from aegish_dist.pipeline.enqueue import enqueue_missing
from aegish_dist.pipeline.observer import Observer
from aegish_dist.pipeline.plan import RunPlan
from aegish_dist.pipeline.submit import submit
from tests.half_open import HalfOpenProxy
from tests.integration.samples import PROMPT
from tests.integration.stored_runs import a_model, row_counts
from tests.services import RabbitServer, RedisServer, free_port, queue_application, wait_until

DATABASE = "postgresql://user:hunter2@db.example/aegish"


def an_app(broker_url: str | None, **settings: str) -> Celery:
    return queue_application(broker_url, database_url=DATABASE, **settings)


@pytest.fixture(params=["redis", "rabbitmq", "quorum", "memory"])
def app(request: pytest.FixtureRequest) -> Iterator[Celery]:
    """An application with a broker of each kind."""
    quorum = {"queue_type": "quorum"} if request.param == "quorum" else {}
    broker = "rabbitmq" if quorum else request.param
    url = None if broker == "memory" else request.getfixturevalue(f"{broker}_url")
    with an_app(url, **quorum) as opened:
        yield opened


@pytest.fixture
def model() -> str:
    """A model, and so a queue, that no other test uses."""
    return f"test/{uuid.uuid4().hex}"


def take_all(app: Celery, queue: str) -> list[Any]:
    """Take the messages of a queue, in order, as a consumer gets them."""
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        return [channel.message_to_python(raw) for raw in iter(lambda: channel.basic_get(queue, no_ack=True), None)]  # fmt: skip


def test_every_item_arrives_in_the_queue_of_its_model(app: Celery, model: str) -> None:
    other = f"{model}-other"
    items = [Item("run", each, key) for key in range(BATCH + 1) for each in (model, other)]
    progress: list[int] = []
    published = publish(app, iter(items), progress.append)
    assert published == len(items) == 1002
    assert progress == [500, 1000, 1002]
    queues = [queue_name(model, "run"), queue_name(other, "run")]
    new = queue_name(model, "new")
    assert queue_depths(app, [*queues, new]) == {**dict.fromkeys(queues, 501), new: 0}
    assert (publish(app, []), queue_depths(app, [])) == (0, {})


def test_what_waits_can_be_dropped(app: Celery, model: str) -> None:
    items = [Item("0abcdefgh", model, key) for key in range(5)]
    other = Item("0other", model, 1)
    queues = [queue_name(model, run_id) for run_id in ("0abcdefgh", "0other", "0new")]
    publish(app, [*items, other])
    wait_until(lambda: list(queue_depths(app, queues).values()) == [5, 1, 0], "the messages")
    drop_waiting(app, [queues[0], queues[2]])
    wait_until(lambda: list(queue_depths(app, queues).values()) == [0, 1, 0], "the other message")


def test_quorum_queues_keep_what_is_given_back(rabbitmq_url: str, model: str) -> None:
    """A message comes again however often it was given back; RabbitMQ 4 drops it after 20 times."""
    app = an_app(rabbitmq_url, queue_type="quorum")
    item = Item("1returned", model, 1, 1)
    publish(app, [item])
    with app.connection_for_read() as connection:
        queue = run_queue(app, queue_name(model, item.run_id))(connection.default_channel)

        def taken_and_given_back() -> bool:
            message = queue.get()
            if message is not None:
                message.reject(requeue=True)
            return message is not None

        for time_ in range(30):
            wait_until(taken_and_given_back, f"the message, given back {time_} times")


def test_message_that_rabbitmq_refuses(
    rabbitmq_url: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is published again until the queue takes it, for some seconds at most."""
    app = an_app(rabbitmq_url)
    process_of(app).queue_arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    items = [Item("1full", model, key, 1) for key in range(1, 4)]
    with ThreadPoolExecutor() as pool:
        published = pool.submit(publish, app, items[:2])
        with app.connection_for_read() as connection:
            queue = run_queue(app, queue_name(model, "1full"))(connection.default_channel)
            queue.declare()
            for item in items[:2]:
                wait_until(lambda: queue.get(no_ack=True) is not None, f"{item}")
        assert published.result() == 2
    monkeypatch.setattr(client, "REFUSED_FOR_S", 0.3)
    with pytest.raises(QueueError, match=r"refused a message for 0.3 s; is aegish\..* full"):
        publish(app, items)


def test_rabbitmq_drops_queues_that_nobody_uses(rabbitmq_url: str, model: str) -> None:
    """Producer, depth and worker declare them alike, as expiring after a week."""
    app = an_app(rabbitmq_url)
    name = queue_name(model, "run")
    publish(app, [Item("run", model, 1)])
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        app.amqp.TaskConsumer(connection, [run_queue(app, name)]).close()
        expiring = Queue(name, queue_arguments={"x-expires": 7 * 24 * 3600 * 1000})
        assert expiring(channel).queue_declare().message_count == 1
        with pytest.raises(PreconditionFailed):
            Queue(name)(channel).queue_declare()
    assert queue_depths(app, [name]) == {name: 1}


def test_nothing_expires_in_redis(redis_url: str, model: str) -> None:
    app = an_app(redis_url)
    name = queue_name(model, "run")
    publish(app, [Item("run", model, 1)])
    queue_depths(app, [name])
    with redis.Redis.from_url(redis_url) as client:
        assert client.ttl(name) == -1
        take_all(app, name)
        queue_depths(app, [name])
        assert client.keys(f"*{model}*") == []


def test_messages_name_an_item_and_nothing_else(redis_url: str, model: str) -> None:
    """In Redis lie five identifiers and the time of publishing: no command, prompt, key or URL."""
    item = Item("0abcdefgh", model, sample_key=2**62, epoch=3, generation=1)
    before = time.time()
    publish(an_app(redis_url), [item])
    with redis.Redis.from_url(redis_url) as client:
        (raw,) = client.lrange(queue_name(model, "0abcdefgh"), 0, -1)
    message = json.loads(raw)
    arguments, keywords, _ = json.loads(base64.b64decode(message["body"]))
    assert arguments == ["0abcdefgh", model, 2**62, 3, 1]
    assert keywords == {}
    assert message["content-type"] == "application/json"
    headers = message["headers"]
    assert headers["task"] == EVALUATE
    assert before <= headers[ENQUEUED_AT] <= time.time()
    assert (headers["argsrepr"], headers["kwargsrepr"]) == ("", "")
    assert b"hunter2" not in raw
    assert message["properties"]["delivery_mode"] == 2


class Progress(Observer):
    """Calls a function with how many items have been enqueued so far."""

    def __init__(self, show: Callable[[int], Any]) -> None:
        self._show = show

    def counting(
        self, what: str, total: int | None = None
    ) -> AbstractContextManager[Callable[[int], Any]]:
        return nullcontext(self._show)


def a_plan(samples: int = 3) -> RunPlan:
    dataset = Dataset("d", tuple(Sample(f"echo {n}", TrueLabel.HARMLESS) for n in range(samples)))
    return RunPlan((a_model("test/a"),), (dataset,), PROMPT, CallParameters(), 1, "a name")


def refusal(attempt: Callable[[], object], within_s: float) -> str:
    """Return the one line by which something is refused in time, without a password."""
    started = time.monotonic()
    with pytest.raises(QueueError) as caught:
        attempt()
    assert time.monotonic() - started < within_s
    message = str(caught.value)
    assert not any(word in message for word in ("\n", "hunter"))
    return message


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_an_unreachable_broker_is_reported_soon(engine: Engine, scheme: str) -> None:
    app = an_app(f"{scheme}://:hunter3@127.0.0.1:{free_port()}/")
    attempts: list[Callable[[], object]] = [
        lambda: check_broker(app),
        lambda: submit(engine, app, a_plan()),
    ]
    if scheme == "redis":
        attempts.append(lambda: queue_depths(app, ["aegish.model"]))
    for attempt in attempts:
        message = refusal(attempt, 5)
        assert message.startswith("the broker cannot be used (")
        assert "AEGISH_DIST_BROKER_URL" in message
    assert row_counts(engine) == {}


@pytest.mark.parametrize(
    ("setting", "why"),
    [("min-replicas-to-write", "too few replicas follow it"), ("maxmemory", "its memory is full")],
)
def test_a_broker_that_takes_no_messages_leaves_no_run(
    engine: Engine, redis_url: str, setting: str, why: str
) -> None:
    with redis.Redis.from_url(redis_url) as server:
        server.config_set(setting, 1)
        try:
            message = refusal(lambda: submit(engine, an_app(redis_url), a_plan()), 30)
        finally:
            server.config_set(setting, 0)
    assert f"takes no writes: {why}" in message
    assert row_counts(engine) == {}


def test_a_redis_that_does_not_answer(engine: Engine, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server, server.halted():
        message = refusal(lambda: submit(engine, an_app(server.url), a_plan()), 30)
    assert "the broker cannot be used (Timeout" in message
    assert row_counts(engine) == {}


def test_a_rabbitmq_without_room(engine: Engine, rabbitmq: RabbitServer) -> None:
    app = an_app(rabbitmq.url)
    with rabbitmq.alarmed():
        message = refusal(lambda: submit(engine, app, a_plan()), 30)
        assert "RabbitMQ takes no messages" in message
        assert row_counts(engine) == {}
    run = submit(engine, app, a_plan())
    assert queue_depths(app, [queue_name("test/a", run.run_id)]).popitem()[1] == 3


def stored_run_to_resume(engine: Engine, refused: BaseException) -> str:
    """Return the id of the run that is stored, whose remedy has to be named in one line."""
    with Session(engine) as session:
        run_id = resolve_run_id(session, "latest")
    assert f"`aegish-dist resume --run-id {run_id}`" in str(refused)
    assert "\n" not in str(refused)
    return run_id


def test_a_database_lost_on_the_way_leaves_a_run_to_resume(
    engine: Engine, postgres_url: str, redis_url: str
) -> None:
    with HalfOpenProxy.to_postgres(postgres_url) as proxy:
        lost = open_engine(proxy.postgres_url(postgres_url))
        with pytest.raises(StoreError) as caught:
            submit(lost, an_app(redis_url), a_plan(5 * BATCH), Progress(lambda _: proxy.cut()))
        lost.dispose()
    stored_run_to_resume(engine, caught.value)


def test_a_broker_lost_on_the_way_leaves_a_run_to_resume(engine: Engine, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        with pytest.raises(QueueError) as caught:
            submit(engine, an_app(server.url), a_plan(2 * BATCH), Progress(lambda _: server.kill()))
        run_id = stored_run_to_resume(engine, caught.value)
        server.start()
        app = an_app(server.url)
        assert enqueue_missing(engine, app, run_id) == 2 * BATCH
        queue = queue_name("test/a", run_id)
        assert queue_depths(app, [queue]) == {queue: 2 * BATCH}
