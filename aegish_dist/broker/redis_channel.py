"""Fetching of messages in batches; the same step in Redis registers them as unacknowledged.

No command waits in Redis: `BRPOP` cannot register the message that it pops, and `BLMOVE` watches
one queue. The channel polls, with a pause that grows while the queues are empty. Queues that were
empty at the last fetch are polled less often: open runs may have many of them.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from queue import Empty
from time import monotonic
from typing import Any

from kombu.transport import redis
from kombu.utils.json import loads
from redis.exceptions import ResponseError

from aegish_dist.broker.redis_leases import MessageLeases
from aegish_dist.broker.redis_messages import (
    MESSAGES_PER_SCRIPT,
    FetchedMessage,
    Message,
    UnackedMessage,
    delivery_properties,
)
from aegish_dist.logs import get_logger
from aegish_dist.redis_server import load_script

log = get_logger(__name__)

_FETCH = load_script(__package__, "fetch")

SHORTEST_PAUSE_S = 0.005
"""Between fetches while there are messages: one fetch replaces those acknowledged meanwhile."""
LONGEST_PAUSE_S = 0.1
"""Between fetches while there are none; an idle worker takes a hundredth of a core in all."""

BROADCAST_TIMEOUT_S = 1.0
"""Seconds to wait for the rest of a broadcast; meanwhile the worker does nothing else."""


def _unlimited(queues: Sequence[str]) -> list[int]:
    return [sys.maxsize] * len(queues)


class Channel(redis.Channel):
    """A channel of kombu's Redis transport that fetches batches.

    kombu's names are kept where it calls them: `_brpop_start` and `_brpop_read` fetch by a script.
    """

    Message = Message
    QoS = MessageLeases
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
    """Returns, before each fetch, how many more messages of each queue to fetch at most."""
    lease_s: float = 40.0
    """Seconds after the last renewal at which a message is requeued."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._unacknowledged_queues: set[str] = set()
        self._asked: Sequence[str] = ()
        self._room = 0
        self._empty: set[str] = set()
        self.fetch_at = self._ask_empty_at = 0.0
        self._pause_s = SHORTEST_PAUSE_S
        super().__init__(*args, **kwargs)

    @property
    def back_dated_s(self) -> float:
        """Seconds by which the time of registration is moved into the past.

        kombu requeues a message `visibility_timeout` after that time, a lease ends after `lease_s`.
        """
        return self.visibility_timeout - self.lease_s

    @property
    def silent_s(self) -> float:
        """Seconds for which Redis has owed the answer to a fetch; may be read from any thread."""
        return monotonic() - self._brpop_sent_at if self._in_poll else 0.0

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a Lua script.

        Returns:
            The reply of Redis.
        """
        with self.conn_or_acquire() as client:
            return client.execute_command(*self._eval(script, keys, arguments))

    def _eval(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        prefixed = [self.global_keyprefix + key for key in keys]
        return ["EVAL", script, len(prefixed), *prefixed, *arguments]

    @cached_property
    def subclient(self) -> Any:
        """Listener for broadcasts. It is read when its socket is readable, and never blocks."""
        client = self._create_client(asynchronous=True).pubsub()
        client.parse_response = partial(
            client.parse_response, block=False, timeout=BROADCAST_TIMEOUT_S
        )
        return client

    def _size(self, queue: str) -> int:
        # kombu uses a transaction, which a Redis with full memory refuses to begin.
        with self.conn_or_acquire() as client:
            return int(client.llen(queue))

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue; the next fetch is at once."""
        (self._unacknowledged_queues.add if no_ack else self._unacknowledged_queues.discard)(queue)
        self.fetch_at, self._pause_s = 0.0, SHORTEST_PAUSE_S
        self._empty.discard(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def _basic_cancel(self, consumer_tag: str) -> Any:
        # A fetch under way may bring messages of the queue that is cancelled.
        self._requeue_fetched()
        self._empty.discard(self._tag_to_queue.get(consumer_tag, ""))
        return super()._basic_cancel(consumer_tag)

    def _brpop_start(self, timeout: float | None = None) -> None:
        if monotonic() < self.fetch_at:
            return
        credit = self.qos.can_consume_max_estimate()  # None: no prefetch limit
        self._room = room = min(MESSAGES_PER_SCRIPT, sys.maxsize if credit is None else credit)
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
        # A health check before it could reconnect unnoticed, and this command would be sent twice.
        self._in_poll.send_command(*self._eval(_FETCH, keys, arguments), check_health=False)

    def _due(self) -> Sequence[str]:
        """Return the queues to fetch from, in the order of their turns."""
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
        self._wait(0.0 if len(fetched) == MESSAGES_PER_SCRIPT else SHORTEST_PAUSE_S)
        self._rotate(fetched)
        try:
            while fetched:
                queue, text, payload = fetched.popleft()
                self.qos.expect(delivery_properties(payload)["delivery_tag"], text)
                self.connection._deliver(payload, queue)
        finally:
            self._requeue(fetched)
        return True

    def _read_fetched(self) -> deque[FetchedMessage]:
        connection = self.client.connection
        try:
            reply = self.client.parse_response(connection, "EVAL")
        except self.connection_errors:
            connection.disconnect()
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        fetched: deque[FetchedMessage] = deque()
        for number, message in zip(reply[::2], reply[1::2], strict=True):
            try:
                payload = loads(message) if number else None
            except ValueError:
                payload = None
            if payload is None:
                log.error("message_unreadable", bytes=len(message))
            else:
                fetched.append(FetchedMessage(self._asked[number - 1], message, payload))
        return fetched

    def _note_empty(self, fetched: Sequence[FetchedMessage]) -> None:
        given = {message.queue for message in fetched}
        self._empty -= given
        if len(fetched) < self._room:
            self._empty.update(queue for queue in self._asked if queue not in given)

    def _rotate(self, fetched: Sequence[FetchedMessage]) -> None:
        # Queues that gave messages go behind all others, in the order of their last message. With a
        # small prefetch limit, a queue behind many empty ones would otherwise get every turn.
        latest_first = dict.fromkeys(message.queue for message in reversed(fetched))
        for queue in reversed(latest_first):
            self._queue_cycle.rotate(queue)

    def _requeue_fetched(self) -> None:
        if self._in_poll:
            with suppress(*self.connection_errors):
                self._requeue(self._read_fetched())

    def _requeue(self, fetched: deque[FetchedMessage]) -> None:
        if fetched:
            self.qos.requeue(
                UnackedMessage.of(message.text)
                for message in fetched
                if message.queue not in self._unacknowledged_queues
            )

    def _wait_longer(self) -> None:
        self._wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _wait(self, seconds: float) -> None:
        self.fetch_at = monotonic() + seconds
        self.connection.cycle.wake_after(seconds)

    def keep_leases(self) -> None:
        """Do not requeue when this channel closes: the process works on and renews its leases.

        Requeued at once, as after an orderly end, every message would lead to a second call.
        """
        self.do_restore = False

    def close(self) -> None:
        """Settle, requeue the messages that are held, and close."""
        if not self.closed:
            self._requeue_fetched()
            if self._qos is not None:
                with suppress(*self.connection_errors, ResponseError):
                    self._qos.settle()
        super().close()
