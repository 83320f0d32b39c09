"""Publishing items, in batches, by task name."""

import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing

from celery import Celery
from kombu.exceptions import OperationalError

from aegish_dist.core.verdict import Item
from aegish_dist.errors import QueueError
from aegish_dist.queue.messages import ENQUEUED_AT, EVALUATE, encode, model_queue, queue_name

BATCH = 500
"""Messages per round trip to the broker."""

CONNECT_POLICY = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2, "timeout": 5}
"""A command should say soon that its broker is away; workers, in contrast, keep trying."""


def broker_problem(error: Exception) -> QueueError:
    """Put a broker failure into one line with its remedy."""
    what = (str(error).splitlines() or [type(error).__name__])[0]
    return QueueError(
        f"the broker cannot be used ({what}): "
        "check AEGISH_DIST_BROKER_URL and that the server is running; "
        "`aegish-dist doctor` tells more"
    )


def check_broker(app: Celery) -> None:
    """Connect once.

    Raises:
        QueueError: The broker cannot be reached.
    """
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(**CONNECT_POLICY)
    except (OperationalError, OSError, *app.connection().connection_errors) as error:
        raise broker_problem(error) from error


def publish(
    app: Celery, items: Iterable[Item], on_progress: Callable[[int], None] = lambda _: None
) -> int:
    """Publish items to their models' queues.

    Publishing an item twice is harmless: a worker looks before it calls.

    Args:
        app: The application whose broker is used.
        items: Streamed; never held all at once.
        on_progress: Called with the number of items published so far, once per batch.

    Returns:
        How many items were published.

    Raises:
        QueueError: The broker cannot be reached. Whatever was not published is still missing in
            the store, and `resume` publishes it.
    """
    published = 0
    declared: set[str] = set()
    try:
        with (
            app.connection_for_write() as connection,
            closing(app.amqp.Producer(connection, auto_declare=False)) as producer,
        ):
            connection.ensure_connection(**CONNECT_POLICY)
            with producer.batch(max_size=BATCH):
                for item in items:
                    queue = queue_name(item.model)
                    if queue not in declared:
                        model_queue(queue)(producer.channel).declare()
                        declared.add(queue)
                    _publish_one(app, producer, item, queue)
                    published += 1
                    if published % BATCH == 0:
                        on_progress(published)
    except (OperationalError, OSError, *app.connection().connection_errors) as error:
        raise broker_problem(error) from error
    on_progress(published)
    return published


def _publish_one(app: Celery, producer, item: Item, queue: str) -> None:  # type: ignore[no-untyped-def]
    task_id = str(uuid.uuid4())
    message = app.amqp.as_task_v2(
        task_id, EVALUATE, encode(item), {}, argsrepr="", kwargsrepr="", ignore_result=True
    )
    producer.publish(
        message.body,
        exchange="",
        routing_key=queue,
        serializer="json",
        headers={**message.headers, ENQUEUED_AT: time.time()},
        delivery_mode=2,
        **message.properties,
    )
