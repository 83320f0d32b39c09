"""The fleet's limiter: rates, leases, circuit breakers and budgets in Redis, by the clock of Redis.

The script is put together from the parts beside this module. Without a Redis it runs in fakeredis,
inside this process, and the limits are this process' own.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Self

import msgspec
import redis
from redis import exceptions
from redis.asyncio import Redis

from aegish_dist.core.model import base_of
from aegish_dist.core.text import JsonObject
from aegish_dist.errors import LimiterUnreachableError, QueueError
from aegish_dist.ratelimit.usage_report import POLICY, Lease, LeaseRequest
from aegish_dist.redis_server import LOST, load_script, refusal_of

PREFIX = "aegish:limiter:"
TIMEOUT_S = 5.0
GRANT_LEASE = (
    "state",
    "buckets",
    "leases",
    "pacing",
    "congestion",
    "breaker",
    "budget",
    "grant_lease",
)
FACTS = (
    "redis_version",
    "maxmemory",
    "maxmemory_policy",
    "used_memory",
    "connected_clients",
    "rdb_last_bgsave_status",
    "aof_last_write_status",
)
PROBE_NOW = ("state", "breaker", "probe_now")


def script(*parts: str) -> str:
    return "\n".join(load_script(__package__, part) for part in parts)


def server_facts(
    url: str, setting: str = "AEGISH_DIST_LIMITER_URL", server: str = "the limiter's Redis"
) -> JsonObject:
    """Return the clock, limits and state of a Redis, under the names in its `INFO`."""
    with _connected(url, setting, server) as client:
        seconds, micros = client.time()
        found = client.info()
    clock = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)
    facts = {name: found.get(name) for name in FACTS}
    return facts | {"clock": clock, "maxclients": found.get("maxclients", 10_000)}


def probe_now(url: str, models: Collection[str]) -> None:
    """Have the fleet probe at once those of the models whose circuit is open."""
    with _connected(url) as client:
        probe = client.register_script(script(*PROBE_NOW))
        bases = dict.fromkeys(map(base_of, models))
        keys = [_model_key(model) for model in bases]
        probe(keys=keys, args=[msgspec.json.encode(POLICY)])


@contextmanager
def _connected(
    url: str, setting: str = "AEGISH_DIST_LIMITER_URL", server: str = "the limiter's Redis"
) -> Iterator[redis.Redis]:
    try:
        with redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        ) as client:
            yield client
    except (exceptions.RedisError, OSError) as error:
        problem, *_ = str(error).splitlines() or [type(error).__name__]
        raise QueueError(
            f"{server} cannot be used ({problem}): check {setting} and that the server is running"
        ) from error


def _model_key(model: str) -> str:
    return f"{PREFIX}model:{model}"


class SharedLimiter:
    """The script, and the connection it runs over; an async context manager."""

    def __init__(self, client: Redis, worker: str) -> None:
        self._client = client
        self._worker = worker
        self._policy = msgspec.json.encode(POLICY)
        self._script = client.register_script(script(*GRANT_LEASE))
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(Lease)

    @classmethod
    def connect(cls, url: str | None, worker: str) -> Self:
        """Prepare a limiter that connects with its first request; no URL: inside this process."""
        if url is None:
            from fakeredis import FakeAsyncRedis  # noqa: PLC0415  0.2 s that a fleet saves

            return cls(FakeAsyncRedis(), worker)
        client = Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            health_check_interval=30,
        )
        return cls(client, worker)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def lease(self, request: LeaseRequest, now_s: float | None = None) -> Lease:
        """Report the results of calls, and return which calls may begin; `now_s` is for tests.

        Raises:
            LimiterUnreachableError: Redis does not answer, or takes no writes.
        """
        provider = request.model.partition("/")[0]
        keys = [_model_key(request.model), f"{PREFIX}provider:{provider}"]
        keys += [f"{PREFIX}run:{run.run}" for run in request.runs]
        args: list[bytes | str | float] = [
            self._encoder.encode(request),
            self._policy,
            self._worker,
        ]
        if now_s is not None:
            args.append(now_s)
        try:
            reply = await self._script(keys=keys, args=args)
        except LOST as error:
            raise LimiterUnreachableError(type(error).__name__) from error
        except exceptions.ResponseError as error:
            if refusal := refusal_of(error):
                raise LimiterUnreachableError(refusal) from error
            raise
        return self._decoder.decode(reply)
