"""What travels through the broker, and under which names."""

from collections.abc import Sequence

from kombu import Queue

from aegish_dist.core.verdict import Item

EVALUATE = "aegish.evaluate"
"""Name of the one task; the product sends it by name and never imports the workers."""

ENQUEUED_AT = "enqueued_at"
"""Header with the publishing time, seconds since the epoch."""

QUEUE_PREFIX = "aegish."
IDLE_QUEUE = "aegish-idle"
"""A queue nothing is sent to: Celery wants at least one, and a worker may have no work yet."""


def queue_name(model: str) -> str:
    """Return the queue of a model: each has its own, so that none waits behind another."""
    return QUEUE_PREFIX + model


def model_of(queue: str) -> str | None:
    """Return the model of a queue, None for a queue of another kind."""
    return queue.removeprefix(QUEUE_PREFIX) if queue.startswith(QUEUE_PREFIX) else None


def model_queue(name: str) -> Queue:
    """Return a queue bound to nothing but the broker's default exchange."""
    return Queue(name, durable=True)


def encode(item: Item) -> list[str | int]:
    """Return the arguments of the task for an item."""
    return [item.run_id, item.model, item.sample_key, item.epoch, item.generation]


def decode(arguments: Sequence[object]) -> Item:
    """Read the arguments of a message.

    Raises:
        ValueError: They are not what `encode` makes; a forged or foreign message.
    """
    # To Python, true and false are whole numbers.
    match [None if isinstance(argument, bool) else argument for argument in arguments]:
        case [
            str(run_id),
            str(model),
            int(sample_key),
            int(epoch),
            int(generation),
        ] if 0 <= sample_key < 2**63 and 1 <= epoch < 2**15 and 0 <= generation < 2**15:
            return Item(run_id, model, sample_key, epoch, generation)
        case _:
            raise ValueError("a message does not name an item")
