"""Configuration of a simulated provider: rate limits, faults, batches, prices, models.

`read_scenario` reads it from a TOML file such as::

    seed = 7
    latency = "lognormal:0.8,0.4"

    [faults]
    rate_limit = 0.02
    retry_after_s = 0.5

    [rate_limit]
    requests_per_minute = 600
    burst = 20

    [models."simulated/hasty"]
    script = ["ok", "429", "hang"]

    [models."simulated/hasty".price]
    input = 0.5
    output = 2.0

    [batches]
    duration = "uniform:0.5,2"

    [batches.requests]
    missing = 0.01

    [batches.ends]
    expired = 0.1

    [batches.calls.poll]
    server_error = 0.1

    [batches.scripts]
    create = ["ok", "lost"]
"""

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import ConfigError, InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.simulator.bill import Tariff
from aegish_dist.simulator.personas import PERSONAS, LatencyDistribution, parse_latency

F = TypeVar("F", bound=StrEnum)


class Fault(StrEnum):
    """One way for a call to fail."""

    RATE_LIMIT = "rate_limit"
    """429 with Retry-After."""
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    """503, or 529 where the provider says so."""
    AUTH = "auth"
    QUOTA = "quota"
    NOT_FOUND = "not_found"
    """404: no such model."""
    HANG = "hang"
    RESET = "reset"
    """The connection is reset in the middle of the body."""
    TRUNCATED = "truncated"
    """The connection is closed before Content-Length is reached."""
    MALFORMED = "malformed"
    """HTTP 200 with broken JSON."""
    EMPTY = "empty"
    CONTENT_FILTER = "content_filter"
    TOKEN_LIMIT = "token_limit"  # noqa: S105  # nosec B105 # tokens of text
    """Hidden reasoning used up the output tokens; no text."""


REFUSALS = {
    "rate_limit": ErrorClass.RATE_LIMIT,
    "server_error": ErrorClass.SERVER,
    "overloaded": ErrorClass.OVERLOADED,
    "auth": ErrorClass.AUTH,
    "quota": ErrorClass.QUOTA,
    "not_found": ErrorClass.NOT_FOUND,
}
"""Class of the error that answers a call, or a request about batches, with such a fault."""
_STATUS_WORDS = {
    "401": Fault.AUTH,
    "404": Fault.NOT_FOUND,
    "429": Fault.RATE_LIMIT,
    "500": Fault.SERVER_ERROR,
    "503": Fault.OVERLOADED,
    "529": Fault.OVERLOADED,
}


class FaultPlan(msgspec.Struct, frozen=True):
    """Probabilities of the faults, and their timings."""

    probabilities: Mapping[Fault, float] = msgspec.field(default_factory=dict)
    """Probability per attempt; together at most 1."""
    retry_after_s: float = 1.0
    hang_s: float = 600.0
    """Seconds after which a hanging call is cut off if the client is still there."""

    def __post_init__(self) -> None:
        check_numbers(retry_after_s=self.retry_after_s, hang_s=self.hang_s)
        check_probabilities(self.probabilities)

    def pick(self, luck: float) -> Fault | None:
        """Return the fault that a uniform draw in (0, 1) hits, None for none."""
        return pick(self.probabilities, luck)


