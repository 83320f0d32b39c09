"""How much of a model may be used: what the catalog allows, and what a provider says is left."""

import msgspec


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits over the whole fleet; None where there is none."""

    requests_per_minute: float | None = None
    """Calls begun per minute, above 0."""
    tokens_per_minute: float | None = None
    """Input and output tokens per minute of the calls begun, above 0."""
    max_in_flight: int | None = None
    """Calls in flight, at least 1."""


class RateHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rate limits of a model named by the headers of one response; None where they name none."""

    requests_per_minute: float | None = None
    """Calls accepted per minute."""
    requests_remaining: float | None = None
    tokens_per_minute: float | None = None
    """Tokens accepted per minute."""
    tokens_remaining: float | None = None
    reset_s: float | None = None
    """Seconds until all that is used up is available again."""
