"""Verdicts as a grid of models and commands: what a report shows one by one.

A part of the grid is a range of commands with what every model said about them, as columns of
integers and of texts: a run has a hundred thousand verdicts, and an object for each takes seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aegish_dist.core.sample import Target

UNKNOWN = -1
"""Stands for an absent number."""

JUDGED = ("outcome", "label", "error_class", "correct")
"""Columns that follow from the code of a verdict: places in the enumerations `Outcome`, `Label`
and `ErrorClass`; 1 correct, 0 wrong, unknown where unscored."""
COUNTED = (
    *("confidence", "service_ms", "queue_ms", "limiter_ms", "backoff_ms"),
    *("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens"),
    *("cost_nano_usd", "attempts", "generation", "created_s"),
)
"""Columns that the store counts. Confidence is in 1/1000, cost in 1e-9 USD, `created_s` in seconds
since 1970."""
NUMBERS = (*JUDGED, *COUNTED)
TEXTS = (
    *("completion", "reason", "refusal", "stop_reason", "returned_model", "upstream"),
    *("request_id", "worker"),
)


@dataclass(frozen=True, slots=True)
class GridCommand:
    """A command of a run with its label under an overlay."""

    sample_id: str
    dataset: str
    command: str
    target: Target
    category: str | None
    cluster: str | None
    excluded: bool


@dataclass(frozen=True, slots=True)
class GridAttempt:
    """A failed attempt before a verdict."""

    verdict: int
    """Place of the verdict in the columns of its part."""
    attempt: int
    """1-based."""
    error_class: str
    status: int
    """HTTP status; `UNKNOWN` when there was no response."""
    retry_after_s: float | None
    message: str
    at_s: int
    """When it failed, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class GridPart:
    """Some commands and the verdicts about them that count."""

    commands: Sequence[GridCommand]
    """In the order of their dataset."""
    model: Sequence[int] = ()
    """Of each verdict the place of its model."""
    command: Sequence[int] = ()
    """Of each verdict the place of its command."""
    epoch: Sequence[int] = ()
    """Of each verdict its epoch, 1-based."""
    numbers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    texts: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """The columns `TEXTS`; empty where none were asked for. Long ones are cut."""
    lengths: Mapping[int, int] = field(default_factory=dict)
    """By place of a verdict, the characters of a completion that was cut."""
    attempts: Sequence[GridAttempt] = ()
    """Failed attempts, sorted."""
