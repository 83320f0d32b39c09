"""The transport for Redis against a real server."""

import base64
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from typing import Any, Self, cast

import pytest
import redis
from kombu import Consumer, Queue
from kombu.asynchronous import Hub

from aegish_dist.broker.client import publish, queue_depths, send
from aegish_dist.broker.messages import decode, encode, model_of, queue_name
from aegish_dist.broker.redis_leases import LEASES, MESSAGES_PER_SCRIPT, UNACKED
from aegish_dist.core.verdict import Item
from tests.forged import forged_messages
from tests.services import RedisServer, queue_application, wait_until

ALL = MESSAGES_PER_SCRIPT
A, B = "openai/a", "openai/b"
RUN = "run"
QUEUE = queue_name(A, RUN)
LEASE_S = 1.0
STEP_S = 0.02


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    """A client that looks at the server from outside; its command statistics start at zero."""
    with redis.Redis.from_url(redis_url) as client:
        client.config_resetstat()
        yield client


def application(url: str, **options: Any) -> Any:
    app = queue_application(url)
    app.conf.broker_transport_options |= {"lease_s": LEASE_S, "sweep_s": 0.2, **options}
    return app


@pytest.fixture
def app(redis_url: str) -> Any:
    return application(redis_url)


def items(count: int, *models: str) -> list[Item]:
    """Return so many items of each model, by default of the first one."""
    return [Item(RUN, model, number, 1, 0) for model in models or (A,) for number in range(count)]


class Listener:
    """A consumer that holds what it receives; it works only while `run_for` runs."""

    def __init__(self, app: Any, *models: str, prefetch: int = ALL, no_ack: bool = False) -> None:
        self.messages: list[Any] = []
        self.after_each: Callable[[Any], object] = lambda _: None
        self._connection = app.connection_for_read()
        self.channel = self._connection.default_channel
        self.channel.basic_qos(0, prefetch, False)
        self.consumer = Consumer(
            self.channel,
            [Queue(queue_name(model, RUN), durable=True) for model in models],
            on_message=self._take,
            accept=["json"],
            no_ack=no_ack,
        )

    def _take(self, message: Any) -> None:
        self.messages.append(message)
        self.after_each(message)

    def __enter__(self) -> Self:
        self.consumer.consume()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run_for(self, seconds: float = STEP_S) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(socket.timeout):
                self._connection.drain_events(timeout=STEP_S)

    def has(self, count: int) -> Callable[[], bool]:
        """Return a condition that runs it for a step and checks that so many messages have come."""

        def reached() -> bool:
            self.run_for()
            return len(self.messages) >= count

        return reached

    def received(self) -> Counter[Item]:
        return Counter(decode(message.payload[0]) for message in self.messages)

    def by_model(self) -> Counter[str]:
        return Counter(item.model for item in self.received())

    def leave(self, model: str) -> None:
        self.consumer.cancel_by_queue(queue_name(model, RUN))

    def vanish(self) -> None:
        """Break all connections to Redis at once, as a killed process does."""
        self.channel.keep_leases()
        self.channel.connection.close_connection(self.channel.connection)


@contextmanager
def holding(
    app: Any, count: int, *models: str, prefetch: int = ALL, no_ack: bool = False
) -> Iterator[Listener]:
    with Listener(app, *models, prefetch=prefetch, no_ack=no_ack) as listener:
        wait_until(listener.has(count), f"{count} messages")
        yield listener


def run_side_by_side(*listeners: Listener) -> None:
    until = time.monotonic() + 3 * LEASE_S
    while time.monotonic() < until:
        for listener in listeners:
            listener.run_for()


def unacked(server: redis.Redis) -> int:
    """Return how many messages are held; the hash and the leases agree."""
    held = server.hlen(UNACKED)
    assert server.zcard(LEASES) == held
    return held


def waiting(server: redis.Redis, model: str = A) -> int:
    return server.llen(queue_name(model, RUN))


