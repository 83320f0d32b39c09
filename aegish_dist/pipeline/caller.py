"""A model of a run, ready to be called: its client, its limits, its price and its spans.

The spans have the names of OpenTelemetry's GenAI conventions; neither messages nor answers are
among their attributes: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from aegish_dist.core.model import CallParameters, ModelSpec, Price, cost_usd
from aegish_dist.core.run import COMMAND_SLOT, Prompt
from aegish_dist.core.verdict import Completion, Usage, Verdict
from aegish_dist.errors import ProviderError
from aegish_dist.models.prices import ANSWER_TOKENS, CHARACTERS_PER_TOKEN, FRAMING_TOKENS
from aegish_dist.providers.contract import ModelClient
from aegish_dist.ratelimit.fair_queue import NANO_USD, Budget, ExpectedUsage
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.telemetry import Attributes, Value, known
from aegish_dist.telemetry.tracing import note, run_tracer

WEIGHT = 0.1
"""Weight of the newest answer in the running mean of answers' lengths."""
MAX_ANSWER_TOKENS = 100_000
"""A longer answer counts as one of this length; some providers report nonsense."""
PROVIDERS = {"google": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
"""Names of the conventions where they differ from ours."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A model of a run, ready to be called."""

    client: ModelClient
    """Speaks to the provider with the run's prompt and parameters."""
    limiter: ModelLimiter
    """Admits calls to this model, whatever the run."""
    estimator: "UsageEstimator"
    price: Price | None
    """The run's price list; None: unknown."""
    budget: Budget | None = None
    """Caps on the cost of the run; None: no cap."""


class UsageEstimator:
    """Learns from the answers of one model in one run how long they are."""

    def __init__(self, prompt: Prompt, price: Price | None, budget: Budget | None) -> None:
        """Start from an answer of ordinary length.

        Args:
            price: Price list of the model; None: unknown.
            budget: Caps of the run; without any, costs count as 0.
        """
        self._fixed = len(prompt.system) + len(prompt.template) - len(COMMAND_SLOT)
        self._price = price
        self._counts_cost = budget is not None
        self._answer_tokens = float(ANSWER_TOKENS)

    def expected(self, command: str) -> ExpectedUsage:
        """Return what the call for a command will probably use."""
        prompt = -(-(self._fixed + len(command)) // CHARACTERS_PER_TOKEN) + FRAMING_TOKENS
        answer = round(self._answer_tokens)
        return ExpectedUsage(prompt + answer, self._cost(Usage(prompt, answer)) or 0)

    def used(self, completion: Completion) -> tuple[int | None, int | None]:
        """Return what an answer used, and learn from it.

        Returns:
            Tokens, and cost in 1e-9 USD; each None when unknown.
        """
        usage = completion.usage
        if usage.output_tokens is not None:
            newest = min(usage.output_tokens, MAX_ANSWER_TOKENS)
            self._answer_tokens += WEIGHT * (newest - self._answer_tokens)
        known = usage.input_tokens is not None and usage.output_tokens is not None
        tokens = (usage.input_tokens or 0) + (usage.output_tokens or 0) if known else None
        return tokens, self._cost(usage)

    def _cost(self, usage: Usage) -> int | None:
        if not self._counts_cost:
            return 0
        usd = cost_usd(usage, self._price)
        return None if usd is None else int(usd * NANO_USD)


def traced(client: ModelClient, spec: ModelSpec, parameters: CallParameters) -> ModelClient:
    """Return a client whose calls have spans, or the client itself where nothing is traced."""
    return client if run_tracer() is None else _TracedClient(client, spec, parameters)


class _TracedClient:
    """A client with a span around each call within the span of an item."""

    def __init__(self, client: ModelClient, spec: ModelSpec, parameters: CallParameters) -> None:
        self._client = client
        self._name = f"chat {spec.name}"
        self._attributes = _request(spec, parameters)

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        tracer = run_tracer()
        if tracer is None:
            return await self._client.complete(command, epoch)
        with tracer.call(self._name, self._attributes) as span:
            if span is None:
                return await self._client.complete(command, epoch)
            try:
                completion = await self._client.complete(command, epoch)
            except ProviderError as error:
                note(_failure(error))
                raise
            note(_response(completion))
            return completion


def note_verdict(verdict: Verdict) -> None:
    """Add the outcome of an item and its waits to its span, if it has one."""
    if run_tracer() is None:
        return
    timing = verdict.timing
    facts: dict[str, Value | None] = {
        "aegish_dist.outcome": str(verdict.outcome),
        "aegish_dist.attempts": verdict.attempts,
        "aegish_dist.cost_usd": None if verdict.cost_usd is None else float(verdict.cost_usd),
        "aegish_dist.queue_ms": timing.queue_ms,
        "aegish_dist.limiter_ms": timing.limiter_ms,
        "aegish_dist.backoff_ms": timing.backoff_ms,
        "aegish_dist.service_ms": timing.service_ms,
    }
    note(known(facts))


def _request(spec: ModelSpec, parameters: CallParameters) -> Attributes:
    address = urlsplit(spec.base_url)
    facts: dict[str, Value | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS.get(spec.provider, spec.provider),
        "gen_ai.request.model": spec.name,
        "gen_ai.request.max_tokens": parameters.max_output_tokens,
        "gen_ai.request.temperature": parameters.temperature,
        "server.address": address.hostname,
        "server.port": address.port,
    }
    return known(facts)


def _response(completion: Completion) -> Attributes:
    usage, reason = completion.usage, completion.stop_reason
    facts: dict[str, Value | None] = {
        "gen_ai.response.id": completion.request_id,
        "gen_ai.response.model": completion.model,
        "gen_ai.response.finish_reasons": None if reason is None else [reason],
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
    }
    return known(facts)


def _failure(error: ProviderError) -> Attributes:
    status = {} if error.status is None else {"http.response.status_code": error.status}
    return {"error.type": str(error.error_class), **status}
