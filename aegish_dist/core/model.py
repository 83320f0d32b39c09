"""What a worker has to know to call a model; fixed for a run at submit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from aegish_dist.core.cost import Price


class WireFormat(StrEnum):
    """The protocol a model is spoken to in."""

    OPENAI = "openai"
    """OpenAI chat completions, also spoken by vLLM, Ollama, Groq, OpenRouter, ..."""
    ANTHROPIC = "anthropic"
    """Anthropic messages."""
    GOOGLE = "google"
    """Gemini generateContent."""
    BASELINE = "baseline"
    """No network: a rule inside this package."""
    IMPORTED = "imported"
    """Never called from here: its verdicts were imported."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model as the catalog resolves it."""

    id: str
    """Canonical id, such as `openai/gpt-5.1`."""
    wire: WireFormat
    """Protocol."""
    name: str
    """The model's name in the provider's requests."""
    base_url: str = ""
    """Root of the API, without a trailing slash; empty for baselines."""
    key_variable: str | None = None
    """Environment variable that holds the key; None when no key is needed."""
    max_in_flight: int = 100
    """Calls in flight at most, per worker process."""
    price: Price | None = None
    """None when unknown."""
    parameters: Mapping[str, object] = field(default_factory=dict)
    """Extra fields of the request body, e.g. `reasoning_effort`; a null removes a default field."""
    simulated: bool = False
    """Whether answers come from the simulator; reports say so."""


@dataclass(frozen=True, slots=True)
class CallParameters:
    """Generation parameters of a run, the same for every model."""

    seed: int | None = 42
    """Sent where the wire format knows it (not Anthropic)."""
    temperature: float | None = None
    """None leaves the provider's default."""
    max_output_tokens: int = 4096
    """Room for hidden reasoning included."""
    time_limit_s: float = 180.0
    """Deadline of one attempt."""
