"""Publishing items, in batches, by task name."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from aegish_dist.broker.envelope import Envelope, send
from aegish_dist.broker.messages import queue_name, run_queue
from aegish_dist.core.verdict import Item
from aegish_dist.errors import QueueError
from aegish_dist.redis_errors import refusal_of

BATCH = 500
"""Messages per round trip to the broker."""

PROBE = "aegish:probe"
"""Written to see whether a broker takes anything: a key gone at once, a queue never there."""
CLOSE_TIMEOUT_S = 1
CONNECT_POLICY = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "timeout": 5}
"""A command should say soon that its broker is away; workers, in contrast, keep trying."""


def broker_problem(error: Exception, blocked: str | None = None) -> QueueError:
    """Put a broker failure into one line with its remedy.

    Args:
        error: What a connection raised.
        blocked: Why RabbitMQ takes no messages for now, in its own words.
    """
    what = refusal_of(error) or (str(error).splitlines() or [type(error).__name__])[0]
    if blocked is not None:
        return QueueError(
            f"RabbitMQ takes no messages ({blocked[:80]}): give it room, then try again;"
            " `rabbitmq-diagnostics alarms` tells more"
        )
    if "x-queue-type" in what:
        return QueueError(
            "the run's queues in RabbitMQ are of another type: set AEGISH_DIST_QUEUE_TYPE to the"
            " same, classic or quorum, for all commands and workers"
        )
    return QueueError(
        f"the broker cannot be used ({what}): "
        "check AEGISH_DIST_BROKER_URL and that the server is running; "
        "`aegish-dist doctor` tells more"
    )


@contextmanager
def connected(app: Celery) -> Iterator[Connection]:
    """Connect for the length of the body, which waits some seconds for the broker at most.

    Raises:
        QueueError: The broker cannot be reached, does not answer, or takes no messages.
    """
    blocked: list[str] = []
    options = {"on_blocked": blocked.append} if app.conf.broker_url.startswith("amqp") else {}
    connection = app.connection_for_write(transport_options=options)
    try:
        connection.ensure_connection(**CONNECT_POLICY)
        yield connection
    except (
        OperationalError,
        OSError,
        *connection.connection_errors,
        *connection.channel_errors,
        *connection.recoverable_connection_errors,  # a refused message of RabbitMQ is in no other
    ) as error:
        # Not in order: the broker would be asked to agree, and waited for.
        connection.collect(socket_timeout=CLOSE_TIMEOUT_S)
        raise broker_problem(error, *blocked[-1:]) from error
    finally:
        connection.release()


def check_broker(app: Celery) -> None:
    """Connect once, and see that messages can be stored.

    Raises:
        QueueError: The broker cannot be reached, or takes no messages.
    """
    with connected(app) as connection:
        if _is_redis(connection):
            # Needs memory, as messages do: a full Redis permits to delete.
            connection.default_channel.client.set(PROBE, "", px=1)
        elif connection.transport.driver_type == "amqp":
            # For no queue, but confirmed. While it lacks room, RabbitMQ reads no second one.
            producer = connection.Producer(auto_declare=False)
            for _ in range(2):
                producer.publish("", exchange="", routing_key=PROBE)


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
        QueueError: The broker cannot be reached, or takes no messages. Whatever was not published
            is still missing in the store, and `resume` publishes it.
    """
    published = 0
    with connected(app) as connection:
        channel = connection.default_channel
        publisher = (_ListPublisher if _is_redis(connection) else _Publisher)(app, channel)
        remaining = iter(items)
        while batch := list(islice(remaining, BATCH)):
            publisher.publish(batch)
            published += len(batch)
            on_progress(published)
    return published


def drop_waiting(app: Celery, queues: Sequence[str]) -> None:
    """Drop the messages that wait in queues; those that workers hold stay theirs.

    Args:
        app: The application whose broker is used.
        queues: Names of queues.

    Raises:
        QueueError: The broker cannot be reached.
    """
    with connected(app) as connection:
        for name in queues:
            queue = run_queue(app, name)(connection.default_channel)
            queue.declare()  # RabbitMQ refuses to empty one that is not there
            queue.purge()


def _is_redis(connection: Connection) -> bool:
    return bool(connection.transport.driver_type == "redis")


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
