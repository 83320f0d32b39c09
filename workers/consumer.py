"""Celery's consumer, hardened against forged messages, and keeping leases through reconnections.

Every client with the broker's password can publish any message. A message that is not one of ours
is dropped with one log line: raised, its error would end this worker, and the next one that gets
the message. Of Celery's remote commands only those that the application names are executed.

Prefetch: how many messages a worker holds, in all and of each model.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger as celery_logger
from celery.worker import consumer
from celery.worker.consumer.control import Control
from celery.worker.control import Panel
from kombu import compression
from kombu.common import QoS
from kombu.exceptions import DecodeError

from aegish_dist.broker.app import process_of
from aegish_dist.broker.messages import (
    AGGREGATE,
    AGGREGATION_QUEUE,
    ENQUEUED_AT,
    EVALUATE,
    model_of,
    task_of,
)
from aegish_dist.logs import get_logger

log = get_logger(__name__)

# Longest time in a queue; the publishing time of an older message is ignored.
LONGEST_WAIT_S = 10 * 365 * 24 * 3600

FAREWELL_S = 2.0  # seconds to wait for each answer of RabbitMQ while a worker ends


class Consumer(consumer.Consumer):
    """A consumer that takes messages of our tasks, each from its own queues, and no others."""

    # Leases of the latest connection's channel; None for a transport without leases.
    _leases: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # A few compressed bytes may become gigabytes before a message is checked.
        for content_type in compression.encoders():
            compression.register(_refuse, _refuse, content_type)
        super().__init__(*args, **kwargs)
        for step in self.steps:
            if isinstance(step, Control):
                names = process_of(self.app).remote_commands
                step.box.node.handlers = RemoteCommands({name: Panel.data[name] for name in names})

    def create_task_handler(self, *_: Any, **__: Any) -> Callable[[Any], None]:
        """Return the function that gets each message that could be decoded."""
        strategies = {task: self.strategies[task] for task in (EVALUATE, AGGREGATE)}

        def on_message(message: Any) -> None:
            try:
                task = task_of(str(message.delivery_info.get("routing_key")))
                if message.headers["task"] != task:
                    raise DecodeError("a message of another task")
                message.headers[ENQUEUED_AT] = _published_at(message.headers)
                strategies[task](message)
            except Exception as error:
                self.on_decode_error(message, error)

        return on_message

    def keep_leases(self, channel: Any) -> None:
        """Hand the leases of a lost connection to the channel of the new one."""
        if not hasattr(channel.qos, "take_over"):
            return
        if self._leases is not None:
            channel.qos.take_over(self._leases)
        self._leases = channel.qos

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        if self._leases is not None:
            self._leases.channel.keep_leases()
        super().on_connection_error_after_connected(exc)

    def stop(self) -> None:
        """Close the connection within seconds, also to a broker that does not answer."""
        connection = self.connection
        if connection and connection.transport.driver_type == "amqp" and connection.connected:
            connection.connection.transport.sock.settimeout(FAREWELL_S)
        super().stop()

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        # Its content is not logged: it may be forged in order to be read there.
        name = message.delivery_info.get("routing_key")
        queue = name if isinstance(name, str) and name in self.app.amqp.queues else None
        log.error("message_dropped", problem=type(exc).__name__, queue=queue)
        message.ack_log_error(celery_logger(__name__), self.connection_errors)


INSTEAD = {
    **dict.fromkeys(("revoke", "terminate"), "`aegish-dist cancel` and `pause` stop runs"),
    **dict.fromkeys(("rate_limit", "time_limit"), "limits stand in the catalog and in the run"),
    **dict.fromkeys(("pool_grow", "pool_shrink", "pool_restart", "autoscale"), "start workers"),
    **dict.fromkeys(("add_consumer", "cancel_consumer"), "start workers with --models"),
    **dict.fromkeys(("enable_events", "disable_events"), "start workers with or without -E"),
    "shutdown": "send the worker SIGTERM",
}
OTHERWISE = "`aegish-dist status` and `doctor` show runs and workers"
REMEMBERED_COMMANDS = 100


class RemoteCommands(dict[str, Callable[..., Any]]):
    """The remote commands that are executed; any other is answered with what to do instead."""

    def __init__(self, executed: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(executed)
        self._refused: set[str] = set()

    def __missing__(self, name: str) -> Callable[..., Any]:
        # Once: Flower repeats its commands every 5 s.
        if name not in self._refused and len(self._refused) < REMEMBERED_COMMANDS:
            self._refused.add(name)
            log.info("remote_command_refused", command=ascii(name)[:50])
        refusal = {"error": f"not accepted: {INSTEAD.get(name, OTHERWISE)}"}
        return lambda _state, **_arguments: refusal


def _published_at(headers: dict[str, Any]) -> float | None:
    """Return when a message was published, in seconds since the epoch; None if that is invalid."""
    match headers.get(ENQUEUED_AT):
        case (int() | float()) as at if time.time() - LONGEST_WAIT_S < at < 2 * time.time():
            return float(at)
    return None


def _refuse(_body: bytes) -> bytes:
    raise DecodeError("a compressed message")


# Seconds between comparisons of queues and allowances with a transport that is not ours.
BALANCE_S = 0.1


class PrefetchPerWorker(bootsteps.StartStopStep):
    """Sets how many messages the consumer prefetches: somewhat more than calls in flight."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        consumer.initial_prefetch_count = consumer.pool.prefetch_count

    def start(self, consumer: Any) -> None:
        """Count per consumer where queues are quorum queues, which support no other way."""
        if process_of(consumer.app).queue_arguments:
            tasks, count = consumer.task_consumer, consumer.initial_prefetch_count
            tasks.qos(prefetch_count=0, apply_global=True)  # without limit
            tasks.qos(prefetch_count=count, apply_global=False)
            # Celery's loop sets the count again, through these.
            consumer.qos_global = False
            consumer.qos = QoS(
                lambda prefetch_count: tasks.qos(prefetch_count=prefetch_count, apply_global=False),
                count,
            )


class PrefetchPerModel(bootsteps.StartStopStep):
    """Fetches no more messages of a model than the pool allows, so that others have room.

    Our own transports ask the pool before each fetch. With any other, the worker stops consuming
    the queues of a model while their allowance is 0. They stay in Celery's `consume_from`, which
    only discovery changes.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Connect the pool with the transport, and hand leases to a new connection."""
        channel = consumer.task_consumer.channel
        if hasattr(channel, "allowance"):
            channel.allowance = consumer.pool.allowance
            consumer.keep_leases(channel)
        elif consumer.hub is not None:  # without an event loop the timer is a thread
            self._timer = consumer.timer.call_repeatedly(BALANCE_S, self._balance, (consumer,))

    def stop(self, consumer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _balance(self, consumer: Any) -> None:
        tasks, queues = consumer.task_consumer, consumer.app.amqp.queues.consume_from
        names = [name for name in queues if model_of(name) or name == AGGREGATION_QUEUE]
        allowances = consumer.pool.allowance(names, waiting=False)
        for name, allowed in zip(names, allowances, strict=True):
            if allowed == 0:
                tasks.cancel_by_queue(name)
            elif not tasks.consuming_from(name):
                tasks.add_queue(queues[name])
        tasks.consume()
