"""Redis as a broker: a transport on kombu's base for virtual transports.

One script moves a batch of messages from their queues to the unacknowledged ones, so that a killed
worker loses none. A worker holds messages on leases and renews them while it runs. Acknowledgements
are sent in groups. A worker whose queues are empty sleeps until Redis publishes the name of a queue
that has got messages. Because a wake-up may be lost with a connection, a worker also looks by
itself every two seconds.

Redis holds a list for each queue, a hash of unacknowledged messages by delivery tag, a sorted set
of the same tags by the end of their leases, and for each exchange a set of its queues.
"""

import json
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from queue import Empty
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import redis
from kombu.transport import virtual
from kombu.utils.json import dumps
from redis.backoff import NoBackoff
from redis.exceptions import DataError, InvalidResponse, ReadOnlyError, ResponseError
from redis.retry import Retry

from aegish_dist.broker.redis_leases import LEASES, UNACKED, Message, MessageLeases
from aegish_dist.logs import get_logger
from aegish_dist.redis_server import LOST, load_script, refusal_of

log = get_logger(__name__)

# Prefix of the sets of queues that are bound to an exchange, each behind its routing key.
BOUND = "aegish:bound:"

# Between fetches while there are messages: one fetch replaces those acknowledged meanwhile.
SHORTEST_PAUSE_S = 0.005
# Between rounds while messages are held or must not be fetched, so that acknowledgements leave.
LONGEST_PAUSE_S = 0.1
REST_S = 2.0  # between fetches from queues that were empty and of which Redis has published nothing
# Seconds between attempts while Redis takes no writes; shorter than any lease.
REFUSED_PAUSE_S = 1.0
AT_ONCE_S = 0.001  # Celery's hub takes a timer of 0 s for none

# Seconds between pings on the connection for wake-ups and broadcasts; it is lost when the last two
# were not answered.
PING_S = 10.0

_FETCH = load_script(__package__, "fetch")


