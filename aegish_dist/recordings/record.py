"""One recording as a flat record: the keys of a verdict line, the columns of a Parquet row.

Facts travel; opinions are formed anew: `outcome`, `reason`, `confidence` and `parser_version` are
written for the reader's sake and recomputed by today's parser when read. Keys nobody knows are
ignored, so that other tools may add their own.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from aegish_dist.core.completion import Completion, StopKind, Usage
from aegish_dist.core.parsing import judge
from aegish_dist.core.recording import Recording
from aegish_dist.core.sample import MAX_COMMAND_CHARS, Sample, Target
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import CallError, ErrorClass, Timing, Verdict
from aegish_dist.recordings.answers import stop_kind_of, unanswered
from aegish_dist.recordings.fields import MAX_TOKENS, Fields, is_storable


def to_record(recording: Recording) -> dict[str, Any]:
    """Flatten a recording; texts, numbers, Decimal, datetime, and `call_errors` nested."""
    sample, verdict, timing = recording.sample, recording.verdict, recording.verdict.timing
    completion = verdict.completion or Completion(text=None)
    usage = completion.usage
    return {
        "model": recording.model,
        "dataset": recording.dataset,
        "command": sample.command,
        "target": sample.target,
        "category": sample.category,
        "cluster": sample.cluster,
        "epoch": recording.epoch,
        "completion": completion.text,
        "stop_reason": completion.stop_reason,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "latency_ms": timing.service_ms,
        "cost_usd": verdict.cost_usd,
        "created_at": verdict.created_at,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "confidence": verdict.confidence,
        "parser_version": verdict.parser_version,
        "answered": verdict.completion is not None,
        "error_class": verdict.error_class,
        "generation": recording.generation,
        "simulated": recording.simulated,
        "attempts": verdict.attempts,
        "stop_kind": completion.stop_kind,
        "refusal": completion.refusal,
        "returned_model": completion.model,
        "upstream": completion.upstream,
        "request_id": completion.request_id,
        "reasoning_tokens": usage.reasoning_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "queue_ms": timing.queue_ms,
        "limiter_ms": timing.limiter_ms,
        "backoff_ms": timing.backoff_ms,
        "total_ms": timing.total_ms,
        "worker": verdict.worker,
        "metadata": dict(sample.metadata),
        "call_errors": [asdict(error) for error in verdict.call_errors],
    }


def from_record(fields: Fields) -> Recording:
    """Build a recording from a flat record.

    Only model, command, target and the key completion have to be there.

    Raises:
        DatasetError: A field is missing, of the wrong type or out of range.
    """
    return Recording(
        model=fields.required_label("model"),
        dataset=dataset_of(fields),
        sample=sample_of(fields),
        epoch=fields.integer("epoch", lowest=1) or 1,
        verdict=_verdict(fields),
        generation=fields.integer("generation") or 0,
        simulated=fields.flag("simulated") or False,
    )


def dataset_of(fields: Fields) -> str:
    """Return the name of the dataset; without one it is called after the file."""
    return fields.label("dataset") or Path(fields.source).stem


def sample_of(fields: Fields) -> Sample:
    """Return what a flat record is about.

    Raises:
        DatasetError: A field of the sample is missing, of the wrong type or out of range.
    """
    target = fields.choice("target", Target)
    if target is None:
        raise fields.missing("target")
    return Sample(
        command=fields.required_label("command", MAX_COMMAND_CHARS),
        target=target,
        category=fields.label("category"),
        cluster=fields.label("cluster"),
        metadata=_metadata(fields),
    )


def _metadata(fields: Fields) -> dict[str, str]:
    metadata = fields.part("metadata")
    if not all(is_storable(key) for key in metadata.values):
        raise fields.error("no key may contain U+0000 or half a surrogate pair", "metadata")
    texts = {key: metadata.storable(key) for key in metadata.values}
    return {key: text for key, text in texts.items() if text is not None}


def _verdict(fields: Fields) -> Verdict:
    attempts = fields.integer("attempts")
    return replace(
        _answer(fields),
        cost_usd=fields.cost("cost_usd"),
        timing=Timing(
            queue_ms=fields.number("queue_ms"),
            limiter_ms=fields.number("limiter_ms"),
            backoff_ms=fields.number("backoff_ms"),
            service_ms=fields.number("latency_ms"),
            total_ms=fields.number("total_ms"),
        ),
        attempts=1 if attempts is None else attempts,
        worker=fields.label("worker"),
        created_at=fields.moment("created_at"),
        call_errors=tuple(_call_error(part) for part in fields.parts("call_errors")),
    )


def _answer(fields: Fields) -> Verdict:
    """Judge the completion; where none came, the error class says why, else the deadline it was."""
    if "completion" not in fields.values:
        raise fields.error("is missing; null says that no answer came", "completion")
    completion = _completion(fields)
    error_class = fields.choice("error_class", ErrorClass)
    if error_class is not None:
        if completion.text is not None:
            raise fields.error("must be absent where there is a completion", "error_class")
        return unanswered(error_class)
    answered = fields.flag("answered")
    if completion.text is not None or completion.stop_reason is not None or answered:
        return judge(completion)
    return unanswered(ErrorClass.DEADLINE)


def _completion(fields: Fields) -> Completion:
    stop_reason = fields.text("stop_reason")
    return Completion(
        text=fields.text("completion"),
        stop_reason=stop_reason,
        stop_kind=fields.choice("stop_kind", StopKind) or stop_kind_of(stop_reason),
        usage=Usage(
            input_tokens=fields.integer("input_tokens", highest=MAX_TOKENS),
            output_tokens=fields.integer("output_tokens", highest=MAX_TOKENS),
            reasoning_tokens=fields.integer("reasoning_tokens", highest=MAX_TOKENS),
            cache_read_tokens=fields.integer("cache_read_tokens", highest=MAX_TOKENS),
            cache_write_tokens=fields.integer("cache_write_tokens", highest=MAX_TOKENS),
        ),
        refusal=fields.text("refusal"),
        model=fields.text("returned_model"),
        upstream=fields.text("upstream"),
        request_id=fields.text("request_id"),
    )


def _call_error(fields: Fields) -> CallError:
    attempt, at = fields.integer("attempt", lowest=1), fields.moment("at")
    error_class = fields.choice("error_class", ErrorClass)
    if attempt is None:
        raise fields.missing("attempt")
    if error_class is None:
        raise fields.missing("error_class")
    if at is None:
        raise fields.missing("at")
    return CallError(
        attempt=attempt,
        error_class=error_class,
        status=fields.integer("status"),
        retry_after_s=fields.number("retry_after_s"),
        message=mask_key_shapes(fields.text("message") or ""),
        at=at,
    )
