"""Completions: a provider's answer as it came, before it is parsed or scored."""

from dataclasses import dataclass, field
from enum import StrEnum


class StopKind(StrEnum):
    """The raw stop reasons of all providers, brought to four."""

    STOP = "stop"
    MAX_TOKENS = "max_tokens"
    """The output or context limit cut the answer."""
    CONTENT_FILTER = "content_filter"
    """The provider withheld or cut the answer: filter, safety block or refusal."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the provider reported them; None where it did not."""

    input_tokens: int | None = None
    """All prompt tokens, those read from and written to a cache included."""
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    """The part of `output_tokens` spent on hidden reasoning."""
    cache_read_tokens: int | None = None
    """The part of `input_tokens` served from a prompt cache."""
    cache_write_tokens: int | None = None
    """The part of `input_tokens` written to a prompt cache."""
    cache_write_1h_tokens: int | None = None
    """The part of `cache_write_tokens` to be kept for an hour, which costs more; it enters the
    cost of the call and is not stored by itself."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of a provider; its strings are hostile input, any Unicode, already size-capped."""

    text: str | None
    """The answer text; None or empty when there was none."""
    stop_reason: str | None = None
    """The stop reason in the provider's own word."""
    stop_kind: StopKind | None = None
    """The same, normalised; None when the provider gave none."""
    usage: Usage = field(default_factory=Usage)
    refusal: str | None = None
    """Refusal or filter detail where the provider gives one."""
    model: str | None = None
    """The model id as returned, which may be more precise than the one asked for."""
    upstream: str | None = None
    """The host that served the call behind a router such as OpenRouter."""
    request_id: str | None = None
