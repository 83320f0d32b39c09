"""A verdict together with what it is about: how results travel between files, stores and replay.

Millions of verdicts travel as rows of text instead, one cell per name in `CELLS`.
"""

from dataclasses import dataclass

from aegish_dist.core.completion import Completion
from aegish_dist.core.sample import Sample
from aegish_dist.core.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Recording:
    """One line of a verdict export, or one sample of an imported log."""

    model: str
    """Canonical model id."""
    dataset: str
    """Name of the dataset the sample belongs to."""
    sample: Sample
    """The labelled command."""
    epoch: int
    """1-based repeat."""
    verdict: Verdict
    """What the model answered."""
    generation: int = 0
    """0 for the first try, n for the n-th retry."""
    simulated: bool = False
    """Whether the answer came from the simulator: no evidence about any real model."""
    negative_time: bool = False
    """Whether a time of it was below zero where it was read, and therefore counts as unknown."""


Cells = list[str | None]
"""A verdict as text: numbers, times and enumerations as PostgreSQL reads them, free texts as they
are, None for null."""

CELLS = (
    *("epoch", "generation", "outcome", "error_class", "completion", "stop_reason", "stop_kind"),
    *("refusal", "model_returned", "upstream", "request_id", "reason", "confidence"),
    *("parser_version", "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "cost_usd", "queue_ms", "limiter_ms", "backoff_ms", "service_ms"),
    *("total_ms", "attempts", "worker", "created_at"),
)
"""The meaning of each cell."""


def to_cells(recording: Recording) -> Cells:
    """Return a recorded verdict as text; the errors of its failed attempts stay behind."""
    verdict, completion = recording.verdict, recording.verdict.completion or Completion(text=None)
    timing, usage = verdict.timing, completion.usage
    values = (
        *(recording.epoch, recording.generation, verdict.outcome, verdict.error_class),
        *(completion.text, completion.stop_reason, completion.stop_kind, completion.refusal),
        *(completion.model, completion.upstream, completion.request_id, verdict.reason),
        *(verdict.confidence, verdict.parser_version, usage.input_tokens, usage.output_tokens),
        *(usage.reasoning_tokens, usage.cache_read_tokens, usage.cache_write_tokens),
        *(verdict.cost_usd, timing.queue_ms, timing.limiter_ms, timing.backoff_ms),
        *(timing.service_ms, timing.total_ms, verdict.attempts, verdict.worker),
        verdict.created_at,
    )
    return [None if value is None else str(value) for value in values]
