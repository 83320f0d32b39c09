"""The broker and the Celery worker inside this process, for runs without servers."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from celery import Celery
from kombu.transport import memory
from kombu.transport.virtual import Empty

from aegish_dist.broker.app import run_queue
from aegish_dist.broker.client import queue_depths
from aegish_dist.errors import QueueError


class Channel(memory.Channel):
    """A channel that leaves a queue alone while the worker holds enough of it."""

    allowance: Callable[[Sequence[str]], Sequence[int]] = staticmethod(lambda _queues: [1])

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        if self.allowance([queue])[0] <= 0:
            raise Empty
        return super()._get(queue, timeout)


class Transport(memory.Transport):
    """kombu's in-memory transport with such channels."""

    Channel = Channel


class EmbeddedWorker:
    """The same worker as in a fleet, in a thread; a context manager.

    The pool and the tasks are named in the configuration of the application and loaded by Celery.
    """

    def __init__(self, app: Celery, queues: Sequence[str]) -> None:
        for queue in queues:
            app.amqp.queues.add(run_queue(app, queue))
        self._app = app
        self._queues = queues
        self._ready = threading.Event()
        self._controller = app.WorkController(
            hostname="embedded",
            queues=list(queues),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            ready_callback=lambda _: self._ready.set(),
        )
        self._thread = threading.Thread(
            target=self._controller.start, name="aegish-worker", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._ready.wait(0.01):
            if not self._thread.is_alive():
                raise QueueError("the embedded worker did not start; the log says why")
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop as on SIGTERM: calls in flight finish."""
        # A message wakes the consumer, which otherwise looks up every two seconds.
        self._app.control.shutdown()
        self._thread.join()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is held."""
        # In this order: an item on its way from the queue to the pool is seen in one of them.
        waiting = any(queue_depths(self._app, self._queues).values())
        return not waiting and self._controller.pool.idle

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()
