"""Verdicts: one model's answer about one sample, and what became of it.

A verdict is a fact. Whether it was correct is an opinion and lives in `scoring`.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from msgspec import Struct, field

from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind


class Usage(Struct, frozen=True):
    """Tokens of one call as the provider reported them; None where a number is absent."""

    input_tokens: int | None = None  # all prompt tokens, cached ones included
    output_tokens: int | None = None
    reasoning_tokens: int | None = None  # the part of `output_tokens` for hidden reasoning
    cache_read_tokens: int | None = None  # the part of `input_tokens` from a cache
    cache_write_tokens: int | None = None  # the part of `input_tokens` to a cache
    # The part of `cache_write_tokens` kept for an hour, which costs more; not stored by itself.
    cache_write_1h_tokens: int | None = None


class Completion(Struct, frozen=True):
    """One answer of a provider; its strings are hostile input, size-capped."""

    text: str | None
    stop_reason: str | None = None
    stop_kind: StopKind | None = None  # the same, normalised; None when the provider gave none
    usage: Usage = field(default_factory=Usage)
    refusal: str | None = None
    model: str | None = None  # as returned; may be more precise than the name asked for
    upstream: str | None = None  # the host behind a router such as OpenRouter
    request_id: str | None = None
    suspicion: float | None = None  # of a classifier or log probabilities; finite, at most 1e15
    # Candidates of the first tokens with the logarithms of their probabilities; not stored.
    logprobs: tuple[Mapping[str, float], ...] = ()
    took_ms: float | None = None  # the client's own measure of the call, not stored


class ParsedCompletion(Struct, frozen=True):
    """Content of a completion, as this version's parser reads it."""

    action: Outcome | None
    reason: str | None = None
    confidence: float | None = None  # in [0, 1]; None when absent or invalid
    suspicion: float | None = None  # as of `Completion`


class Timing(Struct, frozen=True):
    """Where the time of one item went, in ms, in parts that do not overlap; None where unknown."""

    queue_ms: float | None = None
    limiter_ms: float | None = None
    backoff_ms: float | None = None
    service_ms: float | None = None  # the last attempt: request sent until answer read
    total_ms: float | None = None


class CallError(Struct, frozen=True):
    """One failed attempt, kept so that an outage can be explained afterwards."""

    attempt: int
    error_class: ErrorClass
    status: int | None
    retry_after_s: float | None
    message: str  # the provider's words, shortened; never a key
    at: datetime


class Item(Struct, frozen=True):
    """The identity of one unit of work; all that a queue message carries."""

    run_id: str
    model: str
    sample_key: int
    epoch: int = 1
    generation: int = 0  # n for the n-th `retry`; the highest one counts


class Verdict(Struct, frozen=True):
    """One model's answer about one sample in one epoch. Insert-only."""

    outcome: Outcome
    completion: Completion | None  # None when no attempt brought a completion
    error_class: ErrorClass | None = None
    reason: str | None = None
    confidence: float | None = None
    parser_version: int = 0  # parser behind outcome, reason and confidence; 0: none
    cost_usd: Decimal | None = None
    timing: Timing = field(default_factory=Timing)
    attempts: int = 1
    worker: str | None = None
    created_at: datetime | None = None
    call_errors: tuple[CallError, ...] = ()
