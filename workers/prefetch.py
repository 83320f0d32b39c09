"""Prefetch: how many messages a worker holds, in all and of each model."""

from typing import Any

from celery import bootsteps
from kombu.common import QoS

from aegish_dist.broker.messages import AGGREGATION_QUEUE, model_of

SPARE_FROM_CALLS = 100
SPARE_PER_CALL = 0.25
"""Items prefetched beyond the calls in flight, for each call above the first hundred.

An item that is looked up, stored or acknowledged makes no call, and another one takes its place. A
small worker prefetches none: idle workers should get them."""

BALANCE_S = 0.1
"""Seconds between comparisons of queues and allowances with a transport that is not ours."""


class PrefetchPerWorker(bootsteps.StartStopStep):
    """Sets how many messages the consumer prefetches: somewhat more than calls in flight."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        calls = consumer.pool.num_processes
        spare = SPARE_PER_CALL * max(0, calls - SPARE_FROM_CALLS)
        consumer.initial_prefetch_count = calls + int(spare)

    def start(self, consumer: Any) -> None:
        """Count per consumer where queues are quorum queues, which support no other way."""
        if consumer.app.conf.aegish_queue_arguments:
            tasks, count = consumer.task_consumer, consumer.initial_prefetch_count
            tasks.qos(prefetch_count=0, apply_global=True)  # without limit
            tasks.qos(prefetch_count=count, apply_global=False)
            # Celery's loop sets the count again, through these.
            consumer.qos_global = False
            consumer.qos = QoS(
                lambda prefetch_count: tasks.qos(prefetch_count=prefetch_count, apply_global=False),
                count,
            )


class PrefetchPerModel(bootsteps.StartStopStep):
    """Fetches no more messages of a model than the pool allows, so that others have room.

    Our own transports ask the pool before each fetch. With any other, the worker stops consuming
    the queues of a model while their allowance is 0. They stay in Celery's `consume_from`, which
    only discovery changes.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """Connect the pool with the transport, and hand leases to a new connection."""
        channel = consumer.task_consumer.channel
        if hasattr(channel, "allowance"):
            channel.allowance = consumer.pool.allowance
            consumer.keep_leases(channel)
        elif consumer.hub is not None:  # without an event loop the timer is a thread
            self._timer = consumer.timer.call_repeatedly(BALANCE_S, self._balance, (consumer,))

    def stop(self, consumer: Any) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _balance(self, consumer: Any) -> None:
        tasks, queues = consumer.task_consumer, consumer.app.amqp.queues.consume_from
        names = [name for name in queues if model_of(name) or name == AGGREGATION_QUEUE]
        for name, allowed in zip(names, consumer.pool.allowance(names), strict=True):
            if allowed == 0:
                tasks.cancel_by_queue(name)
            elif not tasks.consuming_from(name):
                tasks.add_queue(queues[name])
        tasks.consume()
