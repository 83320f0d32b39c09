"""The broker inside this process: kombu's, which asks before it fetches."""

from collections.abc import Callable, Sequence
from typing import Any

from kombu.transport import memory
from kombu.transport.virtual import Empty


def _unlimited(queues: Sequence[str]) -> list[int]:
    return [1] * len(queues)


class Channel(memory.Channel):
    """A channel that leaves a queue alone while the worker holds enough of it."""

    allowance: Callable[[Sequence[str]], Sequence[int]] = staticmethod(_unlimited)
    """Asked how many more messages of each queue may come."""

    def _get_and_deliver(self, queue: str, callback: Any) -> None:
        if self.allowance([queue])[0] <= 0:
            raise Empty
        super()._get_and_deliver(queue, callback)


class Transport(memory.Transport):
    """kombu's in-memory transport with such channels."""

    Channel = Channel
