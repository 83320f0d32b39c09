"""How much of a model may be used: what the catalog allows, and what a provider says is left."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits over the whole fleet; None where there is none."""

    requests_per_minute: float | None = None
    """Calls begun."""
    tokens_per_minute: float | None = None
    """Input and output tokens of the calls begun."""
    max_in_flight: int | None = None
    """Calls at once."""


@dataclass(frozen=True, slots=True)
class RateHint:
    """What the headers of one response say about a model's rate limits; None where they do not."""

    requests_per_minute: float | None = None
    """Calls accepted per minute."""
    requests_remaining: float | None = None
    """Calls that would be accepted now."""
    tokens_per_minute: float | None = None
    """Tokens accepted per minute."""
    tokens_remaining: float | None = None
    """Tokens that would be accepted now."""
    reset_s: float | None = None
    """Seconds until all that is used up is available again."""
