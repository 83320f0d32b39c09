"""Readings of queues for the exporter: messages that wait, that are held, and the oldest one.

No message is taken, and the number of commands is bounded by the number of queues.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from aegish_dist.broker import messages
from aegish_dist.broker.connection import connected, depth, is_redis
from aegish_dist.broker.messages import run_queue

SAMPLED = 500
"""Unacknowledged messages that are read; of more, how they are divided among queues is estimated
from as many."""


@dataclass(frozen=True, slots=True)
class QueueReadings:
    """State of queues at a moment."""

    waiting: Mapping[str, int]
    oldest_at: Mapping[str, float] = field(default_factory=dict)
    """When the next message of a queue was published, seconds since the epoch; absent where none
    waits, and where the broker does not show it."""
    unacknowledged: int | None = None
    """Messages that workers hold, over all queues; None where the broker does not show it."""
    unacknowledged_of: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None
    """Memory that a Redis uses; None for another broker."""
    memory_max_bytes: int | None = None
    """Memory that it may use; 0: unbounded."""


def read_queues(app: Celery, queues: Sequence[str]) -> QueueReadings:
    """Return the state of queues."""
    with connected(app) as connection:
        channel = connection.default_channel
        if is_redis(connection):
            return _read_redis(channel, queues)
        return QueueReadings({name: depth(channel, run_queue(app, name)) for name in queues})


def _read_redis(channel: Any, queues: Sequence[str]) -> QueueReadings:
    from aegish_dist.broker.redis_leases import LEASES, UNACKED  # noqa: PLC0415  Redis alone

    with channel.client.pipeline(transaction=False) as pipeline:
        for queue in queues:
            pipeline.llen(queue)
            pipeline.lindex(queue, -1)
        pipeline.zcard(LEASES)
        pipeline.hrandfield(UNACKED, SAMPLED, withvalues=True)
        pipeline.info("memory")
        *lists, held, sample, memory = pipeline.execute()
    oldest = {
        queue: at
        for queue, message in zip(queues, lists[1::2], strict=True)
        if (at := _published_at(message)) is not None
    }
    return QueueReadings(
        waiting=dict(zip(queues, lists[::2], strict=True)),
        oldest_at=oldest,
        unacknowledged=held,
        unacknowledged_of=_shares(sample[1::2], held),
        memory_bytes=int(memory["used_memory"]),
        memory_max_bytes=int(memory["maxmemory"]),
    )


def _shares(sample: Sequence[bytes], held: int) -> dict[str, float]:
    """Divide a number of messages among queues as a sample of them is divided."""
    found = Counter(map(_queue_of, sample))
    return {queue: held * number / len(sample) for queue, number in found.items()}


def _queue_of(entry: bytes) -> str:
    return entry.partition(b"\n")[0].decode(errors="replace")


def _published_at(message: bytes | None) -> float | None:
    if message is None:
        return None
    try:
        match json.loads(message):
            case {"headers": {messages.ENQUEUED_AT: int() | float() as at}} if at > 0:
                return float(at)
    except (ValueError, RecursionError, OverflowError):
        pass
    return None
