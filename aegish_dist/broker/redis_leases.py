"""Messages that a worker has fetched from Redis: their format and their leases."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from time import monotonic
from typing import Any

from kombu.exceptions import DecodeError
from kombu.transport import virtual
from redis.exceptions import ResponseError

from aegish_dist.logs import get_logger
from aegish_dist.redis_server import LOST, load_script

log = get_logger(__name__)

# The hash of unacknowledged messages, each behind the name of its queue and a line break.
UNACKED = "aegish:unacked"
# The sorted set of the ends of their leases, in seconds of Redis' clock.
LEASES = "aegish:leases"

# Upper bound per script: it takes Redis 1 to 2 ms, in which it serves no other client.
MESSAGES_PER_SCRIPT = 200

RENEWALS_PER_LEASE = 4

_RENEW, _REQUEUE = (load_script(__package__, name) for name in ("renew", "requeue"))


class Message(virtual.Message):
    """A message whose format is checked.

    An error is kept instead of raised: Celery then drops the message as one that cannot be decoded.
    Raised in the middle of a batch, it would end the worker, and the next worker after it.
    """

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        try:
            super().__init__(payload, channel, **kwargs)
            maps = self.headers, self.properties, self.delivery_info
            texts = self.content_type, self.content_encoding
            if {*map(type, maps)} != {dict} or {*map(type, texts)} != {str}:
                raise DecodeError("a part of the message is of another type")
        except Exception:
            self.errors = [sys.exc_info()]
            tag = payload["properties"]["delivery_tag"]
            empty = {"properties": {"delivery_tag": tag, "delivery_info": {}}}
            super().__init__(empty, channel, **kwargs)


class MessageLeases:
    """The unacknowledged messages of a channel: renews leases, acknowledges and rejects in groups.

    kombu calls this class the QoS of a channel.
    """

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.prefetch_count = 0  # most messages that may be held; 0: any number
        self.kept = False  # whether the messages stay leased when the channel closes
        self.held: dict[str, None] = {}  # tags of the messages, in the order of their delivery
        self._acked: list[str] = []
        self._returned: list[str] = []
        self._renewed_at = self._swept_at = monotonic()
        self._successor: MessageLeases | None = None

    @property
    def room(self) -> int:
        """How many more messages may be held, at most as many as one script moves."""
        limit = self.prefetch_count or sys.maxsize
        return max(0, min(limit - len(self.held), MESSAGES_PER_SCRIPT))

    @property
    def settled(self) -> bool:
        """Whether Redis knows of every acknowledgement and rejection."""
        return not self._acked and not self._returned

    def take_over(self, lost: "MessageLeases") -> None:
        """Continue the leases of a lost connection of this process.

        The process works on. Without renewal, another worker would make every call again that
        takes longer than its lease. Later acknowledgements that reach `lost` go on to this one.
        """
        self.held |= lost.held
        self._acked += lost._acked
        self._returned += lost._returned
        lost._successor = self
        self._renewed_at = float("-inf")  # at once

    def append(self, _message: Any, delivery_tag: str) -> None:
        """Hold a message; the script that fetched it has registered it."""
        self.held[delivery_tag] = None

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message: at once for the prefetch limit, with the next group in Redis."""
        self._settle_later(delivery_tag, requeue=False)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or put it at the end of its queue, with the next group."""
        self._settle_later(delivery_tag, requeue=requeue)

    def _settle_later(self, tag: str, *, requeue: bool) -> None:
        if self._successor is not None:
            self._successor._settle_later(tag, requeue=requeue)
            return
        (self._returned if requeue else self._acked).append(tag)
        self.held.pop(tag, None)

    def settle(self) -> None:
        """Send acknowledgements and rejections to Redis; after an error, the next call repeats."""
        if self._acked:
            # No transaction: a Redis whose memory is full refuses to begin one, although
            # acknowledging frees memory.
            with self.channel.client.pipeline(transaction=False) as pipe:
                pipe.hdel(UNACKED, *self._acked)
                pipe.zrem(LEASES, *self._acked)
                pipe.execute()
            self._acked.clear()
        if self._returned:
            self._requeue(self._returned, "LPUSH")
            self._returned.clear()

    def renew(self) -> None:
        """Renew all leases when a quarter of their length has passed; else do nothing.

        A late renewal shows that Redis was away or took no writes, for every worker and perhaps for
        longer than a lease. No lease then counts as expired until each could be renewed.
        """
        age_s = monotonic() - self._renewed_at
        lease_s = self.channel.lease_s
        if age_s < lease_s / RENEWALS_PER_LEASE:
            return
        # Without messages too: it tells whether Redis takes writes.
        for tags in _in_groups(self.held) if self.held else [[]]:
            self.channel.client.eval(_RENEW, 1, LEASES, lease_s, *tags)
        self._renewed_at = monotonic()
        if age_s > lease_s / 2:
            self._swept_at = monotonic() + lease_s

    def sweep(self) -> None:
        """Requeue messages whose leases have expired, at an interval."""
        if monotonic() - self._swept_at < self.channel.sweep_s:
            return
        self._swept_at = monotonic()
        requeued = MESSAGES_PER_SCRIPT
        while requeued == MESSAGES_PER_SCRIPT:
            requeued = self._run_requeue([], "RPUSH")
            if requeued:
                log.warning("expired_leases_requeued", messages=requeued)

    def restore_unacked_once(self) -> None:
        """Requeue all messages in front of the waiting ones, in their order, as the channel closes.

        Kept leases stay.
        """
        if not self.kept:
            with suppress(*LOST, ResponseError):
                self._requeue(reversed(self.held), "RPUSH")
                self.held.clear()

    def _requeue(self, tags: Iterable[str], push: str) -> None:
        for group in _in_groups(tags):
            self._run_requeue(group, push)

    def _run_requeue(self, tags: Sequence[str], push: str) -> int:
        limits = (self.channel.connection.wake_channel, MESSAGES_PER_SCRIPT, push)
        return int(self.channel.client.eval(_REQUEUE, 2, UNACKED, LEASES, *limits, *tags))


def _in_groups(tags: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(tags)
    while group := list(islice(remaining, MESSAGES_PER_SCRIPT)):
        yield group
