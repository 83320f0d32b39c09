"""The Celery application of producers and workers; `celery.toml` has the reasons of its options."""

from importlib.resources import files

from celery import Celery
from kombu import Queue
from kombu.transport import TRANSPORT_ALIASES
from msgspec import toml

from aegish_dist.broker.client import tls_of
from aegish_dist.broker.messages import IDLE_QUEUE
from aegish_dist.broker.process import Process
from aegish_dist.settings import EMBEDDED_BROKER_URL, Settings

LEASE_S = 40.0
"""Seconds of a message's lease; a worker renews it every quarter of that.

A worker may be stopped or cut off for 30 s before other workers get its items, and the items of a
killed worker are in their queues again within 45 s."""

HEARTBEAT_S = LEASE_S // 2
"""Seconds between heartbeats to RabbitMQ; after two missing ones a connection counts as lost."""

QUEUE_EXPIRES_S = 7 * 24 * 3600
"""Seconds without a consumer after which RabbitMQ deletes a queue, with the messages in it.

RabbitMQ keeps empty queues, and each model of each run has one. PostgreSQL knows which items are
missing, and `resume` publishes them again. Redis keeps no empty lists, so nothing expires there."""

_FIXED = toml.decode(files(__package__).joinpath("celery.toml").read_bytes())

TRANSPORTS = {
    "redis": ("redis-batched", "aegish_dist.broker.redis_transport:Transport"),
    "memory": ("memory-shared", "aegish_dist.broker.embedded:Transport"),
}
"""Names of our own transports and their classes, by the scheme of a broker's URL; RabbitMQ has
kombu's. A process loads the class that it uses."""


def create_app(settings: Settings) -> Celery:
    """Build the application; without a broker in the settings, all stays in this process."""
    url = settings.broker_url
    broker_url = EMBEDDED_BROKER_URL if url is None else url.get_secret_value()
    in_process = url is None
    amqp = broker_url.startswith("amqp")
    broker_url, tls = tls_of(broker_url)
    transport = next((own for name, own in TRANSPORTS.items() if broker_url.startswith(name)), None)
    if transport is not None:
        TRANSPORT_ALIASES[transport[0]] = transport[1]
    app = Celery("aegish", broker=broker_url, set_as_current=False)
    schemes = _FIXED["transport_options"].items()
    lease = {}
    if broker_url.startswith("redis"):
        lease = {"lease_s": settings.message_lease_s}
    transport_options = lease | next(own for name, own in schemes if broker_url.startswith(name))
    quorum = settings.queue_type == "quorum" and amqp
    app.conf.update(
        _FIXED["options"],
        result_backend=None,
        worker_concurrency=settings.concurrency,
        broker_connection_max_retries=None,
        task_default_queue=IDLE_QUEUE,
        task_queues=[Queue(IDLE_QUEUE)],
        broker_use_ssl=tls,
        broker_transport=transport and transport[0],
        broker_transport_options=transport_options,
        broker_heartbeat=HEARTBEAT_S,
    )
    database_url = settings.database_url
    app.process = Process(
        settings,
        queue_expires_s=QUEUE_EXPIRES_S if amqp else None,
        queue_arguments=_FIXED["quorum_arguments"] if quorum else None,
        # Remote commands are open to every client of the broker; `ping` serves health checks.
        remote_commands=("ping", "shutdown") if in_process else ("ping",),
        database_url="" if database_url is None else database_url.get_secret_value(),
    )
    # By name: a process loads only what it uses.
    app.steps["consumer"].add("workers.consumer:PrefetchPerModel")
    app.steps["worker"].add("workers.batches:Batches")
    return app