class Channel(virtual.Channel):
    """A channel that fetches batches."""

    Message = Message
    QoS = MessageLeases
    supports_fanout = True

    def __init__(self, connection: "Transport", **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        options = connection.client.transport_options
        self.allowance: Callable[[Sequence[str]], Sequence[int]]
        # Returns, before each fetch, how many more messages of each queue to fetch at most.
        self.allowance = options.get("allowance", lambda queues: [sys.maxsize] * len(queues))
        # Seconds after the last renewal at which a message is requeued.
        self.lease_s: float = options.get("lease_s", 40.0)
        # Seconds between searches for expired leases.
        self.sweep_s: float = options.get("sweep_s", 5.0)
        # A renewal that is due while the channel rests would otherwise count as late.
        self._rest_s = min(REST_S, self.lease_s / 10)
        # Queues that are consumed, in the order of their turns, and whether without
        # acknowledgements.
        self.queues: dict[str, bool] = {}
        # Queues of broadcasts that are consumed, by their exchange.
        self.broadcasts: dict[str, str] = {}
        self._drafts: list[str] | None = None
        self._queue_of: dict[str, str] = {}
        self._empty: set[str] = set()
        self._ask_all_at = self._fetch_at = 0.0
        self._pause_s = SHORTEST_PAUSE_S
        self._tags = (f"{uuid4().hex}:{number}:" for number in count())

    @property
    def client(self) -> Any:
        return self.connection.redis

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> Any:
        """Consume from a queue; the next fetch is at once."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self._queue_of[consumer_tag] = queue
        exchange = self.connection.broadcast_by.get(queue)
        if exchange is not None:
            self.broadcasts[exchange] = queue
        else:
            self.queues[queue] = no_ack
            self.wake(queue)
        self.connection.listen(exchange)

    def basic_cancel(self, consumer_tag: str) -> Any:
        queue = self._queue_of.pop(consumer_tag, "")
        self.queues.pop(queue, None)
        self.broadcasts = {key: name for key, name in self.broadcasts.items() if name != queue}
        return super().basic_cancel(consumer_tag)

    def wake(self, queue: str | None) -> None:
        """Fetch from a queue at once, None: from all, because messages may wait."""
        if queue is None or queue in self.queues:
            self._empty = set() if queue is None else self._empty - {queue}
            self._fetch_at = 0.0
            self._pause_s = SHORTEST_PAUSE_S

    def turn(self) -> float:
        """Settle, renew, sweep and fetch what is due; return the seconds until the next turn."""
        self.qos.settle()
        self.qos.renew()
        if self.queues:
            self.qos.sweep()
            if monotonic() >= self._fetch_at:
                self._fetch()
        pause_s = self._fetch_at - monotonic() if self.queues else self._rest_s
        busy = self.qos.held or not self.qos.settled
        return min(pause_s, LONGEST_PAUSE_S if busy else self._rest_s)

    def _fetch(self) -> None:
        if monotonic() >= self._ask_all_at:
            self._empty.clear()
            self._ask_all_at = monotonic() + REST_S
        queues = [queue for queue in self.queues if queue not in self._empty]
        if not queues:
            self._fetch_at = self._ask_all_at
            return
        room = self.qos.room
        allowed = self._allowed(queues, room)
        messages = []
        if allowed and room:
            messages = self._fetch_from(allowed, room)
        givers = dict.fromkeys(queue for queue, _, _ in reversed(messages))
        if len(messages) < room:
            self._empty |= allowed.keys() - givers
        if not messages:
            self._fetch_at = monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            return
        self._pause_s = SHORTEST_PAUSE_S
        self._fetch_at = monotonic()
        if len(messages) < room:
            self._fetch_at += SHORTEST_PAUSE_S
        # Queues that gave messages go behind all others, in the order of their last message. With a
        # small prefetch limit, a queue behind many empty ones would otherwise get every turn.
        for queue in reversed(givers):
            self.queues[queue] = self.queues.pop(queue)
        remaining = deque(messages)
        try:
            while remaining:
                self._deliver(*remaining.popleft())
        finally:
            for _, tag, _ in remaining:
                self.qos.reject(tag, requeue=True)

    def _allowed(self, queues: Sequence[str], room: int) -> dict[str, int]:
        """Return how many messages to fetch from each queue that may give some."""
        allowed = {}
        for queue, number in zip(queues, self.allowance(queues), strict=True):
            if number > 0:
                allowed[queue] = min(number, room)
        return allowed

    def _fetch_from(self, allowed: Mapping[str, int], room: int) -> list[tuple[str, str, bytes]]:
        queues = list(allowed)
        prefix = next(self._tags)
        keys = (UNACKED, LEASES, *queues)
        limits = (self.lease_s, room, prefix, *allowed.values())
        # Numbers of queues, from 1 on, and a message after each.
        reply = iter(self.client.eval(_FETCH, len(keys), *keys, *limits))
        messages: list[tuple[str, str, bytes]] = []
        for number in reply:
            tag = f"{prefix}{len(messages)}"
            messages.append((queues[number - 1], tag, next(reply)))
        return messages

    def _deliver(self, queue: str, tag: str, text: bytes) -> None:
        # A consumer that was cancelled by a message before this one does not get it.
        if queue not in self.queues:
            self.qos.reject(tag, requeue=True)
            return
        payload = _payload(text, tag)
        if payload is None:
            log.error("message_unreadable", bytes=len(text))
            self.qos.ack(tag)
            return
        if self.queues[queue]:
            self.qos.ack(tag)
        self.connection.on_message_ready(self, payload, queue)

    @contextmanager
    def drafts(self) -> Iterator[list[str]]:
        """Collect the messages that the body publishes, instead of sending them."""
        drafts: list[str] = []
        self._drafts = drafts
        try:
            yield drafts
        finally:
            self._drafts = None

    def keep_leases(self) -> None:
        """Do not requeue when this channel closes: the process works on and renews its leases.

        Requeued at once, as after an orderly end, every message would lead to a second call.
        """
        self.qos.kept = True

    def close(self) -> None:
        """Settle, requeue the messages that are held, and close; kept leases wait for no Redis."""
        if not self.closed and not self.qos.kept:
            try:
                self.qos.settle()
            except LOST:
                self.keep_leases()  # Redis does not answer; waiting for it once is enough
            except ResponseError as error:
                log.warning("not_settled", problem=refusal_of(error) or type(error).__name__)
        super().close()

    def get_table(self, exchange: str) -> list[tuple[str, None, str]]:
        """Return the routing keys of an exchange and the queues bound by them."""
        table = []
        for member in self.client.smembers(BOUND + exchange):
            routing_key, queue = member.decode().split("\n")
            table.append((routing_key, None, queue))
        return table

    def _queue_bind(self, exchange: str, routing_key: str, _pattern: Any, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":
            self.connection.broadcast_by[queue] = exchange
        else:
            self.client.sadd(BOUND + exchange, f"{routing_key}\n{queue}")

    def _delete(self, queue: str, exchange: str, routing_key: str, *_: Any, **__: Any) -> None:
        self.client.srem(BOUND + exchange, f"{routing_key}\n{queue}")
        self.client.delete(queue)

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        if self._drafts is not None:
            self._drafts.append(dumps(message))
            return
        with self.client.pipeline(transaction=False) as pipe:
            pipe.lpush(queue, dumps(message))
            pipe.publish(self.connection.wake_channel, queue)
            pipe.execute()

    def _put_fanout(self, exchange: str, message: Any, _routing_key: str, **_: Any) -> None:
        self.client.publish(self.connection.broadcast_channel(exchange), dumps(message))

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        # For commands that empty a queue: without a lease, and so without acknowledgement.
        text = self.client.rpop(queue)
        if text is None:
            raise Empty
        return json.loads(text)

    def _size(self, queue: str) -> int:
        return int(self.client.llen(queue))

    def _purge(self, queue: str) -> int:
        with self.client.pipeline(transaction=False) as pipe:
            size, _ = pipe.llen(queue).delete(queue).execute()
        return int(size)


def _payload(text: bytes, tag: str) -> Any:
    """Return a message with its delivery tag; None if it has no place for one."""
    with suppress(ValueError, RecursionError):
        match json.loads(text):
            case {"properties": dict() as properties} as payload:
                properties["delivery_tag"] = tag
                return payload
    return None


class Transport(virtual.Transport):
    """A connection to Redis for commands, and one for wake-ups and broadcasts.

    An event loop drives it by a timer and by the socket of the second connection; without an event
    loop, `drain_events` does.
    """

    Channel = Channel
    driver_type = driver_name = "redis"
    default_port = 6379
    connection_errors = (*virtual.Transport.connection_errors, *LOST)
    channel_errors = (*virtual.Transport.channel_errors, DataError, InvalidResponse, ResponseError)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "fanout"])
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.redis = _client(client, client.transport_options.get("health_check_s", 0))
        number = self.redis.connection_pool.connection_kwargs["db"]
        self._prefix = f"aegish:{number}:"  # Redis publishes to the clients of all databases
        self.wake_channel = f"{self._prefix}wake"
        # Exchanges of the queues that get broadcasts. As bindings, they outlive a channel.
        self.broadcast_by: dict[str, str] = {}
        self._listener: Any = None
        self._heard: set[str] = set()
        self._pinged_at = self._answered_at = 0.0
        self._loop: Any = None
        self._timer: Any = None
        self._socket: Any = None
        self._delivered = 0

    def establish_connection(self) -> Any:
        """Connect; raises one of `connection_errors`."""
        self.redis.ping()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        self._leave_loop()
        super().close_connection(connection)
        with suppress(*LOST):
            if self._listener is not None:
                self._listener.close()
            self.redis.close()

    def broadcast_channel(self, exchange: str) -> str:
        return f"{self._prefix}fanout:{exchange}"

    def listen(self, exchange: str | None) -> None:
        """Listen to the broadcasts of an exchange; None: to the names of queues with messages."""
        name = self.wake_channel if exchange is None else self.broadcast_channel(exchange)
        if self._listener is None:
            # Its own pings, which this client would send, hide messages behind their answers.
            self._listener = _client(self.client, health_check_s=0).pubsub()
            self._pinged_at = self._answered_at = monotonic()
        if name not in self._heard:
            self._listener.subscribe(name)
            self._heard.add(name)
        if self._loop is not None:
            self._socket = self._listener.connection._sock
            self._loop.add_reader(self._socket, self._on_readable)
            self._schedule(AT_ONCE_S)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self._loop = loop
        self._schedule(AT_ONCE_S)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Wait until something is delivered, for `timeout` seconds at most."""
        until = float("inf") if timeout is None else monotonic() + timeout
        delivered = self._delivered
        while True:
            pause_s = self._turn()
            if self._delivered > delivered:
                return
            left_s = until - monotonic()
            if left_s <= 0:
                raise TimeoutError("timed out")
            self._await_broadcast(max(AT_ONCE_S, min(pause_s, left_s)))

    def _await_broadcast(self, seconds: float) -> None:
        if self._listener is None:
            sleep(seconds)
        elif select.select([self._listener.connection._sock], [], [], seconds)[0]:
            self._read_broadcasts()

    def on_message_ready(self, channel: Any, message: Any, queue: str) -> None:
        self._delivered += 1
        super().on_message_ready(channel, message, queue)

    def _turn(self) -> float:
        """Let each channel do what is due; returns the seconds until the next turn."""
        with self._failures_noted():
            self._check_listener()
            turns = [channel.turn() for channel in list(self.channels)]
            return max(AT_ONCE_S, min(turns, default=REST_S))
        return REFUSED_PAUSE_S

    @contextmanager
    def _failures_noted(self) -> Iterator[None]:
        try:
            yield
        except LOST:
            for channel in self.channels:
                channel.keep_leases()
            raise
        except ResponseError as error:
            # Raised, it would end the worker. Every command is repeated at the next turn.
            refusal = refusal_of(error)
            if refusal is None:
                raise
            log.warning("redis_takes_no_writes", problem=refusal, retry_in_s=REFUSED_PAUSE_S)
            if isinstance(error, ReadOnlyError):
                # After a failover, an open connection leads to a replica, a new one to the master.
                self.redis.connection_pool.disconnect()

    def _check_listener(self) -> None:
        if self._listener is None or monotonic() - self._pinged_at < PING_S:
            return
        if self._answered_at < self._pinged_at - PING_S:
            raise redis.exceptions.ConnectionError("Redis does not answer to a listener")
        self._pinged_at = monotonic()
        self._listener.ping()

    def _read_broadcasts(self) -> None:
        with self._failures_noted():
            while (message := self._listener.get_message(timeout=0)) is not None:
                self._answered_at = monotonic()
                self._take_broadcast(message)

    def _take_broadcast(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "subscribe":
            # A message that came before the subscription was published unheard.
            for channel in self.channels:
                channel.wake(None)
        elif message["type"] == "message":
            name = message["channel"].decode()
            data = message["data"]
            exchange = name.removeprefix(self.broadcast_channel(""))
            for channel in self.channels:
                if name == self.wake_channel:
                    channel.wake(data.decode(errors="replace"))
                    continue
                queue = channel.broadcasts.get(exchange)
                if queue and (payload := _payload(data, str(uuid4()))) is not None:
                    self.on_message_ready(channel, payload, queue)

    def _schedule(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        pause_s = LONGEST_PAUSE_S
        try:
            pause_s = self._turn()
        finally:
            if self._loop is not None:
                self._schedule(pause_s)

    def _on_readable(self) -> None:
        self._read_broadcasts()
        self._schedule(AT_ONCE_S)

    def _leave_loop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            with suppress(OSError, ValueError):
                self._loop.remove_reader(self._socket)
        self._loop = self._timer = self._socket = None


def _client(info: Any, health_check_s: int) -> Any:
    """Return a client of the Redis that a connection of kombu names."""
    silence_s = info.transport_options.get("silence_s")
    return redis.Redis(
        host=info.hostname,
        port=info.port or Transport.default_port,
        db=int(str(info.virtual_host or "").strip("/") or 0),
        username=info.userid,
        password=info.password,
        socket_timeout=silence_s,
        socket_connect_timeout=silence_s,
        socket_keepalive=True,
        health_check_interval=health_check_s,
        # Celery reconnects, and hands the leases to the new connection.
        retry=Retry(NoBackoff(), 0),
        ssl=bool(info.ssl),
        **(info.ssl or {}),
    )
