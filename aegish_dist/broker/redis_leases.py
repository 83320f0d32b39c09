"""Leases on messages in Redis: delivered messages stay with a worker while it renews them.

The formats in Redis are those of kombu's own transport, so that workers of both kinds share queues
and requeue each other's messages. A lease needs no format of its own: a message is registered with
a time `visibility_timeout - lease_s` in the past, and its worker renews that time while it runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from kombu.transport import redis, virtual
from kombu.utils.json import dumps, loads

from aegish_dist.broker.redis_messages import MESSAGES_PER_SCRIPT, UnackedMessage, in_groups
from aegish_dist.logs import get_logger
from aegish_dist.redis_server import load_script

log = get_logger(__name__)

_EXPIRED, _RENEW, _REQUEUE = (
    load_script(__package__, name) for name in ("expired", "renew", "requeue")
)

RENEWALS_PER_LEASE = 4


class MessageLeases(redis.QoS):
    """The unacknowledged messages of a channel: renews leases, acknowledges and rejects in groups.

    kombu calls this class the QoS of a channel.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._registered: tuple[str, bytes] | None = None
        self._acked: list[str] = []
        self._returned: list[UnackedMessage] = []
        self._renewed_at = self._swept_at = monotonic()
        self._successor: MessageLeases | None = None

    def take_over(self, lost: "MessageLeases") -> None:
        """Continue the leases of a lost connection of this process.

        The process works on. Without renewal, another worker would make every call again that
        takes longer than its lease. Later acknowledgements that reach `lost` go on to this one.
        """
        self._delivered.update((tag, lost._delivered[tag]) for tag in lost._tags())
        self._acked += lost._acked
        self._returned += lost._returned
        lost._successor = self
        # Renew at once, and give other workers time to reconnect and renew before a sweep.
        self._renewed_at = float("-inf")
        self._swept_at = monotonic() + self.channel.lease_s

    def expect(self, tag: str, text: bytes) -> None:
        """Name the message that is delivered next; the script that fetched it has registered it."""
        self._registered = tag, text

    def append(self, message: Any, delivery_tag: str) -> None:
        """Add a delivered message; its JSON takes a fifth of the memory of the object."""
        if self._registered and delivery_tag == self._registered[0]:
            virtual.QoS.append(self, self._registered[1], delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message: at once for the prefetch limit, with the next group in Redis."""
        if self._successor is not None:
            self._successor.ack(delivery_tag)
            return
        self._acked.append(delivery_tag)
        self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or put it at the end of its queue, with the next group."""
        if self._successor is not None:
            self._successor.reject(delivery_tag, requeue)
            return
        if requeue and delivery_tag in self._delivered:
            self._returned.append(UnackedMessage.of(self._delivered[delivery_tag]))
        else:
            self._acked.append(delivery_tag)
        self._quick_ack(delivery_tag)

    def settle(self) -> None:
        """Send acknowledgements and rejections to Redis; after an error, the next call repeats."""
        if self._acked:
            # kombu uses a transaction. A Redis whose memory is full refuses to begin one, although
            # acknowledging frees memory.
            with (
                self.channel.conn_or_acquire() as client,
                client.pipeline(transaction=False) as pipe,
            ):
                pipe.hdel(self.unacked_key, *self._acked)
                pipe.zrem(self.unacked_index_key, *self._acked)
                pipe.execute()
            self._acked.clear()
        if self._returned:
            self.requeue(self._returned, last=True)
            self._returned.clear()

    def renew(self) -> None:
        """Renew all leases when a quarter of their length has passed; else do nothing."""
        if monotonic() - self._renewed_at < self.channel.lease_s / RENEWALS_PER_LEASE:
            return
        for tags in in_groups(self._tags()):
            self.channel.run(_RENEW, [self.unacked_index_key], [self.channel.back_dated_s, *tags])
        self._renewed_at = monotonic()

    def requeue(
        self,
        messages: Iterable[UnackedMessage],
        *,
        last: bool = False,
        unless_renewed: bool = False,
    ) -> int:
        """Put unacknowledged messages back into their queues, each at most once.

        Args:
            messages: Messages; one that was acknowledged or requeued meanwhile is left out.
            last: Whether they go behind the waiting messages instead of in front of them.

        Returns:
            How many were requeued.
        """
        push = "LPUSH" if last else "RPUSH"
        age_s = self.visibility_timeout if unless_renewed else ""
        keys = [self.unacked_key, self.unacked_index_key]
        return sum(
            self.channel.run(
                _REQUEUE, keys, [push, age_s, *(part for m in group for part in self._parts(m))]
            )
            for group in in_groups(messages)
        )

    def restore_unacked(self, client: Any = None) -> None:
        """Requeue all unacknowledged messages; the channel closes."""
        self.requeue([UnackedMessage.of(self._delivered[tag]) for tag in self._tags()])
        self._delivered.clear()

    def restore_visible(self, start: int = 0, num: int | None = None, interval: int = 1) -> None:
        """Requeue messages whose leases have expired; kombu calls it at an interval.

        kombu's takes a lock, which a killed worker leaves locked for five minutes. This one needs
        none: the script requeues each message once.
        """
        if monotonic() - self._swept_at < self.channel.unacked_restore_interval / 2:
            return
        self._swept_at = monotonic()
        while found := self._expired():
            messages = [message for message in found if message is not None]
            requeued = self.requeue(messages, unless_renewed=True)
            if requeued:
                log.warning("expired_leases_requeued", messages=requeued)
            self.settle()
            if len(found) < MESSAGES_PER_SCRIPT:
                return

    def _expired(self) -> list[UnackedMessage | None]:
        keys = [self.unacked_key, self.unacked_index_key]
        reply = self.channel.run(_EXPIRED, keys, [self.visibility_timeout, MESSAGES_PER_SCRIPT])
        return [self._read(tag, entry) for tag, entry in zip(reply[::2], reply[1::2], strict=True)]

    def _read(self, tag: bytes, entry: bytes) -> UnackedMessage | None:
        with suppress(ValueError):
            match loads(entry):
                case [dict() as payload, str(exchange), str(routing_key)]:
                    return UnackedMessage(tag.decode(), payload, exchange, routing_key)
        log.error("message_unreadable", bytes=len(entry))
        self._acked.append(tag.decode(errors="replace"))
        return None

    def _tags(self) -> Sequence[str]:
        return [tag for tag in self._delivered if tag not in self._dirty]

    def _parts(self, message: UnackedMessage) -> Iterator[str | int]:
        match message.payload:
            case {"headers": dict() as headers, "properties": {"delivery_info": dict() as info}}:
                headers["redelivered"] = info["redelivered"] = True
        queues = self.channel._lookup(message.exchange, message.routing_key)
        yield message.tag
        yield dumps(message.payload)
        yield len(queues)
        yield from (self.channel.global_keyprefix + queue for queue in queues)
