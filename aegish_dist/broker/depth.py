"""How much waits in the queues."""

from collections.abc import Sequence
from typing import Any

from celery import Celery
from kombu import Queue

from aegish_dist.broker.messages import run_queue
from aegish_dist.broker.producer import connected


def queue_depths(app: Celery, queues: Sequence[str]) -> dict[str, int]:
    """Return the messages that wait in each queue, not those that workers hold.

    Raises:
        QueueError: The broker cannot be reached.
    """
    with connected(app) as connection:
        channel = connection.default_channel
        return {name: depth(channel, run_queue(app, name)) for name in queues}


def depth(channel: Any, queue: Queue) -> int:
    """Return the messages that wait in one queue."""
    # Declared as the producer and the workers declare it, which tells its size and changes nothing.
    return int(queue(channel).queue_declare().message_count)
