"""The broker as commands use it: connections, publishing of items in batches, readings of queues.

A command gives up after seconds; workers connect through Celery, which retries without end.
"""

import base64
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from types import MappingProxyType
from typing import Any

from amqp.exceptions import MessageNacked
from celery import Celery
from kombu import Connection, Queue
from kombu.exceptions import OperationalError
from msgspec import Struct, field, json

from aegish_dist.broker import messages
from aegish_dist.broker.app import run_queue
from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import Item
from aegish_dist.errors import QueueError
from aegish_dist.redis_server import refusal_of

# Key or queue that is written to test the broker: the key expires at once, the queue is never
# declared.
PROBE = "aegish:probe"

CLOSE_TIMEOUT_S = 1  # seconds to wait for the broker while a failed connection is closed

# Retries of kombu for a command; seconds.
CONNECT_POLICY = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "timeout": 5}


def broker_problem(error: Exception, blocked: str | None = None) -> QueueError:
    """Put a broker failure into one line with its remedy; RabbitMQ may say why it blocks."""
    problem = refusal_of(error) or (str(error).splitlines() or [type(error).__name__])[0]
    if blocked is not None:
        return QueueError(
            f"RabbitMQ takes no messages ({blocked[:80]}): give it room, then try again;"
            " `rabbitmq-diagnostics alarms` tells more"
        )
    if "x-queue-type" in problem:
        return QueueError(
            "the run's queues in RabbitMQ are of another type: set AEGISH_DIST_QUEUE_TYPE to the"
            " same, classic or quorum, for all commands and workers"
        )
    return QueueError(
        f"the broker cannot be used ({problem}): "
        "check AEGISH_DIST_BROKER_URL and that the server is running; "
        "`aegish-dist doctor` tells more"
    )


@contextmanager
def connected(app: Celery) -> Iterator[Connection]:
    """Connect for the body, within some seconds; raise `QueueError` for a broker that fails."""
    blocked: list[str] = []
    options = {}
    if app.conf.broker_url.startswith("amqp"):
        options = {"on_blocked": blocked.append}
    connection = app.connection_for_write(transport_options=options)
    try:
        connection.ensure_connection(**CONNECT_POLICY)
        yield connection
    except (
        OperationalError,
        OSError,
        *connection.connection_errors,
        *connection.channel_errors,
        *connection.recoverable_connection_errors,
    ) as error:
        # An orderly close would ask the broker to agree, and wait for its answer.
        connection.collect(socket_timeout=CLOSE_TIMEOUT_S)
        raise broker_problem(error, *blocked[-1:]) from error
    finally:
        connection.release()


def check_broker(app: Celery) -> None:
    """Connect once, and check that the broker stores messages."""
    with connected(app) as connection:
        if is_redis(connection):
            # A full Redis permits DEL; SET needs memory, as messages do.
            connection.default_channel.client.set(PROBE, "", px=1)
        elif connection.transport.driver_type == "amqp":
            # A message to no queue is confirmed as well. A blocked RabbitMQ reads no second one.
            producer = connection.Producer(auto_declare=False)
            for _ in range(2):
                producer.publish("", exchange="", routing_key=PROBE)


def queue_depths(app: Celery, queues: Sequence[str]) -> dict[str, int]:
    """Return the number of messages that wait in each queue, without those that workers hold."""
    with connected(app) as connection:
        channel = connection.default_channel
        return {name: depth(channel, run_queue(app, name)) for name in queues}


def depth(channel: Any, queue: Queue) -> int:
    # Declared as the producer and the workers declare it, which changes nothing.
    return int(queue(channel).queue_declare().message_count)


def drop_waiting(app: Celery, queues: Sequence[str]) -> None:
    """Drop the messages that wait in queues, but not those that workers hold."""
    with connected(app) as connection:
        for name in queues:
            queue = run_queue(app, name)(connection.default_channel)
            queue.declare()  # RabbitMQ refuses to purge a queue that does not exist
            queue.purge()


def is_redis(connection: Connection) -> bool:
    return bool(connection.transport.driver_type == "redis")


# Unacknowledged messages that are read; of more, how they are divided among queues is estimated
# from as many.
SAMPLED = 500


class QueueReadings(Struct, frozen=True):
    """State of queues at a moment."""

    waiting: Mapping[str, int]
    # When the next message of a queue was published, seconds since the epoch; absent where none
    # waits, and where the broker does not show it.
    oldest_at: Mapping[str, float] = field(default_factory=dict)
    # Messages that workers hold, over all queues; None where the broker does not show it.
    unacknowledged: int | None = None
    unacknowledged_of: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None  # memory that a Redis uses; None for another broker
    memory_max_bytes: int | None = None  # memory that it may use; 0: unbounded


def read_queues(app: Celery, queues: Sequence[str]) -> QueueReadings:
    with connected(app) as connection:
        channel = connection.default_channel
        if is_redis(connection):
            return _read_redis(channel, queues)
        return QueueReadings({name: depth(channel, run_queue(app, name)) for name in queues})


