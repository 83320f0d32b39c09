"""The fleet's limiter: rates, leases, circuit breakers and budgets in Redis.

The script decides, on Redis' own clock. It is put together from the parts beside this module.
Without a Redis the same script runs in fakeredis, inside this process, and the limits are this
process' own.

The requests of workers to the limiter's script, and its answers, as JSON documents.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import msgspec
import redis
from redis import exceptions
from redis.asyncio import Redis

from aegish_dist.core.model import Limits
from aegish_dist.errors import LimiterUnreachableError, QueueError
from aegish_dist.ratelimit.policy import POLICY, Policy
from aegish_dist.ratelimit.usage_report import UsageReport
from aegish_dist.redis_server import LOST, load_script, refusal_of


class StoredCost(msgspec.Struct, frozen=True):
    """Cost of a run according to the database, in 1e-9 USD: the start of its ledger."""

    total: int
    models: Mapping[str, int]


class RunRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls of a capped run that one worker holds for one model; costs in 1e-9 USD."""

    run: str
    waiting: int
    held: int
    estimate: int
    spent: int
    """Cost of the calls that ended since the last request."""
    cap: int | None = None
    """Cap on the cost of the run; None: no cap."""
    model_cap: int | None = None
    """Cap on the cost of each of its models; None: no cap."""
    stored: StoredCost | None = None
    """Cost up to now, when the script has asked for it."""


class LeaseRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls to a model that a worker holds and wants."""

    model: str
    held: int
    waiting: int
    tokens: int
    """Expected tokens of one call, at least 1."""
    limits: Limits
    shared: Limits
    """Limits of all models of its provider together."""
    report: UsageReport
    runs: Sequence[RunRequest] = ()
    probing: bool = False
    """Whether one of the calls in flight is a probe of an open circuit."""


class RunLease(msgspec.Struct, frozen=True):
    """Permission for the calls of a capped run."""

    run: str
    permits: int
    over: bool = False
    unknown: bool = False
    """Whether the script knows no cost of the run: the next request has to hold what is stored."""


class Lease(msgspec.Struct, frozen=True):
    """Permission for a worker to call a model, for some seconds."""

    epoch: int
    """Epoch of the rate; goes up with every decrease."""
    permits: int
    """Calls that may begin, if `metered`."""
    wait_s: float
    """Seconds until the next request, unless something changes before."""
    metered: bool = False
    """Whether calls are counted; otherwise `slots` alone decides until the lease ends."""
    limited: bool = False
    """Whether asking again before `wait_s` brings no further permit."""
    slots: int | None = None
    """Most calls in flight of this worker; None: no limit."""
    probe: bool = False
    """Whether the one permit is for a probe of an open circuit."""
    circuit_open: bool = False
    """Whether the circuit of the model is open: it is not called, except by probes."""
    failed_probes: int = 0
    reason: str | None = None
    """The provider's words about the failure that opened the circuit."""
    rate: float | None = None
    """This worker's part of the rate, in calls per second; None: no limit."""
    runs: tuple[RunLease, ...] = ()
    """The capped runs, in the order of the request."""


PREFIX = "aegish:limiter:"
TIMEOUT_S = 5.0
GRANT_LEASE = ("state", "buckets", "leases", "pacing", "breaker", "budget", "grant_lease")
FACTS = (
    *("redis_version", "maxmemory", "maxmemory_policy", "used_memory", "connected_clients"),
    *("rdb_last_bgsave_status", "aof_last_write_status"),
)
PROBE_NOW = ("state", "breaker", "probe_now")


def script(*parts: str) -> str:
    """Return a script put together from parts."""
    return "\n".join(load_script(__package__, part) for part in parts)


def check_limiter(url: str) -> None:
    """Connect once."""
    with _connected(url) as client:
        client.ping()


def limiter_memory(url: str) -> tuple[int, int]:
    """Return the bytes of memory that the limiter's Redis uses and may use; 0: unbounded."""
    with _connected(url) as client:
        memory = client.info("memory")
    return int(memory["used_memory"]), int(memory["maxmemory"])


def server_facts(url: str, setting: str, server: str) -> dict[str, Any]:
    """Return the clock, the limits and the state of a Redis, by the names of its `INFO`."""
    with _connected(url, setting, server) as client:
        seconds, micros = client.time()
        found = client.info()
    clock = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)
    facts = {name: found.get(name) for name in FACTS}
    return facts | {"clock": clock, "maxclients": found.get("maxclients", 10_000)}


def probe_now(url: str, models: Collection[str]) -> None:
    """Have the fleet probe models at once whose circuit is open; others are left alone."""
    with _connected(url) as client:
        probe = client.register_script(script(*PROBE_NOW))
        probe(keys=[_model_key(model) for model in models], args=[msgspec.json.encode(POLICY)])


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
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise QueueError(
            f"{server} cannot be used ({problem}): check {setting} and that the server is running"
        ) from error


def _model_key(model: str) -> str:
    return f"{PREFIX}model:{model}"


class SharedLimiter:
    """The script, and the connection it runs over; an async context manager."""

    def __init__(self, client: Redis, worker: str, policy: Policy = POLICY) -> None:
        """Wrap a client."""
        self._client = client
        self._worker = worker
        self._policy = msgspec.json.encode(policy)
        self._script = client.register_script(script(*GRANT_LEASE))
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(Lease)

    @classmethod
    def connect(cls, url: str | None, worker: str) -> Self:
        """Prepare a limiter; it connects with the first request.

        Args:
            url: URL of a Redis; None keeps the state inside this process.
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

    async def lease(self, request: LeaseRequest, now_s: float | None = None) -> Lease:
        """Report what became of calls, and return what may be done next.

        Args:
            now_s: Time in seconds, for tests; None: Redis' clock.

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
