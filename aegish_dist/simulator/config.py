"""Configuration of a simulated provider: a scenario file, or the same records made in Python.

docs/guides/simulator.md shows a scenario.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import ConfigError, InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.simulator.bill import Tariff
from aegish_dist.simulator.personas import parse_latency

F = TypeVar("F", bound=StrEnum)
Probability = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]

# The ways for a call to fail, which `FaultPlan` explains.
Fault = StrEnum(
    "Fault",
    "RATE_LIMIT SERVER_ERROR OVERLOADED AUTH QUOTA NOT_FOUND HANG RESET TRUNCATED MALFORMED "
    "EMPTY CONTENT_FILTER TOKEN_LIMIT",
)
# Class of the error that answers a call with such a fault.
REFUSALS: Mapping[Fault | None, ErrorClass] = {
    Fault.RATE_LIMIT: ErrorClass.RATE_LIMIT,
    Fault.SERVER_ERROR: ErrorClass.SERVER,
    Fault.OVERLOADED: ErrorClass.OVERLOADED,
    Fault.AUTH: ErrorClass.AUTH,
    Fault.QUOTA: ErrorClass.QUOTA,
    Fault.NOT_FOUND: ErrorClass.NOT_FOUND,
}
# What a word of a script stands for, in the order in which an error names them.
_SCRIPT: Mapping[str, Fault | None] = {
    "ok": None,
    **{fault.value: fault for fault in Fault},
    "401": Fault.AUTH,
    "404": Fault.NOT_FOUND,
    "429": Fault.RATE_LIMIT,
    "500": Fault.SERVER_ERROR,
    "503": Fault.OVERLOADED,
    "529": Fault.OVERLOADED,
}


class FaultPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """Probability of each fault per call, together at most 1, and their timings."""

    rate_limit: Probability = 0  # 429 with Retry-After
    server_error: Probability = 0
    overloaded: Probability = 0  # 503, or 529 where the provider says so
    auth: Probability = 0
    quota: Probability = 0
    not_found: Probability = 0  # 404: no such model
    hang: Probability = 0
    reset: Probability = 0  # the connection is reset in the middle of the body
    truncated: Probability = 0  # the connection is closed before Content-Length is reached
    malformed: Probability = 0  # HTTP 200 with broken JSON
    empty: Probability = 0
    content_filter: Probability = 0
    token_limit: Probability = 0  # hidden reasoning used up the output tokens; no text
    retry_after_s: Seconds | Literal["absent"] = 1.0  # of `rate_limit`
    hang_s: Seconds = 600.0  # then a hanging call is cut off if its client is still there

    def __post_init__(self) -> None:
        total = math.fsum(self.chances.values())
        if total > 1:
            raise InputError(f"the probabilities add up to {total:g}; they may reach 1 at most")

    @property
    def chances(self) -> dict[Fault, float]:
        return {fault: getattr(self, fault) for fault in Fault}


def pick(chances: Mapping[F, float], luck: float) -> F | None:
    """Return the fault that a uniform draw in (0, 1) hits, None for none."""
    for fault, chance in chances.items():
        luck -= chance
        if luck < 0:
            return fault
    return None


def parse_script(words: Iterable[str | int]) -> list[Fault | None]:
    """Read a script: `ok`, the name of a fault, or a status such as `429`, for each call."""
    script = []
    for word in map(str, words):
        if word not in _SCRIPT:
            raise InputError(f"'{word}' is not one of {', '.join(_SCRIPT)}")
        script.append(_SCRIPT[word])
    return script


@contextmanager
def _about(field: str) -> Iterator[None]:
    """Name the field in an error about its value."""
    try:
        yield
    except InputError as error:
        raise error.below(field) from None


class RateLimit(Struct, frozen=True, forbid_unknown_fields=True):
    requests_per_minute: Annotated[float, Meta(gt=0, le=1e9)]
    burst: Annotated[int, Meta(ge=1)] = 1


class Capacity(Struct, frozen=True, forbid_unknown_fields=True):
    """How much a congested model answers at most; further calls wait in order of arrival."""

    per_second: Annotated[float, Meta(gt=0, le=1e6)]
    longest_queue_s: Seconds = math.inf  # a call that would wait longer is refused: 503 or 529


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Configuration of one model; None takes the value that holds for all."""

    latency: str | None = None
    faults: FaultPlan | None = None
    rate_limit: RateLimit | None = None
    capacity: Capacity | None = None
    # Faults in order of arrival, then answers for ever; replaces chance.
    script: Sequence[str | int] | None = None
    price: Tariff | None = None

    def __post_init__(self) -> None:
        if self.latency is not None:
            with _about("latency"):
                parse_latency(self.latency)
        with _about("script"):
            parse_script(self.script or ())


HOST = "127.0.0.1"
LOOPBACK_NAMES = frozenset({HOST, "localhost", "[::1]"})


class SimulatorConfig(Struct, frozen=True, forbid_unknown_fields=True):
    seed: int = 42
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0  # on 127.0.0.1; 0 takes a free one
    # Names, beside those of the loopback address, by which clients may call it.
    hosts: frozenset[str] = frozenset()
    # Service time; None leaves it to each persona, and to nothing in a replay.
    latency: str | None = None
    faults: FaultPlan = FaultPlan()
    rate_limit: RateLimit | None = None  # per model
    price: Tariff = Tariff()
    models: dict[str, ModelConfig] = {}

    def __post_init__(self) -> None:
        if self.latency is not None:
            parse_latency(self.latency)

    @property
    def tariffs(self) -> dict[str, Tariff]:
        """Prices of the models that have their own."""
        return {name: own.price for name, own in self.models.items() if own.price is not None}


MAX_BYTES = 2**20


def read_scenario(path: Path) -> SimulatorConfig:
    """Read a scenario file; an error names file and key."""
    try:
        document = parse_toml(read_text(path, MAX_BYTES))
        if "batches" in document:
            raise InputError("the simulator answers no batches; delete this table", field="batches")
        return checked(document, SimulatorConfig)
    except InputError as error:
        raise ConfigError(f"{path}: {error}") from None
