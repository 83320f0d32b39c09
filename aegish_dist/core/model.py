"""A model as a worker calls it: wire format, limits, parameters, price; fixed for a run at submit.

A format that goes over the network is one entry of `WireFormat` and two modules of its name, in
`providers` and `simulator`: docs/guides/add-a-wire-format.md. Prices are per call, not per sum of
calls, because tiers depend on the size of each prompt.
"""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from aegish_dist.core.output import Output
from aegish_dist.core.verdict import Usage


class HttpApi(msgspec.Struct, frozen=True):
    """Facts of a wire format that more than one part of the program needs."""

    title: str
    # Pattern of the headers' names: `{of}` is `requests` or `tokens`, `{what}` is `limit`,
    # `remaining` or `reset`.
    rate_limit_headers: str | None
    output_limit_fields: tuple[str, ...]  # request fields that may bound the output
    simulated_root: str  # path of the API's root on the simulator
    simulated_model: str  # persona of the simulator that `demo` asks in this wire format
    chat: bool = True  # False: its guards are sent the command without a prompt
    batches: bool = False  # then `providers/batches/NAME.py` speaks them


class WireFormat(StrEnum):
    _value_: str
    http: HttpApi | None  # None when no call leaves this process

    def __new__(cls, value: str, http: HttpApi | None) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.http = http
        return member

    # Also spoken by vLLM, Ollama, Groq, OpenRouter, ...
    OPENAI = (
        "openai",
        HttpApi(
            title="OpenAI chat completions",
            rate_limit_headers="x-ratelimit-{what}-{of}",
            output_limit_fields=("max_completion_tokens", "max_tokens"),
            simulated_root="/v1",
            simulated_model="careful",
            batches=True,
        ),
    )
    ANTHROPIC = (
        "anthropic",
        HttpApi(
            title="Anthropic messages",
            rate_limit_headers="anthropic-ratelimit-{of}-{what}",
            output_limit_fields=("max_tokens",),
            simulated_root="",
            simulated_model="lenient",
            batches=True,
        ),
    )
    GOOGLE = (
        "google",
        HttpApi(
            title="Gemini generateContent",
            rate_limit_headers=None,
            output_limit_fields=("maxOutputTokens",),
            simulated_root="/v1beta",
            simulated_model="hasty",
            batches=True,
        ),
    )
    # A JSON document of the operator's own form, sent and answered.
    HTTP = (
        "http",
        HttpApi(
            title="classifiers",
            rate_limit_headers=None,
            output_limit_fields=(),
            simulated_root="/classify",
            simulated_model="careful",
            chat=False,
        ),
    )
    EXEC = ("exec", None)  # a program of the worker's operator
    PYTHON = ("python", None)  # an object of Python in the operator's own environment
    BASELINE = ("baseline", None)
    IMPORTED = ("imported", None)  # never called from here: its verdicts were imported

    @property
    def reads_prompt(self) -> bool:
        return self.http is not None and self.http.chat


def is_baseline(model: str) -> bool:
    """Whether a model is one of ours that others have to beat, by its id."""
    return model.startswith(f"{WireFormat.BASELINE}/")


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A guard that is a program, as the worker operator's catalog names it; no run ever does."""

    command: tuple[str, ...]  # arguments, the program first; no shell reads them
    # `once`: started for each command. `lines`: answers JSON objects line by line, each with the
    # `id` of its question.
    mode: Literal["once", "lines"] = "once"
    # On standard input: an agent's PreToolUse document, `{"id", "command"}` or the command alone;
    # `lines` knows no text.
    input: Literal["hook", "json", "text"] = "json"
    processes: int = 1  # at once, per worker
    memory_mb: int = 512  # private, of each process
    pass_variables: tuple[str, ...] = ()  # of the environment; PATH and LANG are passed always
    writes: tuple[str, ...] = ()  # paths that it may write, beside its own home and /dev/null


# The formats that go over the network, in the order of the table.
HTTP_FORMATS: dict[WireFormat, HttpApi] = {
    wire: wire.http for wire in WireFormat if wire.http is not None
}


