"""The answer of a verdict as an output of Inspect AI: text, stop reason and tokens."""

from typing import Any

from aegish_dist.core.verdict import StopKind
from aegish_dist.core.verdict_record import VerdictRecord
from aegish_dist.recordings.record import stop_kind_of

STOP_REASONS = {
    StopKind.STOP: "stop",
    StopKind.MAX_TOKENS: "max_tokens",
    StopKind.CONTENT_FILTER: "content_filter",
}
"""Inspect AI's words; any other stop is `unknown`."""


def output_of(record: VerdictRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the output, and the facts that it and the times of the sample say."""
    said: dict[str, Any] = {"created_at": record.created_at}
    output: dict[str, Any] = {"model": "", "choices": []}
    for name, field in (("latency_ms", "time"), ("total_ms", None)):
        milliseconds = getattr(record, name)
        if milliseconds is not None:
            said[name] = milliseconds / 1000 * 1000
            if field is not None:
                output[field] = milliseconds / 1000
    if record.error_class is not None:
        return output, said
    text, kind = record.completion or "", record.stop_kind
    stop_reason = "unknown" if kind is None else STOP_REASONS.get(kind, "unknown")
    model = record.returned_model or ""
    message = {
        "role": "assistant",
        "content": text,
        "source": "generate",
        "model": model or record.model,
    }
    output |= {
        "model": model,
        "choices": [{"message": message, "stop_reason": stop_reason}],
        "completion": text,
    }
    said |= {
        "completion": text,
        "stop_reason": stop_reason,
        "stop_kind": stop_kind_of(record.stop_reason),
        "returned_model": model,
    }
    if record.refusal is not None:
        output["error"] = said["refusal"] = record.refusal
    usage, tokens = _usage(record)
    if usage is not None:
        output["usage"] = usage
    return output, said | tokens


def _usage(record: VerdictRecord) -> tuple[dict[str, Any] | None, dict[str, int | None]]:
    """Return the tokens in Inspect AI's meaning: input without the cache, output with reasoning."""
    given, generated = record.input_tokens, record.output_tokens
    read, written = record.cache_read_tokens, record.cache_write_tokens
    reasoning, cost = record.reasoning_tokens, record.cost_usd
    if {given, generated, read, written, reasoning, cost} == {None}:
        return None, {}
    cached = (read or 0) + (written or 0)
    beside = max(0, (given or 0) - cached)
    usage: dict[str, Any] = {
        "input_tokens": beside,
        "output_tokens": generated or 0,
        "total_tokens": beside + cached + (generated or 0),
    }
    optional = {
        "input_tokens_cache_read": read,
        "input_tokens_cache_write": written,
        "reasoning_tokens": reasoning,
        "total_cost": None if cost is None else float(cost),
    }
    usage |= {name: value for name, value in optional.items() if value is not None}
    return usage, {
        "input_tokens": beside + cached,
        "output_tokens": generated or 0,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": reasoning,
    }
