"""What a process holds on its Celery application beside Celery's own options, typed."""

from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from kombu import Queue
from msgspec import Struct

from aegish_dist.broker.messages import AGGREGATION_QUEUE
from aegish_dist.settings import Settings


class Process(Struct):
    """One for each application; `create_app` makes it."""

    settings: Settings
    queue_expires_s: int | None
    """Seconds without a consumer after which the broker deletes a queue; None: never."""
    queue_arguments: Mapping[str, Any] | None
    """Of queues of models; None where the broker's own kind of queue is meant."""
    remote_commands: Sequence[str]
    """The commands of Celery that clients of the broker may send."""
    database_url: str
    """Empty where the settings name no database."""
    calls_models: bool = True
    """False for a worker that only aggregates, which `-Q` says."""


def process_of(app: Celery) -> Process:
    """Return what the application was made with."""
    process: Process = app.process
    return process


def run_queue(app: Celery, name: str) -> Queue:
    """Return a queue of the broker's default exchange, with the arguments that all processes use.

    RabbitMQ refuses to declare an existing queue with other arguments. The queue of aggregations
    outlives every run, and a change of their type: it is a classic one. Its messages are sent
    again when they are lost.
    """
    process = process_of(app)
    arguments = None if name == AGGREGATION_QUEUE else process.queue_arguments
    return Queue(name, durable=True, expires=process.queue_expires_s, queue_arguments=arguments)
