"""Publishing of messages by task name: items in batches, to the queues of their models and runs."""

import base64
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

from celery import Celery
from msgspec import json

from aegish_dist.broker.connection import connected, is_redis
from aegish_dist.broker.messages import (
    AGGREGATION_QUEUE,
    ENQUEUED_AT,
    encode,
    queue_name,
    run_queue,
    task_of,
)
from aegish_dist.core.verdict import Item

BATCH = 500
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def publish(
    app: Celery,
    items: Iterable[Item],
    on_progress: Callable[[int], None] = lambda _: None,
    headers: Mapping[str, str] = NO_HEADERS,
) -> int:
    """Publish items to the queues of their models and runs; return how many.

    Publishing an item twice is harmless: a worker looks it up in the store before it calls. Items
    that a `QueueError` left out are missing in the store, and `resume` publishes them.

    Args:
        items: Read as a stream; at most one batch is in memory.
        on_progress: Called after each batch with the number of items published so far.
        headers: Further headers of each message: identifiers, which workers may ignore.
    """
    published, remaining = 0, iter(items)
    with connected(app) as connection:
        kind = _ListPublisher if is_redis(connection) else _Publisher
        publisher = kind(app, connection.default_channel, headers)
        while batch := list(islice(remaining, BATCH)):
            publisher.publish(batch)
            published += len(batch)
            on_progress(published)
    return published


def publish_aggregations(app: Celery, keys: Sequence[int]) -> None:
    """Publish aggregations to their queue; one that is published twice is made once."""
    with connected(app) as connection:
        channel = connection.default_channel
        run_queue(app, AGGREGATION_QUEUE)(channel).declare()
        producer = app.amqp.Producer(channel, auto_declare=False)
        for key in keys:
            _send(app, producer, AGGREGATION_QUEUE, [key], NO_HEADERS)


def send(app: Celery, producer: Any, item: Item, headers: Mapping[str, str] = NO_HEADERS) -> None:
    """Publish one item to its queue."""
    _send(app, producer, queue_name(item.model, item.run_id), encode(item), headers)


def _send(
    app: Celery,
    producer: Any,
    queue: str,
    arguments: Sequence[str | int],
    headers: Mapping[str, str],
) -> None:
    message = app.amqp.as_task_v2(
        str(uuid.uuid4()),
        task_of(queue),
        arguments,
        {},
        argsrepr="",
        kwargsrepr="",
        ignore_result=True,
    )
    producer.publish(
        message.body,
        exchange="",
        routing_key=queue,
        serializer="json",
        headers={**message.headers, **headers, ENQUEUED_AT: time.time()},
        delivery_mode=2,
        **message.properties,
    )


class _Publisher:
    """Publishes through kombu, message by message; works with every broker."""

    def __init__(self, app: Celery, channel: Any, headers: Mapping[str, str]) -> None:
        self._app = app
        self._channel = channel
        self._headers = headers
        self._producer = app.amqp.Producer(channel, auto_declare=False)
        self._declared: set[str] = set()

    def publish(self, batch: Sequence[Item]) -> None:
        for item in batch:
            self._declare(queue_name(item.model, item.run_id))
            send(self._app, self._producer, item, self._headers)

    def _declare(self, queue: str) -> None:
        if queue not in self._declared:
            run_queue(self._app, queue)(self._channel).declare()
            self._declared.add(queue)


class _ListPublisher(_Publisher):
    """Publishes to Redis, one LPUSH per queue and batch: ten times as many messages a second."""

    def __init__(self, app: Celery, channel: Any, headers: Mapping[str, str]) -> None:
        super().__init__(app, channel, headers)
        self._templates: dict[str, Callable[[Item], bytes]] = {}

    def publish(self, batch: Sequence[Item]) -> None:
        messages: dict[str, list[bytes]] = {}
        for item in batch:
            queue = queue_name(item.model, item.run_id)
            if queue not in self._templates:
                self._declare(queue)
                with self._channel.drafts() as drafts:
                    send(self._app, self._producer, item, self._headers)
                self._templates[queue] = _template(drafts[0])
            messages.setdefault(queue, []).append(self._templates[queue](item))
        with self._channel.client.pipeline(transaction=False) as pipeline:
            for queue, ready in messages.items():
                pipeline.lpush(queue, *ready)
                pipeline.publish(self._channel.connection.wake_channel, queue)
            pipeline.execute()


def _template(sent: str) -> Callable[[Item], bytes]:
    """Return what makes the message for an item, as it lies in the Redis list of a queue.

    Celery and kombu make one message per queue. The others differ from it in their item, their time
    and their ids.
    """
    message = json.decode(sent)
    task_id = message["headers"]["id"]
    ids = [
        (part, name)
        for part in (message["headers"], message["properties"])
        for name, value in part.items()
        if value == task_id or name == "delivery_tag"
    ]
    _, *options = json.decode(base64.b64decode(message["body"]))

    def fill(item: Item) -> bytes:
        new_id = str(uuid.uuid4())
        for part, name in ids:
            part[name] = new_id
        message["headers"][ENQUEUED_AT] = time.time()
        message["body"] = base64.b64encode(json.encode([encode(item), *options])).decode()
        return json.encode(message)

    return fill
