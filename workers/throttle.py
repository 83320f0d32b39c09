"""Fetching no more of a model than it takes, so that the worker has room for the others."""

from typing import Any

from celery import bootsteps

from aegish_dist.queue.messages import model_of, model_queue

POLL_S = 0.1


class QueueThrottle(bootsteps.StartStopStep):
    """Has the transport ask the pool before it fetches.

    A transport of ours has a hook for that. With any other one, the worker stops consuming a queue
    of which it holds enough, and begins again when it runs low.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._timer: Any = None
        self._left: set[str] = set()

    def start(self, consumer: Any) -> None:
        """Connect the pool with the transport."""
        channel = consumer.task_consumer.channel
        if hasattr(channel, "allowance"):
            channel.allowance = consumer.pool.allowance
        else:
            self._left.clear()
            self._timer = consumer.timer.call_repeatedly(POLL_S, self._balance, (consumer,))

    def stop(self, consumer: Any) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _balance(self, consumer: Any) -> None:
        tasks = consumer.task_consumer
        for queue in [queue.name for queue in tasks.queues if model_of(queue.name)]:
            if consumer.pool.allowance(queue) == 0:
                self._left.add(queue)
                tasks.cancel_by_queue(queue)
        back = {queue for queue in self._left if consumer.pool.allowance(queue) > 0}
        self._left -= back
        for queue in back:
            tasks.add_queue(model_queue(queue))
        if back:
            tasks.consume()
