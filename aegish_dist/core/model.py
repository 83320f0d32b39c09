"""Facts that a worker needs to call a model; fixed for a run at submit."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from aegish_dist.core.cost import Price
from aegish_dist.core.limits import Limits
from aegish_dist.core.wire import WireFormat


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the calls of a model go, and with which key; from a run, and so not to be trusted."""

    wire: str
    base_url: str
    """Root of the API; empty for baselines."""
    key_variable: str | None
    """Environment variable that holds the key; None when no key is sent."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model as the catalog resolves it."""

    id: str
    """Canonical id, such as `openai/gpt-5.1`."""
    wire: WireFormat
    name: str
    base_url: str = ""
    """Root of the API, without a trailing slash; empty for baselines."""
    key_variable: str | None = None
    """Environment variable that holds the key; None when no key is needed."""
    max_in_flight: int | None = None
    """Calls in flight at most, over the whole fleet; None leaves it to what the provider says."""
    price: Price | None = None
    """None when unknown."""
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Extra fields of the request body, e.g. `reasoning_effort`; a null removes a default field."""
    simulated: bool = False
    """Whether answers come from the simulator; reports say so."""
    requests_per_minute: float | None = None
    """Calls begun at most, over the whole fleet; None leaves it to what the provider says."""
    tokens_per_minute: float | None = None
    """Tokens of the calls begun at most, likewise."""
    shared: Limits = field(default_factory=Limits)
    """Limits that all models of the provider share."""
    max_tokens_field: str | None = None
    """Name of the field that bounds the output in OpenAI's wire format; None: by the host."""
    batch_share: Decimal | None = None
    """Cost of a batched request as a share of `price`; None: its provider takes no batches."""

    @property
    def batch_price(self) -> Price | None:
        """Price of batched requests; None when unknown, or when none are taken."""
        if self.price is None or self.batch_share is None:
            return None
        return self.price.times(self.batch_share)

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.id.partition("/")[0]

    @property
    def destination(self) -> Destination:
        """Where its calls go."""
        return Destination(self.wire, self.base_url, self.key_variable)

    @property
    def limits(self) -> Limits:
        """The limits of this model alone."""
        return Limits(self.requests_per_minute, self.tokens_per_minute, self.max_in_flight)


@dataclass(frozen=True, slots=True)
class CallParameters:
    """Generation parameters of a run, the same for every model."""

    seed: int | None = 42
    """Sent where the wire format knows it (not Anthropic), one more in each further epoch."""
    temperature: float | None = None
    """None leaves the provider's default."""
    max_output_tokens: int = 4096
    time_limit_s: float = 180.0
    max_cost_usd: Decimal | None = None
    """Cost in USD from which the run begins no further call; None sets no bound."""
    max_cost_per_model_usd: Decimal | None = None

    def of_epoch(self, epoch: int) -> "CallParameters":
        """Return what is sent in an epoch: each has a seed of its own.

        With one seed for all, a provider that keeps to it gives the same answer again, and repeats
        of a command would look certain.

        Args:
            epoch: 1-based; the first one has the seed of the run.
        """
        return self if self.seed is None else replace(self, seed=self.seed + epoch - 1)