def calls(server: redis.Redis, command: str) -> int:
    """Return how often a command ran, alone or in a script."""
    statistics = server.info("commandstats")
    return int(statistics.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_batch_is_moved_in_one_step(app: Any, server: redis.Redis) -> None:
    """A full batch takes one script, the very first one included, and nothing is ever popped by BRPOP."""
    publish(app, items(ALL))
    with holding(app, ALL, A) as listener:
        assert unacked(server) == ALL
        assert (calls(server, "rpop"), calls(server, "hset"), calls(server, "brpop")) == (1, 1, 0)
    assert listener.received() == Counter(items(ALL))


def test_acknowledgements_go_out_in_groups(redis_url: str, server: redis.Redis) -> None:
    """A hundred acknowledgements cost one removal from the hash and one from the index."""
    app = application(redis_url, lease_s=60.0)  # renewals would count
    publish(app, items(100))
    with holding(app, 100, A) as listener:
        for message in listener.messages:
            message.ack()
        assert unacked(server) == 100
        listener.run_for()
        assert unacked(server) == 0
        assert (calls(server, "hdel"), calls(server, "zrem")) == (1, 1)


def test_close_tells_what_was_acknowledged(app: Any, server: redis.Redis) -> None:
    """Closing settles what is open and puts the rest back in front of the queue, in its order."""
    publish(app, items(30))
    with holding(app, 20, A, prefetch=20) as listener:
        for message in listener.messages[:10]:
            message.ack()
    assert (unacked(server), waiting(server)) == (0, 20)
    with holding(app, 20, A) as second:
        assert [decode(m.payload[0]) for m in second.messages] == items(30)[10:]


def test_a_queue_left_on_the_way(app: Any, server: redis.Redis) -> None:
    """Of a batch from two queues, what is left of one goes back when its consumer is cancelled."""
    publish(app, items(30, A, B))
    with Listener(app, A, B) as listener:
        listener.after_each = lambda _: listener.leave(A)
        wait_until(listener.has(30), "the other queue")
        listener.run_for()
        got = listener.by_model()
        assert got[B] == 30
        assert waiting(server) == 30 - got[A]
        assert unacked(server) == 30 + got[A]
        assert got[A] <= 1


def test_queues_share_a_batch(app: Any, server: redis.Redis) -> None:
    """Two full queues get half of the places each; a short one leaves its places to the other."""
    publish(app, items(100, A, B))
    with holding(app, 40, A, B, prefetch=40) as listener:
        assert listener.by_model() == {A: 20, B: 20}
    server.ltrim(QUEUE, 0, 4)
    with holding(app, 40, A, B, prefetch=40) as listener:
        assert listener.by_model() == {A: 5, B: 35}


@pytest.mark.parametrize("places", [1, 2, 3])
def test_few_places_are_shared(app: Any, places: int) -> None:
    """With fewer places than queues each gets the same in the end, however many stand empty."""
    empty = [f"empty/{number}" for number in range(7)]
    last = "openai/c"
    publish(app, items(60, A, B, last))
    with Listener(app, A, *empty, B, last, prefetch=places) as listener:
        acked = 0
        while acked < 60:
            wait_until(listener.has(acked + places), "the next messages")
            for message in listener.messages[acked:]:
                message.ack()
                acked += 1
    got = listener.by_model()
    assert max(got.values()) - min(got[model] for model in (A, B, last)) <= places


def test_allowance(redis_url: str) -> None:
    """A queue gets no more than it is allowed, and the others go on."""
    most = {A: 0, B: 100}
    held: Callable[[], Counter[str]] = Counter

    def allowance(queues: Sequence[str]) -> list[int]:
        return [most[model] - held()[model] for model in map(model_of, queues) if model]

    app = application(redis_url, allowance=allowance)
    publish(app, items(60, A, B))
    with Listener(app, A, B, prefetch=100) as listener:
        held = listener.by_model
        wait_until(listener.has(60), "the allowed queue")
        assert held() == {B: 60}
        most[A] = 7
        wait_until(listener.has(67), "what is allowed now")
        listener.run_for()
        assert held() == {B: 60, A: 7}


def test_empty_queues_cost_little(redis_url: str, server: redis.Redis) -> None:
    """They are asked less often, take no share of an allowance, and are heard of all the same."""
    empty = [f"empty/{number}" for number in range(50)]

    def allowance(queues: Sequence[str]) -> list[int]:
        return [ceil(100 / len(queues))] * len(queues)

    app = application(redis_url, allowance=allowance)
    publish(app, items(200))
    with holding(app, 200, A, *empty, prefetch=500) as listener:
        # Fifty queues at each of a hundred fetches, if all were asked for two messages each time.
        assert calls(server, "rpop") < 1000
        publish(app, [*items(200), *items(1, empty[-1])])
        wait_until(lambda: listener.has(401)() and waiting(server, empty[-1]) == 0, "the rest")


def test_a_redis_whose_memory_is_full(app: Any, server: redis.Redis) -> None:
    """Leases are renewed, messages acknowledged and queues asked for their size all the same."""
    publish(app, items(20))
    with holding(app, 20, A) as holder, Listener(app, A) as other:
        server.config_set("maxmemory", 1)
        try:
            run_side_by_side(holder, other)
            assert (other.messages, unacked(server)) == ([], 20)
            assert queue_depths(app, [QUEUE]) == {QUEUE: 0}
            for message in holder.messages:
                message.ack()
            holder.run_for()
            assert unacked(server) == 0
        finally:
            server.config_set("maxmemory", 0)


def test_a_redis_that_was_a_replica(app: Any, server: redis.Redis) -> None:
    """After refusing writes for longer than a lease, it hears every worker before anything is requeued."""
    publish(app, items(20))
    with holding(app, 20, A) as holder, Listener(app, A) as other:
        connection = holder.channel.client.client_id()
        server.replicaof("127.0.0.1", "1")
        try:
            holder.run_for(1.5 * LEASE_S)
            other.run_for(STEP_S)
            # The address may lead to the new master meanwhile.
            assert holder.channel.client.client_id() != connection
        finally:
            server.replicaof("NO", "ONE")
        other.run_for(LEASE_S / 2)
        holder.run_for()
        other.run_for(LEASE_S / 2)
        assert (other.messages, unacked(server)) == ([], 20)


def test_what_a_lost_connection_held(app: Any, server: redis.Redis) -> None:
    """The next connection of the process renews and settles it; no other consumer gets it."""
    publish(app, items(20))
    with holding(app, 20, A) as lost, Listener(app, A) as other:
        lost.messages[0].ack()
        lost.messages[1].reject()
        lost.channel.keep_leases()
        lost.vanish()
        with Listener(app, A, prefetch=20) as again, Listener(app, A, prefetch=20) as third:
            again.channel.qos.take_over(lost.channel.qos)
            run_side_by_side(again, other)
            assert (again.messages, other.messages, unacked(server)) == ([], [], 18)

            lost.messages[2].ack()
            third.channel.qos.take_over(again.channel.qos)
            lost.messages[3].ack()
            lost.messages[4].reject(requeue=True)
            wait_until(third.has(1), "the message that was put back")
            assert decode(third.messages[0].payload[0]) == decode(lost.messages[4].payload[0])
            assert (other.messages, unacked(server)) == ([], 16)
    assert (unacked(server), waiting(server)) == (0, 16)


def test_rescue(app: Any) -> None:
    publish(app, items(20))
    with holding(app, 20, A, prefetch=20) as dead:
        died_at = time.monotonic()
        dead.vanish()
        with holding(app, 20, A) as rescuer:
            elapsed_s = time.monotonic() - died_at
            rescuer.run_for(LEASE_S)
            assert rescuer.received() == Counter(items(20))
            # The last renewal may be a quarter of a lease old.
            assert elapsed_s > LEASE_S / 2


def test_a_channel_at_rest_renews_in_time(app: Any) -> None:
    """A renewal later than half a lease says that Redis was away: nothing counts as expired then."""
    with Listener(app, A) as listener:
        listener.run_for(LEASE_S)
        assert listener.channel.turn() < LEASE_S / 4


def test_a_late_acknowledgement(app: Any, server: redis.Redis) -> None:
    """A worker that was cut off for longer than its lease settles nothing that another one holds."""
    publish(app, items(5))
    with holding(app, 5, A) as cut_off, Listener(app, A) as other:
        wait_until(other.has(5), "the rescue")
        for message in cut_off.messages:
            message.ack()
        cut_off.run_for()
        assert unacked(server) == 5


def test_forged_messages_of_a_dead_worker(app: Any, server: redis.Redis) -> None:
    """They go back to their queue once, as whatever they are, and hold nothing else up."""
    publish(app, items(5))
    server.rpush(QUEUE, *forged_messages(QUEUE))
    server.hset(UNACKED, mapping={"a": "[1, 2]", "b": "", "c": "7"})
    server.zadd(LEASES, {"a": 1, "b": 1, "c": 1})
    with Listener(app, A) as killed:
        killed.consumer.on_decode_error = lambda _message, _error: None
        wait_until(lambda: killed.has(5)() and waiting(server) == 0, "the fetch")
        killed.vanish()
        with Listener(app, A) as other:
            other.consumer.on_decode_error = lambda message, _error: message.ack()
            wait_until(lambda: other.has(5)() and waiting(server) == 0, "the rescue")
            other.run_for(LEASE_S)
            assert unacked(server) == len(other.messages)


@pytest.mark.parametrize("keeps_data", [True, False])
def test_restart_of_redis(tmp_path: Path, keeps_data: bool) -> None:
    """The connection error reaches the consumer's owner, and a new connection goes on."""
    with RedisServer(tmp_path) as broker, redis.Redis(port=broker.port) as server:
        app = application(broker.url)
        publish(app, items(20))
        with holding(app, 5, A, prefetch=5) as listener:
            if keeps_data:
                server.save()
            broker.kill()
            with pytest.raises(app.connection().connection_errors):
                listener.run_for(10)
            broker.start()
        if not keeps_data:
            publish(app, items(20))
        with holding(app, 20, A) as second:
            assert second.received() == Counter(items(20))


def test_delivery_at_idle(app: Any) -> None:
    """An event loop that has been idle hears of a message within a fraction of a second, by itself."""
    hub = Hub()
    connection = app.connection_for_read()
    received_at: list[float] = []
    try:
        connection.transport.register_with_event_loop(connection.connection, hub)
        consumer = Consumer(
            connection.default_channel,
            [Queue(QUEUE, durable=True)],
            on_message=lambda _: received_at.append(time.monotonic()),
        )
        consumer.consume()
        idle_until = time.monotonic() + 0.5
        hub.call_later(0.5, publish, app, items(1))
        rounds = 0
        while not received_at and time.monotonic() < idle_until + 5:
            hub.run_once()
            rounds += 1
    finally:
        connection.close()
        hub.close()

    assert received_at[0] - idle_until < 1
    assert rounds < 100


def as_stored(app: Any, server: redis.Redis, write: Callable[[], Any]) -> dict[str, Any]:
    """Return the message that a publication leaves in Redis, without what differs each time."""
    write()
    message: dict[str, Any] = json.loads(cast(bytes, server.rpop(QUEUE)))
    ids = {message["headers"].pop("id"), message["headers"].pop("root_id")}
    ids.add(message["properties"].pop("correlation_id"))
    assert len(ids) == 1
    assert message["headers"].pop("enqueued_at") == pytest.approx(time.time(), abs=60)
    assert isinstance(message["properties"].pop("delivery_tag"), str)
    message["body"] = json.loads(base64.b64decode(message["body"]))
    return message


def test_batched_publication_writes_celerys_messages(app: Any, server: redis.Redis) -> None:
    item = Item(RUN, A, 2**62 + random.randrange(100), 3, 1)

    def publish_alone() -> None:
        with app.connection_for_write() as connection:
            send(app, app.amqp.Producer(connection), QUEUE, encode(item))

    batched = as_stored(app, server, lambda: publish(app, [item]))
    assert batched == as_stored(app, server, publish_alone)
    assert decode(batched["body"][0]) == item
