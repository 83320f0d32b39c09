"""Fetching no more of a model than it takes, so that the worker has room for the others."""

from typing import Any

from celery import bootsteps

from aegish_dist.broker.messages import model_of

POLL_S = 0.1


class QueueThrottle(bootsteps.StartStopStep):
    """Has the transport ask the pool before it fetches.

    A transport of ours has a hook for that. With any other one, the worker stops consuming the
    queues of a model of which it holds enough, and begins again when it runs low. They stay among
    those it listens to: which these are is up to `discovery`.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Connect the pool with the transport."""
        channel = consumer.task_consumer.channel
        if hasattr(channel, "allowance"):
            channel.allowance = consumer.pool.allowance
            consumer.keep_leases(channel)
        elif consumer.hub is not None:  # without an event loop, the timer is a thread of its own
            self._timer = consumer.timer.call_repeatedly(POLL_S, self._balance, (consumer,))

    def stop(self, consumer: Any) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _balance(self, consumer: Any) -> None:
        tasks, queues = consumer.task_consumer, consumer.app.amqp.queues.consume_from
        names = [name for name in queues if model_of(name)]
        for name, allowed in zip(names, consumer.pool.allowance(names), strict=True):
            if allowed == 0:
                tasks.cancel_by_queue(name)
            elif not tasks.consuming_from(name):
                tasks.add_queue(queues[name])
        tasks.consume()
