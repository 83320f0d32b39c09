"""Configuration of a simulated provider; its host is always 127.0.0.1."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aegish_dist.errors import ConfigError
from aegish_dist.simulator.batch_plan import BatchPlan
from aegish_dist.simulator.bill import Tariff
from aegish_dist.simulator.bucket import RateLimit
from aegish_dist.simulator.chance import LatencyDistribution
from aegish_dist.simulator.faults import Fault, FaultPlan
from aegish_dist.simulator.personas import PERSONAS

HOST = "127.0.0.1"
LOOPBACK_NAMES = frozenset({HOST, "localhost", "[::1]"})


@dataclass(frozen=True, slots=True)
class ModelConfig:
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


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """A whole simulated provider."""

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
    faults: FaultPlan = field(default_factory=FaultPlan)
    rate_limit: RateLimit | None = None
    """Requests accepted per model; None for no limit."""
    batches: BatchPlan = field(default_factory=BatchPlan)
    price: Tariff = field(default_factory=Tariff)
    models: Mapping[str, ModelConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"port is {self.port}; it must lie between 0 and 65535")
