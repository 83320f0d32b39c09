"""Celery's consumer, hardened: a party with the broker's password may write anything into it.

A message that is not one of ours is dropped with one line, whatever is wrong with it; raised, the
error would end the worker, and the next one that is given the message. Of Celery's remote commands
none is obeyed but those that the application names: `shutdown` or `add_consumer` are not for
everybody who can write to the broker.
"""

import time
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger as celery_logger
from celery.utils.threads import bound_open_broker_sockets
from celery.worker import consumer
from celery.worker.consumer.control import Control
from celery.worker.control import Panel
from kombu import compression
from kombu.exceptions import DecodeError

from aegish_dist.broker.messages import ENQUEUED_AT, EVALUATE
from aegish_dist.logs import get_logger

log = get_logger(__name__)

LONGEST_WAIT_S = 10 * 365 * 24 * 3600
"""In a queue; a message that says it is older does not know its age."""


FAREWELL_S = 2.0
"""For each answer of the broker while a worker ends."""


class Consumer(consumer.Consumer):
    """A consumer that takes messages of our task, and no others."""

    _holder: Any = None
    """Keeper of the messages that are held, in the channel of the latest connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Some bytes may become gigabytes, before anything of a message is looked at.
        for content_type in compression.encoders():
            compression.register(_refuse, _refuse, content_type)
        super().__init__(*args, **kwargs)
        for step in self.steps:
            if isinstance(step, Control):
                names = self.app.conf.aegish_remote_commands
                step.box.node.handlers = _Commands({name: Panel.data[name] for name in names})

    def create_task_handler(self, *_: Any, **__: Any) -> Callable[[Any], None]:
        """Return what gets each message that could be decoded."""
        strategy = self.strategies[EVALUATE]

        def on_message(message: Any) -> None:
            try:
                if message.headers["task"] != EVALUATE:
                    raise DecodeError("a message of another task")
                message.headers[ENQUEUED_AT] = _published_at(message.headers)
                strategy(message)
            except Exception as error:
                self.on_decode_error(message, error)

        return on_message

    def hold_through(self, channel: Any) -> None:
        """Renew and settle through a channel what is held, whichever connection it came by."""
        if not hasattr(channel.qos, "take_over"):
            return
        if self._holder is not None:
            channel.qos.take_over(self._holder)
        self._holder = channel.qos

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Connect again, and keep what is held: its calls go on."""
        if self._holder is not None:
            self._holder.channel.keep_leases()
        super().on_connection_error_after_connected(exc)

    def stop(self) -> None:
        """Take leave of the broker, without waiting long for one that does not answer."""
        if self.connection:
            bound_open_broker_sockets(self.connection, FAREWELL_S)
        super().stop()

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop a message."""
        # Nothing of the message is shown: its author chose it to be read.
        log.error("message_dropped", problem=type(exc).__name__, queue=self._queue_of(message))
        message.ack_log_error(celery_logger(__name__), self.connection_errors)

    def _queue_of(self, message: Any) -> str | None:
        name = message.delivery_info.get("routing_key")
        return name if isinstance(name, str) and name in self.app.amqp.queues else None


class _Commands(dict[str, Callable[..., Any]]):
    """The remote commands that are obeyed."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        log.warning("remote_command_ignored", command=ascii(name)[:50])
        return lambda _state, **_arguments: {"error": "not accepted"}


def _published_at(headers: dict[str, Any]) -> float | None:
    """Return when a message was published, in seconds since the epoch; None if that is nonsense."""
    match headers.get(ENQUEUED_AT):
        case (int() | float()) as at if time.time() - LONGEST_WAIT_S < at < 2 * time.time():
            return float(at)
    return None


def _refuse(_body: bytes) -> bytes:
    raise DecodeError("a compressed message")