# Separates a model from its arm: the variant, the prompt, or both as `VARIANT+PROMPT`.
ARM_MARK = "#"


def base_of(contender: str) -> str:
    """Return the model of a contender: all its arms share limits, circuit breaker and price."""
    return contender.partition(ARM_MARK)[0]


MaxInFlight = Annotated[int, Meta(ge=1, le=10_000)]
PerMinute = Annotated[float, Meta(ge=1e-3, le=1e9)]  # from one call in 17 hours on
Text = Annotated[str, Meta(max_length=2_000)]


def is_amount(usd: Decimal, most: int = 10**12) -> bool:
    """Whether a number is one from 0 to `most`, and not so small that no database holds it."""
    return usd.is_finite() and -100 <= usd.adjusted() <= 12 and 0 <= usd <= most


def _require_amounts(*amounts: Decimal | None) -> None:
    """Refuse what is none by a `ValueError`, which msgspec turns into an error of its own."""
    if not all(is_amount(usd) for usd in amounts if usd is not None):
        raise ValueError("an amount of money is not from 0 to 1e12")


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits over the whole fleet; None means no limit."""

    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None  # input and output, of the calls begun
    max_in_flight: MaxInFlight | None = None


class RateHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rate limits of a model in the headers of one response; None where the headers name none."""

    requests_per_minute: float | None = None
    requests_remaining: float | None = None
    tokens_per_minute: float | None = None
    tokens_remaining: float | None = None


TOKENS_PER_UNIT = Decimal(1_000_000)


class Rate(msgspec.Struct, frozen=True):
    """A price per million tokens that may rise with the size of the prompt."""

    base: Decimal  # USD per million tokens
    # (threshold, USD): a prompt above the threshold pays this price on all tokens
    tiers: tuple[tuple[int, Decimal], ...] = ()

    def __post_init__(self) -> None:
        _require_amounts(self.base, *(usd for _, usd in self.tiers))

    def at(self, input_tokens: int) -> Decimal:
        reached = [rate for threshold, rate in sorted(self.tiers) if input_tokens > threshold]
        return reached[-1] if reached else self.base

    def times(self, share: Decimal) -> "Rate":
        tiers = tuple((threshold, rate * share) for threshold, rate in self.tiers)
        return Rate(self.base * share, tiers)


class Price(msgspec.Struct, frozen=True):
    """The price list of one model as of submit."""

    input: Rate = Rate(Decimal(0))
    output: Rate = Rate(Decimal(0))
    cache_read: Rate | None = None  # prompt tokens read from a cache; as `input` when None
    cache_write: Rate | None = None  # prompt tokens written to a cache; as `input` when None
    cache_write_1h: Rate | None = None  # kept for an hour; None: as `cache_write`
    # Flat USD per call, for hosts that bill so or report no usage; then tokens cost nothing.
    per_call: Decimal | None = None
    # USD per hour of a machine that one call keeps busy; then nothing else costs anything.
    per_hour: Decimal | None = None
    cache_from_tokens: int = 0  # tokens from which on the provider caches a prefix

    def __post_init__(self) -> None:
        _require_amounts(self.per_call, self.per_hour)

    def times(self, share: Decimal) -> "Price":
        """Return all prices multiplied by a share, for example the share that batches cost."""
        rates = {
            name: rate.times(share)
            for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h")
            if (rate := getattr(self, name)) is not None
        }
        per_call = None if self.per_call is None else self.per_call * share
        return replace(self, per_call=per_call, **rates)


def cost_usd(usage: Usage, price: Price | None, service_s: float = 0.0) -> Decimal | None:
    """Return the exact cost of a call in USD, which took `service_s`.

    None without a price list, and without usage unless the price is flat.
    """
    if price is None:
        return None
    if price.per_hour is not None:
        return price.per_hour * Decimal(str(round(service_s, 6))) / 3600
    if price.per_call is not None or (usage.input_tokens is None and usage.output_tokens is None):
        return price.per_call
    prompt = usage.input_tokens or 0
    read = min(usage.cache_read_tokens or 0, prompt)
    written = min(usage.cache_write_tokens or 0, prompt - read)
    kept = min(usage.cache_write_1h_tokens or 0, written)
    fresh = prompt - read - written
    write_rate = price.cache_write or price.input
    total = (
        fresh * price.input.at(prompt)
        + read * (price.cache_read or price.input).at(prompt)
        + (written - kept) * write_rate.at(prompt)
        + kept * (price.cache_write_1h or write_rate).at(prompt)
        + (usage.output_tokens or 0) * price.output.at(prompt)
    )
    return total / TOKENS_PER_UNIT


MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
Structured = Literal["schema", "tool"]


class Destination(msgspec.Struct, frozen=True):
    """Where the calls of a model go, and with which key. It comes from a run and is untrusted."""

    wire: str
    base_url: str
    key_variable: str | None
    model: str = ""
    request: Mapping[str, object] | None = None
    output: Output | None = None
    # Why the run's row says nothing of it, which then is the reason to refuse; None: it does.
    unreadable: str | None = None


class ModelSpec(msgspec.Struct, frozen=True):
    id: Text  # canonical id, such as `openai/gpt-5.1`, or of one of its arms `openai/gpt-5.1#low`
    wire: WireFormat
    name: Text
    base_url: Text = ""  # root of the API, without a trailing slash; empty for baselines
    key_variable: Text | None = None
    max_in_flight: MaxInFlight | None = None  # most calls in flight, over the fleet
    price: Price | None = None
    # Extra fields of the request body; a null removes a default.
    parameters: Mapping[str, object] = msgspec.field(default_factory=dict)
    simulated: bool = False  # whether answers come from the simulator; reports say so
    requests_per_minute: PerMinute | None = None  # most calls begun per minute, over the fleet
    tokens_per_minute: PerMinute | None = None
    shared: Limits = msgspec.field(default_factory=Limits)
    max_tokens_field: MaxTokensField | None = None  # in OpenAI's format; None: the host's
    batch_share: Decimal | None = None  # cost of a batched request over `price`; None: no batches
    request: Mapping[str, object] | None = None  # in the format `http`; `{command}` stands in it
    output: Output | None = None  # None: the JSON that our prompts ask for
    # How the provider holds a chat model to the JSON that our prompts ask for: by its schema, or
    # as the arguments of a function that the model has to call; None: not at all.
    structured: Structured | None = None

    def __post_init__(self) -> None:
        _require_amounts(self.batch_share)

    @property
    def batch_price(self) -> Price | None:
        """Price of batched requests; None when unknown, or when the provider takes no batches.

        Nothing says how long a batched request keeps a machine busy.
        """
        if self.price is None or self.price.per_hour is not None or self.batch_share is None:
            return None
        return self.price.times(self.batch_share)

    @property
    def provider(self) -> str:
        return self.id.partition("/")[0]

    @property
    def destination(self) -> Destination:
        where = self.wire, self.base_url, self.key_variable
        return Destination(*where, self.id, self.request, self.output)

    @property
    def limits(self) -> Limits:
        return Limits(self.requests_per_minute, self.tokens_per_minute, self.max_in_flight)


Seed = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Temperature = Annotated[float, Meta(ge=0, le=2)]


class CallParameters(msgspec.Struct, frozen=True):
    """Generation parameters of a run, the same for every model."""

    seed: Seed | None = 42  # grows by 1 with each epoch; not sent to Anthropic
    temperature: Temperature | None = None  # None leaves the provider's default
    max_output_tokens: Annotated[int, Meta(ge=1, le=2**31)] = 4096
    time_limit_s: Annotated[float, Meta(gt=0, le=1e6)] = 180.0
    # Once the run has cost this many USD, it begins no further call; None sets no cap.
    max_cost_usd: Decimal | None = None
    max_cost_per_model_usd: Decimal | None = None

    def __post_init__(self) -> None:
        _require_amounts(self.max_cost_usd, self.max_cost_per_model_usd)

    def of_epoch(self, epoch: int) -> "CallParameters":
        """Return the parameters sent in an epoch, counted from 1: each epoch has its own seed.

        With one seed, providers that honour seeds repeat their answer, and repeats look certain.
        """
        return self if self.seed is None else replace(self, seed=self.seed + epoch - 1)
