"""The fleet's shared state of every model: rates, leases, pauses, breaker and money.

The script `limiter.lua` beside this module decides, on Redis' own clock. Without a Redis the same
script runs in fakeredis, inside this process, and the limits are this process' own.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Self

import redis
from redis import exceptions
from redis.asyncio import Redis

from aegish_dist import lua
from aegish_dist.errors import LimiterUnreachableError, QueueError
from aegish_dist.ratelimit.protocol import Lease, LeaseRequest, RunLease
from aegish_dist.redis_errors import LOST, refusal_of

PREFIX = "aegish:limiter:"
TIMEOUT_S = 5.0


def check_limiter(url: str) -> None:
    """Connect once.

    Raises:
        QueueError: The limiter's Redis cannot be reached.
    """
    with _connected(url) as client:
        client.ping()


def probe_now(url: str, models: Collection[str]) -> None:
    """Have the fleet find out at once, not at the next probe, whether parked models are back.

    Args:
        url: Of the limiter's Redis.
        models: Canonical ids; those that are not parked are left alone.

    Raises:
        QueueError: The limiter's Redis cannot be reached.
    """
    with _connected(url) as client:
        probe = client.register_script(lua.load(__package__, "probe_now"))
        probe(keys=[_model_key(model) for model in models])


@contextmanager
def _connected(url: str) -> Iterator[redis.Redis]:
    try:
        with redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        ) as client:
            yield client
    except (exceptions.RedisError, OSError) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise QueueError(
            f"the limiter's Redis cannot be used ({what}):"
            " check AEGISH_DIST_LIMITER_URL and that the server is running"
        ) from error


def _model_key(model: str) -> str:
    return f"{PREFIX}model:{model}"


class SharedLimiter:
    """The script, and the connection it runs over; an async context manager."""

    def __init__(self, client: Redis, worker: str) -> None:
        """Wrap a client.

        Args:
            client: A Redis, real or fake.
            worker: Name of this process, unique in the fleet.
        """
        self._client = client
        self._worker = worker
        self._script = client.register_script(lua.load(__package__, "limiter"))

    @classmethod
    def connect(cls, url: str | None, worker: str) -> Self:
        """Prepare a limiter; nothing is connected yet.

        Args:
            url: Of a Redis; None keeps the state inside this process.
            worker: Name of this process, unique in the fleet.
        """
        if url is None:
            from fakeredis import FakeAsyncRedis  # noqa: PLC0415  0.2 s that a cluster saves

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

    async def lease(self, ask: LeaseRequest, now_s: float | None = None) -> Lease:
        """Tell what happened, and learn what may be done next.

        Args:
            ask: What this worker holds and wants.
            now_s: The time, for tests; Redis' clock when None.

        Raises:
            LimiterUnreachableError: Redis cannot be asked now.
        """
        provider = ask.model.partition("/")[0]
        keys = [_model_key(ask.model), f"{PREFIX}provider:{provider}"]
        keys += [f"{PREFIX}run:{run.run}" for run in ask.runs]
        request = {"worker": self._worker, "now": now_s, **_wire(ask)}
        try:
            reply = await self._script(keys=keys, args=[json.dumps(_without_none(request))])
        except LOST as error:
            raise LimiterUnreachableError(type(error).__name__) from error
        except exceptions.ResponseError as error:
            if refusal := refusal_of(error):
                raise LimiterUnreachableError(refusal) from error
            raise
        return _grant(json.loads(reply))


def _wire(ask: LeaseRequest) -> dict[str, Any]:
    shared = asdict(ask.shared)
    return {
        "model": ask.model,
        "held": ask.held,
        "waiting": ask.waiting,
        "tokens": ask.tokens,
        "probing": ask.probing,
        **asdict(ask.limits),
        "shares": shared if any(shared.values()) else None,
        "told": asdict(ask.told),
        "runs": [asdict(run) for run in ask.runs],
    }


def _without_none(value: Any) -> Any:
    """Drop nulls: Lua reads them as a value that counts as true."""
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value


def _grant(reply: Mapping[str, Any]) -> Lease:
    slots = reply.get("slots")
    return Lease(
        epoch=int(reply["epoch"]),
        slots=None if slots is None else int(slots),
        permits=int(reply["permits"]),
        metered=reply["metered"],
        limited=reply["limited"],
        wait_s=reply["wait_s"],
        probe=reply["probe"],
        parked=reply["parked"],
        failed_probes=int(reply["failed_probes"]),
        reason=reply.get("reason"),
        rate=reply.get("rate"),
        runs=tuple(
            RunLease(run["run"], int(run["permits"]), run["over"], run["unknown"])
            for run in reply["runs"] or ()  # Lua writes an empty list as an object
        ),
    )
