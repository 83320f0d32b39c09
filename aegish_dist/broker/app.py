"""The Celery application of producers and workers; each option has its reason beside it."""

from celery import Celery
from kombu import Queue
from kombu.transport import TRANSPORT_ALIASES

from aegish_dist.broker.client import tls_of
from aegish_dist.broker.messages import IDLE_QUEUE
from aegish_dist.settings import EMBEDDED_BROKER_URL, Settings

LEASE_S = 40.0
"""Seconds of a message's lease; a worker renews it every quarter of that.

A worker may be stopped or cut off for 30 s before other workers get its items, and the items of a
killed worker are in their queues again within 45 s."""

SILENCE_S = 5
"""Seconds without an answer of Redis, whose commands take milliseconds, that end a connection."""

HEALTH_CHECK_INTERVAL_S = 10
"""Seconds between checks of the Redis connections that no thread waits on."""

PATIENCE_S = 15
"""Seconds for RabbitMQ to answer or to confirm a message; it may be writing thousands to disk."""

HEARTBEAT_S = LEASE_S // 2
"""Seconds between heartbeats to RabbitMQ; after two missing ones a connection counts as lost."""

RESCUE_INTERVAL_S = 5
"""Seconds between a worker's searches for expired leases; each costs Redis some microseconds."""

QUEUE_EXPIRES_S = 7 * 24 * 3600
"""Seconds without a consumer after which RabbitMQ deletes a queue, with the messages in it.

RabbitMQ keeps empty queues, and each model of each run has one. PostgreSQL knows which items are
missing, and `resume` publishes them again. Redis keeps no empty lists, so nothing expires there."""

QUORUM_ARGUMENTS = {
    "x-queue-type": "quorum",
    # RabbitMQ 4 drops a message at its 20th return; items of a parked model return every second.
    # 3.10 takes no -1 for "never".
    "x-delivery-limit": 1_000_000_000,
    # Milliseconds. An item may wait for its turn at a throttled model for longer than the 30
    # minutes after which RabbitMQ closes the channel of an unacknowledged message.
    "x-consumer-timeout": 24 * 3600 * 1000,
}

TRANSPORTS = {
    "redis": ("redis-batched", "aegish_dist.broker.redis_transport:Transport"),
    "memory": ("memory-shared", "aegish_dist.broker.embedded:Transport"),
}
"""Names of our own transports and their classes, by the scheme of a broker's URL; RabbitMQ has
kombu's. A process loads the class that it uses."""

MEMORY_POLLING_S = 0.01
"""Seconds between polls of the in-memory transport while its queues are empty; its default is 1."""


def create_app(settings: Settings) -> Celery:
    """Build the application; without a broker in the settings, all stays in this process."""
    url = settings.broker_url
    broker_url = EMBEDDED_BROKER_URL if url is None else url.get_secret_value()
    in_process, amqp = url is None, broker_url.startswith("amqp")
    broker_url, tls = tls_of(broker_url)
    transport = next((own for name, own in TRANSPORTS.items() if broker_url.startswith(name)), None)
    if transport is not None:
        TRANSPORT_ALIASES[transport[0]] = transport[1]
    app = Celery("aegish", broker=broker_url, set_as_current=False)
    app.conf.update(
        aegish_settings=settings,
        # Celery leaves it out of its reports for its name.
        aegish_database_url=settings.database_url and settings.database_url.get_secret_value(),
        # A worker with other queues than models' sets it to False.
        aegish_calls=True,
        aegish_queue_expires_s=QUEUE_EXPIRES_S if amqp else None,
        aegish_queue_arguments=QUORUM_ARGUMENTS
        if settings.queue_type == "quorum" and amqp
        else None,
        # The verdict in PostgreSQL is the result; a result backend would store it twice.
        result_backend=None,
        task_ignore_result=True,
        # JSON only: a pickled message could run code.
        task_serializer="json",
        accept_content=["json"],
        # Acknowledged after its verdict is committed, and requeued if its worker is lost.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_concurrency=settings.concurrency,
        worker_prefetch_multiplier=1,
        worker_enable_prefetch_count_reduction=False,
        # A call in flight when the broker is lost is paid for: it finishes and is stored.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # A broker that refuses commands for a while, such as a Redis with full memory, does not end
        # a worker either.
        broker_channel_error_retry=True,
        # Our pool and consumer, through Celery's options for that.
        worker_pool="workers.pool:TaskPool",
        worker_consumer="workers.consumer:Consumer",
        # Remote commands are open to every client of the broker; `ping` serves health checks.
        aegish_remote_commands=("ping", "shutdown") if in_process else ("ping",),
        imports=["workers.tasks"],
        # One message more per task, which nothing here reads.
        worker_send_task_events=False,
        task_send_sent_event=False,
        # `configure_logging` does that.
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        # Workers declare queues by name, one for each model of each run.
        task_create_missing_queues=True,
        task_default_queue=IDLE_QUEUE,
        task_queues=[Queue(IDLE_QUEUE)],
        broker_use_ssl=tls,
        broker_transport=transport and transport[0],
        # Not exclusive: a worker that reconnects would find it locked by its lost connection. Not
        # transient: RabbitMQ deprecates such queues.
        control_queue_exclusive=False,
        control_queue_durable=True,
        broker_transport_options=_transport_options(broker_url, settings.message_lease_s),
        broker_heartbeat=HEARTBEAT_S,
    )
    # By name: a process loads only what it uses.
    app.steps["consumer"].add("workers.consumer:PrefetchPerModel")
    app.steps["worker"].add("workers.batches:Batches")
    return app


def _transport_options(broker_url: str, lease_s: float) -> dict[str, object]:
    if broker_url.startswith("memory"):
        return {"polling_interval": MEMORY_POLLING_S}
    if broker_url.startswith("redis"):
        return {
            "lease_s": lease_s,
            "sweep_s": RESCUE_INTERVAL_S,
            "silence_s": SILENCE_S,
            "health_check_s": HEALTH_CHECK_INTERVAL_S,
        }
    return {"confirm_publish": True, "read_timeout": PATIENCE_S, "write_timeout": PATIENCE_S}