def _read_redis(channel: Any, queues: Sequence[str]) -> QueueReadings:
    from aegish_dist.broker.redis_leases import LEASES, UNACKED  # noqa: PLC0415  Redis alone

    with channel.client.pipeline(transaction=False) as pipeline:
        for queue in queues:
            pipeline.llen(queue)
            pipeline.lindex(queue, -1)
        pipeline.zcard(LEASES)
        pipeline.hrandfield(UNACKED, SAMPLED, withvalues=True)
        pipeline.info("memory")
        *lists, held, sample, memory = pipeline.execute()
    oldest = {
        queue: at
        for queue, message in zip(queues, lists[1::2], strict=True)
        if (at := _published_at(message)) is not None
    }
    found = Counter(entry.partition(b"\n")[0].decode(errors="replace") for entry in sample[1::2])
    return QueueReadings(
        waiting=dict(zip(queues, lists[::2], strict=True)),
        oldest_at=oldest,
        unacknowledged=held,
        # Divided among queues as the sample is.
        unacknowledged_of={name: held * n / found.total() for name, n in found.items()},
        memory_bytes=int(memory["used_memory"]),
        memory_max_bytes=int(memory["maxmemory"]),
    )


def _published_at(message: bytes | None) -> float | None:
    with suppress(ValueError, RecursionError, OverflowError):
        match json.decode(message or b"null"):
            case {"headers": {messages.ENQUEUED_AT: int() | float() as at}} if at > 0:
                return float(at)
    return None


BATCH = 500
REFUSED_FOR_S = 10.0  # for so long a message that RabbitMQ refuses is published again
REPUBLISH_S = 0.2  # between two tries
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
    published = 0
    remaining = iter(items)
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
        run_queue(app, messages.AGGREGATION_QUEUE)(channel).declare()
        producer = app.amqp.Producer(channel, auto_declare=False)
        for key in keys:
            send(app, producer, messages.AGGREGATION_QUEUE, [key])


def send(
    app: Celery,
    producer: Any,
    queue: str,
    arguments: Sequence[str | int],
    headers: Mapping[str, str] = NO_HEADERS,
) -> None:
    """Publish the message of one task, again while RabbitMQ refuses it.

    A quorum queue whose node has just started confirms nothing until it has a leader.
    """
    message = app.amqp.as_task_v2(
        str(uuid.uuid4()),
        messages.task_of(queue),
        arguments,
        {},
        argsrepr="",
        kwargsrepr="",
        ignore_result=True,
    )
    give_up_at = time.monotonic() + REFUSED_FOR_S
    while True:
        with suppress(MessageNacked):
            producer.publish(
                message.body,
                exchange="",
                routing_key=queue,
                serializer="json",
                headers={**message.headers, **headers, messages.ENQUEUED_AT: time.time()},
                delivery_mode=2,
                **message.properties,
            )
            return
        if time.monotonic() > give_up_at:
            raise QueueError(
                f"RabbitMQ refused a message for {REFUSED_FOR_S:g} s; is {queue} full?"
            )
        time.sleep(REPUBLISH_S)


class _Publisher:
    """Publishes through kombu, message by message; works with every broker."""

    def __init__(self, app: Celery, channel: Any, headers: Mapping[str, str]) -> None:
        self._app = app
        self._channel = channel
        self._headers = headers
        self._producer = app.amqp.Producer(channel, auto_declare=False)
        self._declared: set[str] = set()
        self._templates: dict[str, Callable[[Item], bytes]] = {}

    def publish(self, batch: Sequence[Item]) -> None:
        for item in batch:
            queue = messages.queue_name(item.model, item.run_id)
            self._declare(queue)
            send(self._app, self._producer, queue, messages.encode(item), self._headers)

    def _declare(self, queue: str) -> None:
        if queue not in self._declared:
            run_queue(self._app, queue)(self._channel).declare()
            self._declared.add(queue)


class _ListPublisher(_Publisher):
    """Publishes to Redis, one LPUSH per queue and batch: ten times as many messages a second."""

    def publish(self, batch: Sequence[Item]) -> None:
        prepared: dict[str, list[bytes]] = {}
        for item in batch:
            queue = messages.queue_name(item.model, item.run_id)
            if queue not in self._templates:
                self._declare(queue)
                with self._channel.drafts() as drafts:
                    send(self._app, self._producer, queue, messages.encode(item), self._headers)
                self._templates[queue] = _template(drafts[0])
            message = self._templates[queue](item)
            prepared.setdefault(queue, []).append(message)
        with self._channel.client.pipeline(transaction=False) as pipeline:
            for queue, ready in prepared.items():
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
    ids: list[tuple[JsonObject, str]] = []  # where ids stand
    for part in (message["headers"], message["properties"]):
        for name, value in part.items():
            if value == task_id or name == "delivery_tag":
                ids.append((part, name))
    _, *options = json.decode(base64.b64decode(message["body"]))

    def fill(item: Item) -> bytes:
        new_id = str(uuid.uuid4())
        for part, name in ids:
            part[name] = new_id
        message["headers"][messages.ENQUEUED_AT] = time.time()
        # Celery's body is base64 of the arguments, with its options behind them.
        body = json.encode([messages.encode(item), *options])
        message["body"] = base64.b64encode(body).decode()
        return json.encode(message)

    return fill
