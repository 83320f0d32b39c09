"""The Celery application of producers and workers, and what a process holds on it.

`celery.toml` has the reasons of Celery's own options.
"""

import ssl
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from celery import Celery
from kombu import Queue
from kombu.transport import TRANSPORT_ALIASES
from msgspec import Struct, toml

from aegish_dist.broker.messages import AGGREGATION_QUEUE, IDLE_QUEUE
from aegish_dist.core.text import JsonObject
from aegish_dist.settings import EMBEDDED_BROKER_URL, Settings

# Seconds of a message's lease; a worker renews it every quarter of that.
#
# A worker may be stopped or cut off for 30 s before other workers get its items, and the items of a
# killed worker are in their queues again within 45 s.
LEASE_S = 40.0

# Seconds between heartbeats to RabbitMQ; after two missing ones a connection counts as lost.
HEARTBEAT_S = LEASE_S // 2

# Seconds without a consumer after which RabbitMQ deletes a queue, with the messages in it.
#
# RabbitMQ keeps empty queues, and each model of each run has one. PostgreSQL knows which items are
# missing, and `resume` publishes them again. Redis keeps no empty lists, so nothing expires there.
QUEUE_EXPIRES_S = 7 * 24 * 3600

_FIXED = toml.decode(files(__package__).joinpath("celery.toml").read_bytes())

# Names of our own transports and their classes, by the scheme of a broker's URL; RabbitMQ has
# kombu's. A process loads the class that it uses.
TRANSPORTS = {
    "redis": ("redis-batched", "aegish_dist.broker.redis_transport:Transport"),
    "memory": ("memory-shared", "aegish_dist.broker.embedded:Transport"),
}


class Process(Struct):
    """What a process holds on its application beside Celery's own options, typed."""

    settings: Settings
    # Seconds without a consumer after which the broker deletes a queue; None: never.
    queue_expires_s: int | None
    # Of queues of models; None where the broker's own kind of queue is meant.
    queue_arguments: Mapping[str, Any] | None
    # The commands of Celery that clients of the broker may send.
    remote_commands: Sequence[str]
    # Empty where the settings name no database.
    database_url: str
    # False for a worker that only aggregates, which `-Q` says.
    calls_models: bool = True


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
    app.steps["worker"].update(("workers.batches:Batches", "workers.aggregations:Aggregations"))
    return app


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


def tls_of(url: str) -> tuple[str, JsonObject | None]:
    """Split a broker's URL into the URL without its query and the TLS options of its client.

    Certificates are verified unless the `ssl_...` options of the query say otherwise. The options
    are None for a URL without TLS.
    """
    # kombu by itself verifies no certificate of a Redis and no host name of a RabbitMQ, and it
    # passes the options of a URL to RabbitMQ's client under names that only Redis's client knows.
    parts = urlsplit(url)
    if parts.scheme not in {"rediss", "amqps"}:
        return url, None
    options: JsonObject = dict(parse_qsl(parts.query))
    requirement = ssl.VerifyMode[f"CERT_{options.pop('ssl_cert_reqs', 'required').upper()}"]
    checked = options.pop("ssl_check_hostname", "true") == "true" and requirement != ssl.CERT_NONE
    options["ssl_cert_reqs"] = requirement
    if parts.scheme == "rediss":
        options["ssl_check_hostname"] = checked
    else:
        options = {name.removeprefix("ssl_"): value for name, value in options.items()}
        if checked:
            options["server_hostname"] = None  # kombu puts the host of the URL there
    return parts._replace(query="").geturl(), options