def check_numbers(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 <= value < math.inf:
            raise ConfigError(f"{name} is {value}; it must be finite and 0 or more")


def check_probabilities(probabilities: Mapping[Any, float]) -> None:
    """Check that each is a probability and that together they reach 1 at most."""
    for fault, value in probabilities.items():
        if not 0 <= value <= 1:
            raise ConfigError(f"{fault} is {value}; a probability lies between 0 and 1")
    total = math.fsum(probabilities.values())
    if total > 1:
        raise ConfigError(f"the probabilities add up to {total:g}; they may reach 1 at most")


def pick(probabilities: Mapping[F, float], luck: float) -> F | None:
    """Return the fault that a uniform draw in (0, 1) hits, None for none."""
    for fault, probability in probabilities.items():
        luck -= probability
        if luck < 0:
            return fault
    return None


def parse_script(words: Iterable[str]) -> tuple[Fault | None, ...]:
    """Read a script: `ok`, the name of a fault, or a status such as `429`, for each call."""
    return parse_words(words, Fault, _STATUS_WORDS)


def parse_words(
    words: Iterable[str], faults: type[F], others: Mapping[str, F] | None = None
) -> tuple[F | None, ...]:
    """Read a script of names of faults, one per call, with `ok` for none."""
    known = {"ok": None, **(others or {}), **{fault.value: fault for fault in faults}}
    given = tuple(words)
    for word in given:
        if word not in known:
            raise ConfigError(f"'{word}' is not one of {', '.join(known)}")
    return tuple(known[word] for word in given)


class RequestFault(StrEnum):
    """One way for a request of a batch, or its line, to fail: see docs/simulator.md."""

    REFUSED = "refused"
    SERVER_ERROR = "server_error"
    EMPTY = "empty"
    CONTENT_FILTER = "content_filter"
    TOKEN_LIMIT = "token_limit"  # noqa: S105  # nosec B105 # tokens of text
    MISSING = "missing"
    DUPLICATE = "duplicate"
    MALFORMED = "malformed"
    FOREIGN = "foreign"


class EndFault(StrEnum):
    """One way for a whole batch to end badly: see docs/simulator.md."""

    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SLOW = "slow"


class CallFault(StrEnum):
    """One way for a request about batches to fail: see docs/simulator.md."""

    RATE_LIMIT = "rate_limit"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    AUTH = "auth"
    QUOTA = "quota"
    RESET = "reset"
    LOST = "lost"
    LATE_ERROR = "late_error"
    HANG = "hang"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"


class Endpoint(StrEnum):
    UPLOAD = "upload"
    CREATE = "create"
    POLL = "poll"
    LIST = "list"
    RESULTS = "results"
    CANCEL = "cancel"
    DELETE = "delete"


class BatchPlan(msgspec.Struct, frozen=True):
    """Times and faults of the batches of a simulated provider."""

    duration: LatencyDistribution = parse_latency("constant:2")
    list_lag_s: float = 0.0
    """Seconds after its creation in which a batch is in no list."""
    retry_after_s: float = 1.0
    hang_s: float = 600.0
    """Seconds after which a request without an answer is cut off."""
    share: float = 0.5
    """Price of an answer in a batch as a share of the live price."""
    requests: dict[RequestFault, float] = msgspec.field(default_factory=dict)
    """Probability of each fault per request; together at most 1."""
    ends: dict[EndFault, float] = msgspec.field(default_factory=dict)
    """Probability of each fault per batch; together at most 1."""
    calls: dict[Endpoint, dict[CallFault, float]] = msgspec.field(default_factory=dict)
    """Probability of each fault per request about batches; together at most 1 for each kind."""
    scripts: Mapping[Endpoint, tuple[CallFault | None, ...]] = msgspec.field(default_factory=dict)
    """Faults of the first requests of a kind in order of arrival; then chance decides."""

    def __post_init__(self) -> None:
        names = ("list_lag_s", "retry_after_s", "hang_s", "share")
        check_numbers(**{name: getattr(self, name) for name in names})
        tables: tuple[Mapping[Any, float], ...] = (self.requests, self.ends, *self.calls.values())
        for probabilities in tables:
            check_probabilities(probabilities)

    def call_fault(self, endpoint: Endpoint, place: int, luck: float) -> CallFault | None:
        """Return the fault of a request about batches; None for none."""
        script = self.scripts.get(endpoint, ())
        return script[place] if place < len(script) else pick(self.calls.get(endpoint, {}), luck)


class RateLimit(msgspec.Struct, frozen=True):
    requests_per_minute: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.requests_per_minute < math.inf:
            raise ConfigError(
                f"requests_per_minute is {self.requests_per_minute}; it must be above 0"
            )
        if self.burst < 1:
            raise ConfigError(f"burst is {self.burst}; it must be 1 or more")


class TokenBucket:
    """Counts requests against a limit, by the clock of its caller."""

    def __init__(self, limit: RateLimit, now_s: float) -> None:
        self.limit = limit
        self._per_second = limit.requests_per_minute / 60
        self._tokens = float(limit.burst)
        self._updated_s = now_s

    def take(self, now_s: float) -> float:
        """Take one request; return 0, or the seconds until one would be accepted."""
        refilled = self._tokens + (now_s - self._updated_s) * self._per_second
        self._tokens = min(float(self.limit.burst), refilled)
        self._updated_s = now_s
        # A client that waits exactly so long must not fail on the last bit of a float.
        if self._tokens >= 1 - 1e-9:
            self._tokens = max(0.0, self._tokens - 1)
            return 0.0
        return (1 - self._tokens) / self._per_second

    @property
    def remaining(self) -> int:
        return int(self._tokens)

    @property
    def full_in_s(self) -> float:
        """Seconds until the whole burst is available again."""
        return (self.limit.burst - self._tokens) / self._per_second


HOST = "127.0.0.1"
LOOPBACK_NAMES = frozenset({HOST, "localhost", "[::1]"})


class ModelConfig(msgspec.Struct, frozen=True):
    """Configuration of one model; None takes the value that holds for all."""

    latency: LatencyDistribution | None = None
    faults: FaultPlan | None = None
    rate_limit: RateLimit | None = None
    script: tuple[Fault | None, ...] | None = None
    """Faults in order of arrival, None for an answer, then answers for ever; replaces chance."""
    price: Tariff | None = None
    persona: str | None = None
    """Name of the persona it plays; None lets the model's name decide."""

    def __post_init__(self) -> None:
        if self.persona is not None and self.persona not in PERSONAS:
            raise ConfigError(f"persona '{self.persona}' is not one of {', '.join(PERSONAS)}")


class SimulatorConfig(msgspec.Struct, frozen=True):
    seed: int = 42
    port: int = 0
    """TCP port on 127.0.0.1; 0 takes a free one."""
    require_key: bool = False
    """Whether a request without a key is refused; the key `invalid` always is."""
    hosts: frozenset[str] = frozenset()
    """Names, beside those of the loopback address, by which clients may call it; lower case."""
    vary_repeats: bool = False
    """Whether asking the same again may bring another answer; the order of arrival then counts."""
    latency: LatencyDistribution | None = None
    """Service time; None leaves it to each persona, and to nothing in a replay."""
    faults: FaultPlan = msgspec.field(default_factory=FaultPlan)
    rate_limit: RateLimit | None = None
    """Requests accepted per model; None for no limit."""
    batches: BatchPlan = msgspec.field(default_factory=BatchPlan)
    price: Tariff = msgspec.field(default_factory=Tariff)
    models: Mapping[str, ModelConfig] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"port is {self.port}; it must lie between 0 and 65535")


