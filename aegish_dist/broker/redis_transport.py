"""A Redis transport for Celery that fetches batches, for less than half the CPU of kombu's own.

kombu pops messages one by one, registers each as unacknowledged in a second step, and removes each
in a third; when a worker is killed between the first two, its message is lost. Here one script
moves a batch of messages from the queues to the unacknowledged ones, and acknowledgements are sent
in groups (see `redis_leases`). Names and formats in Redis are kombu's.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import kombu
from celery.app import amqp
from kombu.transport import redis
from redis.exceptions import ResponseError

from aegish_dist.broker.redis_channel import LONGEST_PAUSE_S, Channel
from aegish_dist.logs import get_logger
from aegish_dist.redis_server import LOST, refusal_of

log = get_logger(__name__)

REFUSED_PAUSE_S = 1.0
"""Seconds between attempts while Redis takes no writes; shorter than any lease."""


class Poller(redis.MultiChannelPoller):
    """Drives the channels of a connection, from an event loop or from `drain_events`."""

    def __init__(self) -> None:
        super().__init__()
        self.wake_after: Callable[[float], Any] = lambda _seconds: None
        """Wakes the event loop after a number of seconds; without an event loop, does nothing."""

    def on_poll_start(self) -> None:
        """Settle, renew leases, then fetch."""
        with self._failures_noted():
            for channel in list(self._channels):
                channel.qos.settle()
                channel.qos.renew()
            super().on_poll_start()

    def on_readable(self, fileno: int) -> None:
        """Read the reply or broadcast that has arrived."""
        with self._failures_noted():
            super().on_readable(fileno)

    @contextmanager
    def _failures_noted(self) -> Iterator[None]:
        try:
            yield
        except LOST:
            for channel in self._channels:
                channel.keep_leases()
            raise
        except ResponseError as error:
            # Raised, it would end the worker. Every command is repeated at the next round.
            if (refusal := refusal_of(error)) is None:
                raise
            log.warning("redis_takes_no_writes", problem=refusal, retry_in_s=REFUSED_PAUSE_S)
            sleep(REFUSED_PAUSE_S)

    def get(self, callback: Any, timeout: float | None = None) -> Any:
        """Wait for something to read, at most until the next fetch."""
        waits = [channel.fetch_at - monotonic() for channel in self._channels]
        pause_s = max(0.0, min(waits, default=0.0)) or LONGEST_PAUSE_S
        return super().get(callback, pause_s if timeout is None else min(timeout, pause_s))


class Transport(redis.Transport):
    """kombu's Redis transport with these channels and this poller."""

    Channel = Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = Poller()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Let an event loop drive the channels."""
        super().register_with_event_loop(connection, loop)
        self.cycle.wake_after = lambda seconds: loop.call_later(seconds, _nothing)


class Connection(kombu.Connection):
    """A connection that uses this transport under the URL of kombu's."""

    def get_transport_cls(self) -> type[Transport]:
        """Return this transport."""
        return Transport


class AMQP(amqp.AMQP):
    """Celery's message layer with connections that use this transport."""

    Connection = Connection


def _nothing() -> None:
    pass
