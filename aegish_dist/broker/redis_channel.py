"""Fetching messages in batches, registered as unacknowledged in the same step.

Nothing here waits in Redis: `BRPOP` cannot register what it pops, and `BLMOVE` watches one queue.
The channel asks again after a pause that grows while there is nothing. Queues that gave nothing the
last time are asked less often than others: those of runs that never end may be many.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from queue import Empty
from time import monotonic
from typing import Any, NamedTuple

from kombu.exceptions import DecodeError
from kombu.transport import redis, virtual
from kombu.utils.json import loads
from redis.exceptions import ResponseError

from aegish_dist import lua
from aegish_dist.broker.redis_leases import GROUP, Held, Unacked
from aegish_dist.logs import get_logger

log = get_logger(__name__)

_TAKE = lua.load(__package__, "take")

SHORTEST_PAUSE_S = 0.005
"""Between fetches while there are messages: places freed meanwhile are filled by one fetch."""
LONGEST_PAUSE_S = 0.1
"""Between fetches while there are none; an idle worker takes a hundredth of a core in all."""


REST_S = 1.0
"""In which the rest of a broadcast comes; meanwhile the worker does nothing else."""


def _unlimited(queues: Sequence[str]) -> list[int]:
    return [sys.maxsize] * len(queues)


class Fetched(NamedTuple):
    """A message that has come and is not delivered yet."""

    queue: str
    text: bytes
    payload: dict[str, Any]


class Message(virtual.Message):
    """A message, or something forged: then Celery is told that it cannot be decoded, and drops it.

    Raised in the middle of a batch, the error would end the worker, and the next one after it.
    """

    def __init__(self, payload: dict[str, Any], channel: Any = None, **kwargs: Any) -> None:
        try:
            super().__init__(payload, channel, **kwargs)
            self._check()
        except Exception:
            self.errors = [sys.exc_info()]
            super().__init__({"properties": _properties(payload)}, channel, **kwargs)
            self._raw = payload

    def _check(self) -> None:
        if not (isinstance(self.headers, dict) and isinstance(self.properties, dict)):
            raise DecodeError("headers or properties are no map")
        if not all(isinstance(part, str) for part in (self.content_type, self.content_encoding)):
            raise DecodeError("content type or encoding are no text")


def _properties(payload: Any) -> dict[str, Any]:
    match payload:
        case {"properties": {"delivery_tag": str(), "delivery_info": dict()} as properties}:
            return properties
    return {"delivery_tag": "", "delivery_info": {}}


class Channel(redis.Channel):
    """A channel that fetches batches."""

    Message = Message
    QoS = Unacked
    from_transport_options = (
        *(
            option
            for option in redis.Channel.from_transport_options
            if option not in {"ack_emulation", "priority_steps"}
        ),
        "allowance",
        "lease_s",
    )

    priority_steps = (0,)
    """One list per queue; every message has the same priority."""
    allowance: Callable[[Sequence[str]], Sequence[int]] = staticmethod(_unlimited)
    """Asked before each fetch how many more messages of each queue may come; 0 leaves it alone."""
    lease_s: float = 40.0
    """Seconds after the last renewal when a message is given back to its queue."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._unacknowledged_queues: set[str] = set()
        self._asked: Sequence[str] = ()
        self._room = 0
        self._empty: set[str] = set()
        self._fetch_at = self._ask_empty_at = 0.0
        self._pause_s = SHORTEST_PAUSE_S
        super().__init__(*args, **kwargs)

    @property
    def back_dated_s(self) -> float:
        """How much older than it is a message is made, so that its time is up with its lease."""
        return self.visibility_timeout - self.lease_s

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script and return its reply."""
        with self.conn_or_acquire() as client:
            return client.execute_command(*self._eval(script, keys, arguments))

    def _eval(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        prefixed = [self.global_keyprefix + key for key in keys]
        return ["EVAL", script, len(prefixed), *prefixed, *arguments]

    @cached_property
    def subclient(self) -> Any:
        """Listener for broadcasts; it is read when something has come, and never waited for."""
        client = self._create_client(asynchronous=True).pubsub()
        client.parse_response = partial(client.parse_response, block=False, timeout=REST_S)
        return client

    def _size(self, queue: str) -> int:
        # Not in a transaction, as kombu asks: a Redis whose memory is full refuses to begin one.
        with self.conn_or_acquire() as client:
            return int(client.llen(queue))

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue, beginning at once."""
        (self._unacknowledged_queues.add if no_ack else self._unacknowledged_queues.discard)(queue)
        self._fetch_at, self._pause_s = 0.0, SHORTEST_PAUSE_S
        self._empty.discard(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def _basic_cancel(self, consumer_tag: str) -> Any:
        # What is on its way might come from the queue that is left.
        self._give_back_fetched()
        self._empty.discard(self._tag_to_queue.get(consumer_tag, ""))
        return super()._basic_cancel(consumer_tag)

    def _brpop_start(self, timeout: float | None = None) -> None:
        if monotonic() < self._fetch_at:
            return
        credit = self.qos.can_consume_max_estimate()  # None: without limit
        self._room = room = GROUP if credit is None else min(credit, GROUP)
        queues = self._due()
        allowed = dict(zip(queues, self.allowance(queues), strict=True))
        self._asked = [queue for queue, count in allowed.items() if count > 0]
        if not self._asked:
            self._wait_longer()
            return
        arguments = [self.back_dated_s, room]
        for queue in self._asked:
            arguments += [min(allowed[queue], room), int(queue not in self._unacknowledged_queues)]
        keys = [self.unacked_key, self.unacked_index_key, *self._asked]
        self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        # A ping before it would connect again unseen, and this would be sent twice.
        self._in_poll.send_command(*self._eval(_TAKE, keys, arguments), check_health=False)

    def _due(self) -> Sequence[str]:
        """Return the queues to ask, those that come first in front."""
        queues: Sequence[str] = self._queue_cycle.consume(len(self._active_queues))
        if monotonic() < self._ask_empty_at:
            return [queue for queue in queues if queue not in self._empty] or queues
        self._ask_empty_at = monotonic() + LONGEST_PAUSE_S
        return queues

    def _brpop_read(self, **options: Any) -> bool:
        fetched = self._read_fetched()
        self._note_empty(fetched)
        if not fetched:
            self._wait_longer()
            raise Empty
        self._pause_s = SHORTEST_PAUSE_S
        self._wait(0.0 if len(fetched) == GROUP else SHORTEST_PAUSE_S)
        self._rotate(fetched)
        try:
            while fetched:
                queue, text, payload = fetched.popleft()
                self.qos.registered = _properties(payload)["delivery_tag"], text
                self.connection._deliver(payload, queue)
        finally:
            self._give_back(fetched)
        return True

    def _read_fetched(self) -> deque[Fetched]:
        connection = self.client.connection
        try:
            reply = self.client.parse_response(connection, "EVAL")
        except self.connection_errors:
            connection.disconnect()
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        fetched: deque[Fetched] = deque()
        for number, message in zip(reply[::2], reply[1::2], strict=True):
            try:
                payload = loads(message) if number else None
            except ValueError:
                payload = None
            if payload is None:
                log.error("message_unreadable", bytes=len(message))
            else:
                fetched.append(Fetched(self._asked[number - 1], message, payload))
        return fetched

    def _note_empty(self, fetched: Sequence[Fetched]) -> None:
        given = {message.queue for message in fetched}
        self._empty -= given
        if len(fetched) < self._room:
            self._empty.update(queue for queue in self._asked if queue not in given)

    def _rotate(self, fetched: Sequence[Fetched]) -> None:
        # Whoever has got something goes behind all others, in the order of their last message: with
        # few places, others would be passed over for the queue behind many empty ones.
        latest_first = dict.fromkeys(message.queue for message in reversed(fetched))
        for queue in reversed(latest_first):
            self._queue_cycle.rotate(queue)

    def _give_back_fetched(self) -> None:
        if self._in_poll:
            with suppress(*self.connection_errors):
                self._give_back(self._read_fetched())

    def _give_back(self, fetched: deque[Fetched]) -> None:
        if fetched:
            self.qos.give_back(
                Held.of(message.text)
                for message in fetched
                if message.queue not in self._unacknowledged_queues
            )

    def _wait_longer(self) -> None:
        self._wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _wait(self, seconds: float) -> None:
        self._fetch_at = monotonic() + seconds
        self.connection.cycle.wake_after(seconds)

    def close(self) -> None:
        """Settle what is open, give back what is held, and close."""
        if not self.closed:
            self._give_back_fetched()
            if self._qos is not None:
                with suppress(*self.connection_errors, ResponseError):
                    self._qos.settle()
        super().close()
