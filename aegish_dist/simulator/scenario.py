"""Reads a scenario: a TOML file that describes a simulated provider.

Example::

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

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from aegish_dist.errors import ConfigError, InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.simulator.bill import Tariff
from aegish_dist.simulator.chance import parse_latency
from aegish_dist.simulator.config import (
    BatchPlan,
    CallFault,
    EndFault,
    Endpoint,
    Fault,
    FaultPlan,
    ModelConfig,
    RateLimit,
    RequestFault,
    SimulatorConfig,
    parse_calls,
    parse_script,
)

MAX_BYTES = 2**20
T = TypeVar("T")


class _RateLimit(Struct, forbid_unknown_fields=True):
    requests_per_minute: float
    burst: int | None = None


class _Batches(Struct, forbid_unknown_fields=True):
    duration: str | None = None
    list_lag_s: float | None = None
    retry_after_s: float | None = None
    hang_s: float | None = None
    share: float | None = None
    requests: dict[RequestFault, float] | None = None
    ends: dict[EndFault, float] | None = None
    calls: dict[Endpoint, dict[CallFault, float]] | None = None
    scripts: dict[Endpoint, list[str]] | None = None


class _Tariff(Struct, forbid_unknown_fields=True):
    input: float | None = None
    output: float | None = None
    cached_input: float | None = None


class _Common(Struct, forbid_unknown_fields=True):
    """The keys of the whole provider and of each model; their values as `config` explains them."""

    latency: str | None = None
    faults: dict[str, float] | None = None
    rate_limit: _RateLimit | None = None
    price: _Tariff | None = None


class _Model(_Common):
    script: list[Any] | None = None
    persona: str | None = None


class _Scenario(_Common):
    seed: int | None = None
    port: int | None = None
    require_key: bool | None = None
    vary_repeats: bool | None = None
    batches: _Batches | None = None
    models: dict[str, _Model] | None = None


def read_scenario(path: Path) -> SimulatorConfig:
    """Read a scenario file.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or a key is unknown or wrong; names file
            and key.
    """
    try:
        return _build(SimulatorConfig, checked(parse_toml(read_text(path, MAX_BYTES)), _Scenario))
    except (InputError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _build(kind: Callable[..., T], table: Struct) -> T:
    """Build the simulator's record from the keys that a table gives."""
    given = {key: getattr(table, key) for key in table.__struct_fields__}
    values = {
        key: _read(key, _READERS.get(key, _as_given), value)
        for key, value in given.items()
        if value is not None
    }
    return kind(**values)


def _read(key: str, reader: Callable[[Any], T], value: Any) -> T:
    """Read one value; an error names the key, level by level."""
    try:
        return reader(value)
    except InputError as error:
        raise error.below(key) from None
    except ConfigError as error:
        raise InputError(str(error), field=key) from None


def _models(tables: dict[str, _Model]) -> dict[str, ModelConfig]:
    read = partial(_build, ModelConfig)
    return {name: _read(name, read, table) for name, table in tables.items()}


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


def _script(words: list[Any]) -> tuple[Fault | None, ...]:
    return parse_script(map(str, words))


def _scripts(scripts: dict[Endpoint, list[str]]) -> dict[Endpoint, tuple[CallFault | None, ...]]:
    return {endpoint: _read(endpoint, parse_calls, words) for endpoint, words in scripts.items()}


def _money(usd: float) -> Decimal:
    return Decimal(str(usd))


_READERS: dict[str, Callable[[Any], object]] = {
    "latency": parse_latency,
    "faults": _faults,
    "rate_limit": partial(_build, RateLimit),
    "script": _script,
    "duration": parse_latency,
    "batches": partial(_build, BatchPlan),
    "scripts": _scripts,
    "price": partial(_build, Tariff),
    "input": _money,
    "output": _money,
    "cached_input": _money,
    "models": _models,
}
