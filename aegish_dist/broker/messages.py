"""Messages of the broker and names of queues.

Each model of each run has a queue of its own: per model, so that a throttled model never delays
another; per run, because a queue is first in, first out, and with one queue per model a small run
would wait for a large one that was submitted before it.
"""

from collections.abc import Sequence, Set

from aegish_dist.core.model import base_of
from aegish_dist.core.run import Run
from aegish_dist.core.verdict import Item

# Name of the task that brings an item to its verdict; the product sends tasks by name and never
# imports the workers.
EVALUATE = "aegish.evaluate"
# Name of the task that makes the snapshots of one row of `aggregations`.
AGGREGATE = "aegish.aggregate"

ENQUEUED_AT = "enqueued_at"  # header with the publishing time, seconds since the epoch

QUEUE_PREFIX = "aegish."
# Separates model and run; the last one counts, as run ids contain none.
RUN_MARK = "#"
# A queue without messages: Celery needs at least one, and a worker may have no work yet.
IDLE_QUEUE = "aegish-idle"
# The queue of all aggregations; as a worker's only `-Q` it stands for a worker that makes them and
# calls no model.
AGGREGATION_QUEUE = "aegish-aggregate"


def queue_name(model: str, run_id: str) -> str:
    return pin_name(model) + RUN_MARK + run_id


def queue_names(run: Run) -> list[str]:
    return [queue_name(spec.id, run.run_id) for spec in run.models]


def pin_name(model: str) -> str:
    """Return the name that stands for all queues of a model in a worker's `-Q` option."""
    return QUEUE_PREFIX + model


def is_pin(name: str) -> bool:
    """Return whether a name of a worker's `-Q` option stands for queues of runs."""
    return name.startswith(QUEUE_PREFIX) or name == AGGREGATION_QUEUE


def is_pinned(queue: str, pins: Set[str]) -> bool:
    """Return whether pins contain a queue or the name of its model, with or without its arm."""
    name = queue.rpartition(RUN_MARK)[0]
    return not pins.isdisjoint({queue, name, base_of(name)})


def model_of(queue: str) -> str | None:
    """Return the model of a queue, None for a queue of another kind."""
    name, mark, _ = queue.rpartition(RUN_MARK)
    if mark and name.startswith(QUEUE_PREFIX):
        return name.removeprefix(QUEUE_PREFIX)
    return None


def run_of(queue: str) -> str | None:
    """Return the run of a queue, None for a queue of another kind."""
    if model_of(queue) is None:
        return None
    return queue.rpartition(RUN_MARK)[2]


def task_of(queue: str) -> str:
    if queue == AGGREGATION_QUEUE:
        return AGGREGATE
    return EVALUATE


def encode(item: Item) -> list[str | int]:
    """Return the arguments of the task for an item."""
    return [item.run_id, item.model, item.sample_key, item.epoch, item.generation]


def decode(arguments: Sequence[object]) -> Item:
    """Read the arguments of a message; a `ValueError` means that it is forged or foreign."""
    # To Python, true and false are whole numbers.
    match [None if isinstance(argument, bool) else argument for argument in arguments]:
        case [str(run_id), str(model), int(sample_key), int(epoch), int(generation)] if (
            0 <= sample_key < 2**63 and 1 <= epoch < 2**15 and 0 <= generation < 2**15
        ):
            return Item(run_id, model, sample_key, epoch, generation)
        case _:
            raise ValueError("a message does not name an item")


def decode_aggregation(arguments: Sequence[object]) -> int:
    """Read the key of an aggregation; a `ValueError` means a forged or foreign message."""
    match list(arguments):
        case [int(key)] if 0 < key < 2**31 and not isinstance(key, bool):
            return key
        case _:
            raise ValueError("a message does not name an aggregation")
