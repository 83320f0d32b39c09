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
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from aegish_dist.errors import ConfigError
from aegish_dist.inputs.documents import parse_toml
from aegish_dist.inputs.files import read_input
from aegish_dist.simulator.bucket import RateLimit
from aegish_dist.simulator.chance import Latency, parse_latency
from aegish_dist.simulator.config import ModelConfig, SimulatorConfig
from aegish_dist.simulator.faults import Fault, FaultPlan, parse_script

MAX_BYTES = 2**20
_T = TypeVar("_T")
_Readers = dict[str, Callable[[Any], object]]


def read_scenario(path: Path) -> SimulatorConfig:
    """Read a scenario file.

    Raises:
        ConfigError: When the file cannot be read, is not TOML, or a key is unknown or wrong; the
            message names file and key.
    """
    try:
        content = parse_toml(read_input(path, MAX_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    try:
        return _simulator(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _simulator(content: dict[str, Any]) -> SimulatorConfig:
    readers: _Readers = {
        "seed": _integer,
        "port": _integer,
        "require_key": _flag,
        "vary_repeats": _flag,
        "latency": _latency,
        "faults": _faults,
        "rate_limit": _rate_limit,
        "models": _models,
    }
    return _build(SimulatorConfig, content, readers)


def _models(value: Any) -> dict[str, ModelConfig]:
    readers: _Readers = {
        "latency": _latency,
        "faults": _faults,
        "rate_limit": _rate_limit,
        "script": _script,
        "persona": _text,
    }
    return {
        name: _at(f'"{name}"', lambda table: _build(ModelConfig, _table(table), readers), table)
        for name, table in _table(value).items()
    }


def _faults(value: Any) -> FaultPlan:
    content = dict(_table(value))
    timings = {
        name: _at(name, _number, content.pop(name))
        for name in ("retry_after_s", "hang_s")
        if name in content
    }
    _refuse_unknown(content, list(Fault))
    chances = {Fault(name): _at(name, _number, chance) for name, chance in content.items()}
    return FaultPlan(chances, **timings)


def _rate_limit(value: Any) -> RateLimit:
    content = _table(value)
    if "requests_per_minute" not in content:
        raise ConfigError("requests_per_minute is missing")
    return _build(RateLimit, content, {"requests_per_minute": _number, "burst": _integer})


def _script(value: Any) -> tuple[Fault | None, ...]:
    if not isinstance(value, list):
        raise ConfigError("is not a list of faults")
    return parse_script(str(word) for word in value)


def _latency(value: Any) -> Latency:
    return parse_latency(_text(value))


def _build(kind: Callable[..., _T], content: dict[str, Any], readers: _Readers) -> _T:
    """Read each key with its reader and build the record from them."""
    _refuse_unknown(content, list(readers))
    return kind(**{name: _at(name, readers[name], value) for name, value in content.items()})


def _at(key: str, read: Callable[[Any], _T], value: Any) -> _T:
    """Read one value; a complaint gets the key in front, level by level."""
    try:
        return read(value)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _refuse_unknown(content: dict[str, Any], known: list[str]) -> None:
    for name in content:
        if name not in known:
            raise ConfigError(f"{name}: unknown key; known are {', '.join(known)}")


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError("is not a table")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{value!r} is not an integer")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{value!r} is not a number")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r} is not true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{value!r} is not a text")
    return value
