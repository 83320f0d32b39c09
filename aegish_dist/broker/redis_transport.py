"""Celery's Redis transport with batched fetches: what kombu's does, for less than half the CPU.

kombu pops messages one by one, registers each as unacknowledged in a second step, and removes each
in a third; a worker killed between the first two takes its message along. Here one script moves up
to a batch of messages from the queues to the unacknowledged ones, and acknowledgements go out in
groups (see `unacked`). Names and formats in Redis are kombu's.
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
from aegish_dist.redis_errors import LOST, refusal_of

log = get_logger(__name__)

REFUSED_PAUSE_S = 1.0
"""While Redis takes no writes; shorter than any lease."""


class Poller(redis.MultiChannelPoller):
    """Drives the channels of a connection, from an event loop or from `drain_events`."""

    def __init__(self) -> None:
        super().__init__()
        self.wake_after: Callable[[float], Any] = lambda _seconds: None
        """Has the event loop, when there is one, come round once more after so many seconds."""

    def on_poll_start(self) -> None:
        """Settle and renew, then fetch."""
        with self._loss_noted():
            for channel in list(self._channels):
                channel.qos.settle()
                channel.qos.renew()
            super().on_poll_start()

    def on_readable(self, fileno: int) -> None:
        """Read what has come."""
        with self._loss_noted():
            super().on_readable(fileno)

    @contextmanager
    def _loss_noted(self) -> Iterator[None]:
        # The process outlives its connection, and works on: what it holds stays with it until its
        # leases end. Given back at once, as at an orderly end, all of it would be called twice.
        try:
            yield
        except LOST:
            for channel in self._channels:
                channel.do_restore = False
            raise
        except ResponseError as error:
            # Raised, it would end the worker. What was to be told is told again.
            if (refusal := refusal_of(error)) is None:
                raise
            log.warning("redis_takes_no_writes", problem=refusal, retry_in_s=REFUSED_PAUSE_S)
            sleep(REFUSED_PAUSE_S)

    def get(self, callback: Any, timeout: float | None = None) -> Any:
        """Wait for something to read, but not beyond the next fetch."""
        waits = [channel._fetch_at - monotonic() for channel in self._channels]
        pause_s = max(0.0, min(waits, default=0.0)) or LONGEST_PAUSE_S
        return super().get(callback, pause_s if timeout is None else min(timeout, pause_s))


class Transport(redis.Transport):
    """The transport itself."""

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
        """Return the transport."""
        return Transport


class AMQP(amqp.AMQP):
    """What Celery gets its connections from."""

    Connection = Connection


def _nothing() -> None:
    pass
