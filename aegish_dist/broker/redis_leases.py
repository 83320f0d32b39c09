"""Messages delivered and not acknowledged yet, in Redis: held on a lease, settled in groups.

The formats are those of kombu's own Redis transport, so that workers of both kinds share queues and
rescue each other's messages. A lease needs no format either: a message is registered as if that
had happened `visibility_timeout - lease_s` ago, and its worker renews it while it lives.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from kombu.transport import redis, virtual
from kombu.utils.json import dumps, loads

from aegish_dist import lua
from aegish_dist.logs import get_logger

log = get_logger(__name__)

_GIVE_BACK, _OVERDUE, _RENEW = (
    lua.load(__package__, name) for name in ("give_back", "overdue", "renew")
)

GROUP = 200
"""Messages per script: a millisecond or two of the server's time, in which it does nothing else."""
RENEWALS_PER_LEASE = 4

T = TypeVar("T")


class Held(NamedTuple):
    """A message with where it came from."""

    tag: str
    payload: dict[str, Any]
    exchange: str
    routing_key: str

    @classmethod
    def of(cls, delivered: Any) -> "Held":
        """Read it from a message as it was published, or as kombu delivered it."""
        payload = loads(delivered) if isinstance(delivered, bytes) else delivered._raw
        properties = payload["properties"]
        info = properties["delivery_info"]
        return cls(properties["delivery_tag"], payload, info["exchange"], info["routing_key"])


class Unacked(redis.QoS):
    """What a channel has delivered: acknowledges and gives back in groups, renews leases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.registered: tuple[str, bytes] | None = None
        """Tag and text of the message that is being delivered; its fetch has registered it."""
        self._acked: list[str] = []
        self._returned: list[Held] = []
        self._renewed_at = self._swept_at = monotonic()
        self._heir: Unacked | None = None

    def inherit(self, lost: "Unacked") -> None:
        """Take over what a lost connection of this process held, and settles from now on.

        Its work goes on: unless the leases are renewed, every call that outlives them is made
        again by another worker.
        """
        self._delivered.update((tag, lost._delivered[tag]) for tag in lost._held())
        self._acked += lost._acked
        self._returned += lost._returned
        lost._heir = self
        # At once; and what others hold is theirs until they had time to come back and renew it.
        self._renewed_at = float("-inf")
        self._swept_at = monotonic() + self.channel.lease_s

    def append(self, message: Any, delivery_tag: str) -> None:
        """Remember a delivered message; its text is a fifth of its size as an object."""
        if self.registered and delivery_tag == self.registered[0]:
            virtual.QoS.append(self, self.registered[1], delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Free the message's place now; Redis hears of it with the next group."""
        if self._heir is not None:
            self._heir.ack(delivery_tag)
            return
        self._acked.append(delivery_tag)
        self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or put it at the end of its queue, with the next group."""
        if self._heir is not None:
            self._heir.reject(delivery_tag, requeue)
            return
        if requeue and delivery_tag in self._delivered:
            self._returned.append(Held.of(self._delivered[delivery_tag]))
        else:
            self._acked.append(delivery_tag)
        self._quick_ack(delivery_tag)

    def settle(self) -> None:
        """Tell Redis what was acknowledged and rejected; what fails is told again next time."""
        if self._acked:
            # Not in a transaction, as kombu does it: a Redis whose memory is full refuses to begin
            # one, and what is acknowledged makes room.
            with (
                self.channel.conn_or_acquire() as client,
                client.pipeline(transaction=False) as pipe,
            ):
                pipe.hdel(self.unacked_key, *self._acked)
                pipe.zrem(self.unacked_index_key, *self._acked)
                pipe.execute()
            self._acked.clear()
        if self._returned:
            self.give_back(self._returned, last=True)
            self._returned.clear()

    def renew(self) -> None:
        """Renew what is held, a few times per lease."""
        if monotonic() - self._renewed_at < self.channel.lease_s / RENEWALS_PER_LEASE:
            return
        for tags in _groups(self._held()):
            self.channel.run(_RENEW, [self.unacked_index_key], [self.channel.back_dated_s, *tags])
        self._renewed_at = monotonic()

    def give_back(
        self, messages: Iterable[Held], *, last: bool = False, unless_renewed: bool = False
    ) -> int:
        """Put messages back into their queues.

        Args:
            messages: Whatever of them is no longer held by anybody stays away.
            last: Behind all others; else in front of them.
            unless_renewed: Only those that nobody has renewed in time.

        Returns:
            How many went back.
        """
        push = "LPUSH" if last else "RPUSH"
        age_s = self.visibility_timeout if unless_renewed else ""
        keys = [self.unacked_key, self.unacked_index_key]
        return sum(
            self.channel.run(
                _GIVE_BACK, keys, [push, age_s, *(part for m in group for part in self._parts(m))]
            )
            for group in _groups(messages)
        )

    def restore_unacked(self, client: Any = None) -> None:
        """Give back all that is held; the channel closes."""
        self.give_back([Held.of(self._delivered[tag]) for tag in self._held()])
        self._delivered.clear()

    def restore_visible(self, start: int = 0, num: int | None = None, interval: int = 1) -> None:
        """Give back what dead workers held.

        Unlike kombu's, it needs no lock that a worker could take to its grave: a script gives each
        message back once.
        """
        if monotonic() - self._swept_at < self.channel.unacked_restore_interval / 2:
            return
        self._swept_at = monotonic()
        while found := self._overdue():
            messages = [message for message in found if message is not None]
            given_back = self.give_back(messages, unless_renewed=True)
            if given_back:
                log.warning("messages_of_a_dead_worker", given_back=given_back)
            self.settle()
            if len(found) < GROUP:
                return

    def _overdue(self) -> list[Held | None]:
        keys = [self.unacked_key, self.unacked_index_key]
        reply = self.channel.run(_OVERDUE, keys, [self.visibility_timeout, GROUP])
        return [self._read(tag, entry) for tag, entry in zip(reply[::2], reply[1::2], strict=True)]

    def _read(self, tag: bytes, entry: bytes) -> Held | None:
        with suppress(ValueError):
            match loads(entry):
                case [dict() as payload, str(exchange), str(routing_key)]:
                    return Held(tag.decode(), payload, exchange, routing_key)
        log.error("message_unreadable", bytes=len(entry))
        self._acked.append(tag.decode(errors="replace"))
        return None

    def _held(self) -> Sequence[str]:
        return [tag for tag in self._delivered if tag not in self._dirty]

    def _parts(self, message: Held) -> Iterator[str | int]:
        match message.payload:
            case {"headers": dict() as headers, "properties": {"delivery_info": dict() as info}}:
                headers["redelivered"] = info["redelivered"] = True
        queues = self.channel._lookup(message.exchange, message.routing_key)
        yield message.tag
        yield dumps(message.payload)
        yield len(queues)
        yield from (self.channel.global_keyprefix + queue for queue in queues)


def _groups(values: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(values)
    while group := list(islice(remaining, GROUP)):
        yield group
