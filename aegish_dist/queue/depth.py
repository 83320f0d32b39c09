"""How much waits in the queues."""

from collections.abc import Sequence

from celery import Celery
from kombu.exceptions import OperationalError

from aegish_dist.queue.messages import model_queue
from aegish_dist.queue.producer import CONNECT_POLICY, broker_problem


def queue_depths(app: Celery, queues: Sequence[str]) -> dict[str, int]:
    """Return the messages that wait in each queue, not those that workers hold.

    Raises:
        QueueError: The broker cannot be reached.
    """
    try:
        with app.connection_for_read() as connection:
            connection.ensure_connection(**CONNECT_POLICY)
            channel = connection.default_channel
            return {queue: _depth(channel, queue) for queue in queues}
    except (OperationalError, OSError, *app.connection().connection_errors) as error:
        raise broker_problem(error) from error


def _depth(channel, queue: str) -> int:  # type: ignore[no-untyped-def]
    # Declared as the producer and the workers declare it, which tells its size and changes nothing.
    return int(model_queue(queue)(channel).queue_declare().message_count)
