"""The Celery application; every option stands with its reason."""

from pathlib import Path

from celery import Celery
from kombu import Queue

from aegish_dist.broker.connection import tls_of
from aegish_dist.broker.messages import IDLE_QUEUE

VISIBILITY_TIMEOUT_S = 3600
"""For workers without leases, longer than they may hold an item: ten attempts at a throttled
provider. A shorter one has Redis deliver, and us pay for, an item that is still being worked on."""

LEASE_S = 40.0
"""Renewed every quarter of it: a worker may be stopped or cut off for 30 s before its items go to
others, and those of a dead one are back in their queues within 45 s."""

SILENCE_S = 5
"""In which Redis, whose commands take milliseconds, answers, or the connection counts as lost."""

HEALTH_CHECK_INTERVAL_S = 10
"""Between looks for replies of Redis that are overdue on connections that no thread waits on."""

PATIENCE_S = 15
"""In which RabbitMQ answers or confirms a message; it may be writing thousands to disk."""

HEARTBEAT_S = LEASE_S // 2
"""RabbitMQ and its clients give each other up after two without a sign of life."""

RESCUE_INTERVAL_S = 5
"""Between a worker's looks for expired leases; each costs Redis some microseconds."""

QUEUE_EXPIRES_S = 7 * 24 * 3600
"""RabbitMQ keeps empty queues, and there is one for each model of each run. It drops those that
nobody has listened to for so long, with what is in them: PostgreSQL knows what is missing, and
`resume` fills them again. In Redis an empty list is none, so nothing has to expire there."""

QUORUM_ARGUMENTS = {
    "x-queue-type": "quorum",
    # RabbitMQ 4 drops what comes back 20 times, and items of a parked model come back every second.
    # 3.10 takes no -1 for "never".
    "x-delivery-limit": 1_000_000_000,
    # Milliseconds. An item may wait for its turn at a throttled model for longer than the 30
    # minutes after which RabbitMQ takes back what is not acknowledged.
    "x-consumer-timeout": 24 * 3600 * 1000,
}
"""Of the queues in RabbitMQ where they are to be quorum queues."""

MEMORY_POLLING_S = 0.01
"""The in-memory transport sleeps this long when it finds nothing; its default is a second."""


def create_app(
    broker_url: str,
    *,
    database_url: str,
    limiter_url: str | None = None,
    concurrency: int = 500,
    shutdown_grace_s: float = 60.0,
    message_lease_s: float = LEASE_S,
    queue_type: str = "classic",
    stock_transport: bool = False,
    catalog: Path | None = None,
    spool: Path | None = None,
) -> Celery:
    """Build the application for producers and workers.

    Args:
        broker_url: `redis://`, `amqp://` or `memory://`.
        database_url: Where workers find the runs and put the verdicts.
        limiter_url: The Redis that holds the fleet's rate limits; None: each process has its own.
        concurrency: Calls a worker process has in flight at most.
        shutdown_grace_s: How long a stopping worker lets calls in flight finish.
        message_lease_s: Seconds after its last renewal when a message goes back to its queue.
        queue_type: Of the queues in RabbitMQ, `classic` or `quorum`.
        stock_transport: Whether to leave Redis to kombu's own transport.
        spool: Where workers leave answers that they cannot store; None: they have no place.
        catalog: The operator's model catalog, which says where workers may send which key.
    """
    in_process = broker_url.startswith("memory")
    batched = broker_url.startswith("redis") and not stock_transport
    broker_url, tls = tls_of(broker_url)
    app = Celery(
        "aegish",
        broker=broker_url,
        # By name: only those who connect to Redis load it.
        amqp="aegish_dist.broker.redis_transport:AMQP" if batched else None,
        set_as_current=False,
    )
    app.conf.update(
        # Read by our pool; Celery hides settings with DATABASE in their name from its reports.
        aegish_database_url=database_url,
        aegish_limiter_database_url=limiter_url,
        aegish_shutdown_grace_s=shutdown_grace_s,
        aegish_catalog=catalog,
        aegish_spool=spool,
        aegish_queue_expires_s=QUEUE_EXPIRES_S if broker_url.startswith("amqp") else None,
        aegish_queue_arguments=QUORUM_ARGUMENTS
        if queue_type == "quorum" and broker_url.startswith("amqp")
        else None,
        # The verdict in PostgreSQL is the result; a result backend would be a second truth.
        result_backend=None,
        task_ignore_result=True,
        # JSON only: a message that could name a class could run code.
        task_serializer="json",
        accept_content=["json"],
        # A message lives until its verdict is committed, and again if its worker dies.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_concurrency=concurrency,
        worker_prefetch_multiplier=1,
        worker_enable_prefetch_count_reduction=False,
        # A call in flight when the broker goes away is paid for: let it finish and be stored.
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # A broker that refuses a command for now, such as a Redis whose memory is full, is no
        # reason to end either.
        broker_channel_error_retry=True,
        # Our own pool and consumer through Celery's hooks.
        worker_pool="workers.pool:TaskPool",
        worker_consumer="workers.consumer:Consumer",
        # What anybody with the broker may have a worker do; `inspect ping` is for health checks.
        aegish_remote_commands=("ping", "shutdown") if in_process else ("ping",),
        imports=["workers.tasks"],
        # Nothing is gained from these per-task messages; gossip even leaks queues.
        worker_send_task_events=False,
        task_send_sent_event=False,
        # The product configures logging once.
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        # Queues are declared by name as runs need them, one for each model.
        task_create_missing_queues=True,
        task_default_queue=IDLE_QUEUE,
        task_queues=[Queue(IDLE_QUEUE)],
        broker_use_ssl=tls,
        # Neither exclusive nor transient: a worker that comes back finds an exclusive queue still
        # locked by its lost connection, and RabbitMQ gives up transient ones.
        control_queue_exclusive=False,
        control_queue_durable=True,
        broker_transport_options=_transport_options(broker_url, message_lease_s),
        broker_heartbeat=HEARTBEAT_S,
    )
    if in_process:
        app.conf.broker_transport = "aegish_dist.broker.embedded:Transport"
    # By name: only a worker loads it.
    app.steps["consumer"].add("workers.throttle:QueueThrottle")
    return app


def _transport_options(broker_url: str, lease_s: float) -> dict[str, object]:
    if broker_url.startswith("memory"):
        return {"polling_interval": MEMORY_POLLING_S}
    if broker_url.startswith("redis"):
        return {
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "lease_s": lease_s,
            "unacked_restore_interval": RESCUE_INTERVAL_S,
            # One list per queue: priorities would make each fetch name four.
            "priority_steps": [0],
            "socket_keepalive": True,
            "socket_connect_timeout": SILENCE_S,
            "socket_timeout": SILENCE_S,
            "health_check_interval": HEALTH_CHECK_INTERVAL_S,
            # Celery connects again, with all that a lost connection has to pass on; redis-py's own
            # retry would do so unseen, and wait for the next broadcast without end.
            "retry_on_timeout": False,
        }
    return {"confirm_publish": True, "read_timeout": PATIENCE_S, "write_timeout": PATIENCE_S}
