"""Verdicts as rows and back, field by field."""

from dataclasses import dataclass
from datetime import datetime

from aegish_dist.core.completion import Completion, StopKind, Usage
from aegish_dist.core.verdict import CallError, ErrorClass, Outcome, Timing, Verdict
from aegish_dist.db.tables import VerdictRow
from aegish_dist.db.text import encode_text


@dataclass(frozen=True, slots=True)
class VerdictKey:
    """The natural key of a verdict in the store."""

    run_model_id: int
    sample_key: int
    epoch: int
    generation: int


def _any_text(value: str | None) -> str | None:
    return None if value is None else encode_text(value)


def _instant(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def verdict_row(key: VerdictKey, verdict: Verdict) -> dict[str, object]:
    """Return the columns of a verdict as JSON values."""
    completion = verdict.completion or Completion(text=None)
    usage, timing = completion.usage, verdict.timing
    return {
        "run_model_id": key.run_model_id,
        "sample_key": key.sample_key,
        "epoch": key.epoch,
        "generation": key.generation,
        "outcome": verdict.outcome,
        "error_class": verdict.error_class,
        "completion": _any_text(completion.text),
        "stop_reason": _any_text(completion.stop_reason),
        "stop_kind": completion.stop_kind,
        "refusal": _any_text(completion.refusal),
        "model_returned": _any_text(completion.model),
        "upstream": _any_text(completion.upstream),
        "request_id": _any_text(completion.request_id),
        "reason": _any_text(verdict.reason),
        "confidence": verdict.confidence,
        "parser_version": verdict.parser_version,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cost_usd": None if verdict.cost_usd is None else str(verdict.cost_usd),
        "queue_ms": timing.queue_ms,
        "limiter_ms": timing.limiter_ms,
        "backoff_ms": timing.backoff_ms,
        "service_ms": timing.service_ms,
        "total_ms": timing.total_ms,
        "attempts": verdict.attempts,
        "worker": verdict.worker,
        "created_at": _instant(verdict.created_at),
    }


def error_row(key: VerdictKey, error: CallError) -> dict[str, object]:
    """Return the columns of a failed attempt as JSON values."""
    return {
        "run_model_id": key.run_model_id,
        "sample_key": key.sample_key,
        "epoch": key.epoch,
        "generation": key.generation,
        "attempt": error.attempt,
        "error_class": error.error_class,
        "status": error.status,
        "retry_after_s": error.retry_after_s,
        "message": encode_text(error.message),
        "at": _instant(error.at),
    }


def to_verdict(row: VerdictRow, errors: tuple[CallError, ...]) -> Verdict:
    """Return the record of a row."""
    completion = Completion(
        text=row.completion,
        stop_reason=row.stop_reason,
        stop_kind=None if row.stop_kind is None else StopKind(row.stop_kind),
        usage=Usage(
            row.input_tokens,
            row.output_tokens,
            row.reasoning_tokens,
            row.cache_read_tokens,
            row.cache_write_tokens,
        ),
        refusal=row.refusal,
        model=row.model_returned,
        upstream=row.upstream,
        request_id=row.request_id,
    )
    return Verdict(
        outcome=Outcome(row.outcome),
        completion=None if row.error_class is not None else completion,
        error_class=None if row.error_class is None else ErrorClass(row.error_class),
        reason=row.reason,
        confidence=row.confidence,
        parser_version=row.parser_version,
        cost_usd=row.cost_usd,
        timing=Timing(row.queue_ms, row.limiter_ms, row.backoff_ms, row.service_ms, row.total_ms),
        attempts=row.attempts,
        worker=row.worker,
        created_at=row.created_at,
        call_errors=errors,
    )