MAX_BYTES = 2**20
T = TypeVar("T")


def read_scenario(path: Path) -> SimulatorConfig:
    """Read a scenario file; an error names file and key."""
    try:
        return _build(SimulatorConfig, checked(parse_toml(read_text(path, MAX_BYTES)), _SCENARIO))
    except (InputError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _build(kind: Callable[..., T], table: Struct) -> T:
    return kind(
        **{
            key: _read(key, _FORMS[key][1] if key in _FORMS else _as_given, value)
            for key in table.__struct_fields__
            if (value := getattr(table, key)) is not None
        }
    )


def _read(key: str, reader: Callable[[Any], T], value: Any) -> T:
    """Read one value; an error names the key, level by level."""
    try:
        return reader(value)
    except InputError as error:
        raise error.below(key) from None
    except ConfigError as error:
        raise InputError(str(error), field=key) from None


def _each(reader: Callable[[Any], T]) -> Callable[[dict[Any, Any]], dict[Any, T]]:
    return lambda table: {key: _read(key, reader, value) for key, value in table.items()}


def _as_given(value: object) -> object:
    return value


def _faults(table: dict[str, float]) -> FaultPlan:
    timings = {key: table[key] for key in ("retry_after_s", "hang_s") if key in table}
    chances = {key: value for key, value in table.items() if key not in timings}
    for key in chances:
        if key not in set(Fault):
            known = ", ".join((*Fault, "retry_after_s", "hang_s"))
            raise InputError(f"unknown key; known are {known}", field=key)
    return FaultPlan({Fault(key): value for key, value in chances.items()}, **timings)


def _table(kind: Any, *hidden: str) -> Any:
    types = {name: form for name, form in get_type_hints(kind).items() if name not in hidden}
    types |= {name: _FORMS[name][0] for name in types.keys() & _FORMS.keys()}
    required = {each.name for each in msgspec.structs.fields(kind) if each.required}
    keys = [
        (name, form, msgspec.NODEFAULT) if name in required else (name, form | None, None)
        for name, form in types.items()
    ]
    return msgspec.defstruct(kind.__name__, keys, forbid_unknown_fields=True)


_FORMS: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "latency": (str, parse_latency),
    "duration": (str, parse_latency),
    "faults": (dict[str, float], _faults),
    "script": (list[Any], lambda words: parse_script(map(str, words))),
    "scripts": (dict[Endpoint, list[str]], _each(partial(parse_words, faults=CallFault))),
    **dict.fromkeys(("input", "output", "cached_input"), (float, lambda usd: Decimal(str(usd)))),
}
"""The form of a key in a file, and how it is read; other keys are taken as they are."""
for _key, _kind in {"rate_limit": RateLimit, "price": Tariff, "batches": BatchPlan}.items():
    _FORMS[_key] = (_table(_kind), partial(_build, _kind))
_FORMS["models"] = (dict[str, _table(ModelConfig)], _each(partial(_build, ModelConfig)))  # type: ignore[misc]
_SCENARIO = _table(SimulatorConfig, "hosts")
