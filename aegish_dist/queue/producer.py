"""Publishing items, in batches, by task name."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from aegish_dist.core.verdict import Item
from aegish_dist.errors import QueueError
from aegish_dist.queue.envelope import Envelope, send
from aegish_dist.queue.messages import queue_name, run_queue

BATCH = 500
"""Messages per round trip to the broker."""

CONNECT_POLICY = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "timeout": 5}
"""A command should say soon that its broker is away; workers, in contrast, keep trying."""


def broker_problem(error: Exception) -> QueueError:
    """Put a broker failure into one line with its remedy."""
    what = (str(error).splitlines() or [type(error).__name__])[0]
    return QueueError(
        f"the broker cannot be used ({what}): "
        "check AEGISH_DIST_BROKER_URL and that the server is running; "
        "`aegish-dist doctor` tells more"
    )


def check_broker(app: Celery) -> None:
    """Connect once.

    Raises:
        QueueError: The broker cannot be reached.
    """
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(**CONNECT_POLICY)
    except (OperationalError, OSError, *app.connection().connection_errors) as error:
        raise broker_problem(error) from error


def publish(
    app: Celery, items: Iterable[Item], on_progress: Callable[[int], None] = lambda _: None
) -> int:
    """Publish items to the queues of their models and runs.

    Publishing an item twice is harmless: a worker looks before it calls.

    Args:
        app: The application whose broker is used.
        items: Streamed; never held all at once.
        on_progress: Called with the number of items published so far, once per batch.

    Returns:
        How many items were published.

    Raises:
        QueueError: The broker cannot be reached. Whatever was not published is still missing in
            the store, and `resume` publishes it.
    """
    published = 0
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(**CONNECT_POLICY)
            on_redis = connection.transport.driver_type == "redis"
            channel = connection.default_channel
            publisher = _ListPublisher(app, channel) if on_redis else _Publisher(app, channel)
            remaining = iter(items)
            while batch := list(islice(remaining, BATCH)):
                publisher.publish(batch)
                published += len(batch)
                on_progress(published)
    except (OperationalError, OSError, *app.connection().connection_errors) as error:
        raise broker_problem(error) from error
    return published


class _Publisher:
    """Publishes through kombu, message by message: works with every broker."""

    def __init__(self, app: Celery, channel: Any) -> None:
        self._app = app
        self._channel = channel
        self._producer = app.amqp.Producer(channel, auto_declare=False)
        self._declared: set[str] = set()

    def publish(self, batch: Sequence[Item]) -> None:
        for item in batch:
            self._declare(queue_name(item.model, item.run_id))
            send(self._app, self._producer, item)

    def _declare(self, queue: str) -> None:
        if queue not in self._declared:
            run_queue(self._app, queue)(self._channel).declare()
            self._declared.add(queue)


class _ListPublisher(_Publisher):
    """Publishes to Redis, a list of messages per queue: ten times as many a second."""

    def __init__(self, app: Celery, channel: Any) -> None:
        super().__init__(app, channel)
        self._envelopes: dict[str, Envelope] = {}

    def publish(self, batch: Sequence[Item]) -> None:
        messages: dict[str, list[str]] = {}
        for item in batch:
            queue = queue_name(item.model, item.run_id)
            messages.setdefault(queue, []).append(self._envelope(queue, item).put(item))
        with (
            self._channel.conn_or_acquire() as client,
            client.pipeline(transaction=False) as pipeline,
        ):
            for queue, ready in messages.items():
                pipeline.lpush(queue, *ready)
            pipeline.execute()

    def _envelope(self, queue: str, item: Item) -> Envelope:
        envelope = self._envelopes.get(queue)
        if envelope is None:
            self._declare(queue)
            envelope = self._envelopes[queue] = Envelope(self._app, self._channel, item)
        return envelope
