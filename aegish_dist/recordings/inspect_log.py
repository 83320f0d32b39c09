"""Logs of Inspect AI (`.eval`): a zip archive with a header and one JSON file per sample."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import ErrorClass, StopKind
from aegish_dist.core.verdict_record import AttemptRecord, Duration, Number, Tokens, VerdictRecord
from aegish_dist.errors import DatasetError
from aegish_dist.recordings.checks import cost
from aegish_dist.recordings.inspect_archive import InspectArchive
from aegish_dist.recordings.inspect_exported_sample import exported_records
from aegish_dist.recordings.inspect_facts import MARK
from aegish_dist.recordings.inspect_fields import Fields
from aegish_dist.recordings.inspect_sample import joined_text, labelled_sample
from aegish_dist.recordings.record import stop_kind_of

TIME_LIMITS = ("time", "working")
MAX_MESSAGE_CHARS = 500


def read_inspect_log(path: Path) -> Iterator[tuple[VerdictRecord, bool]]:
    """Read one log, a sample at a time.

    Yields:
        The record of each sample, and whether a time of it was below zero.

    Raises:
        DatasetError: The file is no log, or a sample lacks what a record needs; names the file
            and the sample.
    """
    with InspectArchive(path) as archive:
        header = archive.header().part("eval")
        model, task = header.required_label("model"), header.required_label("task")
        started, is_ours = header.moment("created"), MARK in header.part("metadata").values
        found = False
        for fields in archive.samples():
            found = True
            if is_ours:
                yield from ((record, False) for record in exported_records(fields, model))
                continue
            record = _record(fields, model, task, started)
            yield record, _has_negative_time(fields, fields.part("output"))
    if not found:
        raise DatasetError("holds no samples", source=str(path))


def _record(fields: Fields, model: str, task: str, started: str | None) -> VerdictRecord:
    answered_at = fields.moment("completed_at")
    output = fields.part("output")
    return VerdictRecord(
        model=model,
        dataset=fields.part("metadata").label("dataset") or task,
        **labelled_sample(fields),
        epoch=fields.get("epoch", Number) or 1,
        **_answer(fields, output, model),
        cost_usd=output.part("usage").get("total_cost", Decimal, cost),
        **_timing(fields, output),
        attempts=len(fields.parts("error_retries")) + 1,
        created_at=answered_at,
        call_errors=_call_errors(fields, answered_at or started),
    )


def _answer(fields: Fields, output: Fields, model: str) -> dict[str, Any]:
    """Return the fields of the answer, even where a limit or an error came after it."""
    choices = output.parts("choices")
    if choices:
        return _completion(fields, output, choices[0]) | _usage(output.part("usage"), model)
    if fields.values.get("error") is not None:
        return {"completion": None, "error_class": ErrorClass.SERVER}
    if fields.part("limit").get("type") in TIME_LIMITS:
        return {"completion": None, "error_class": ErrorClass.DEADLINE}
    return {"completion": None, "answered": True}


def _completion(fields: Fields, output: Fields, choice: Fields) -> dict[str, Any]:
    attachments = fields.part("attachments").values
    stop_reason = choice.get("stop_reason")
    is_filtered = stop_kind_of(stop_reason) is StopKind.CONTENT_FILTER
    refusal = output.get("error") if is_filtered else None
    return {
        "completion": joined_text(choice.part("message"), "content", attachments),
        "answered": True,
        "stop_reason": stop_reason,
        "refusal": None if refusal is None else mask_key_shapes(refusal),
        "returned_model": output.get("model") or None,
    }


def _usage(usage: Fields, model: str) -> dict[str, int | None]:
    """Bring the tokens to one meaning: input with those of the cache, output with reasoning.

    Providers and versions of Inspect AI differ in both, and the total tells: Anthropic's input
    leaves out the cache, Gemini's output left out the reasoning until Inspect AI added it.
    """

    def count(field: str) -> int | None:
        found: int | None = usage.get(field, Tokens)
        return found

    given, generated = count("input_tokens"), count("output_tokens")
    read, written = count("input_tokens_cache_read"), count("input_tokens_cache_write")
    reasoning, total = count("reasoning_tokens"), count("total_tokens")
    cached = (read or 0) + (written or 0)
    if total is not None and given is not None:
        beside = total - given - (generated or 0)
        cached_beside, reasoning_beside = _split_remainder(beside, cached, reasoning or 0, model)
        given += cached_beside
        generated = (generated or 0) + reasoning_beside if reasoning_beside else generated
    return {
        "input_tokens": given,
        "output_tokens": generated,
        "reasoning_tokens": reasoning,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def _split_remainder(beside: int, cached: int, reasoning: int, model: str) -> tuple[int, int]:
    """Return how many tokens of cache and reasoning stand beside input and output."""
    if beside == cached + reasoning:
        return cached, reasoning
    if beside == reasoning and (beside != cached or "gemini" in model):
        return 0, reasoning
    return (cached, 0) if beside == cached else (0, 0)


def _timing(fields: Fields, output: Fields) -> dict[str, Any]:
    call_s, working_s = _seconds(output, "time"), _seconds(fields, "working_time")
    return {
        "latency_ms": _to_ms(working_s if call_s is None else call_s),
        "total_ms": _to_ms(_seconds(fields, "total_time")),
    }


def _seconds(fields: Fields, field: str) -> float | None:
    """Return a time; None where it is below zero, as some versions of Inspect AI wrote it."""
    return None if _is_negative(fields, field) else fields.get(field, Duration)


def _has_negative_time(fields: Fields, output: Fields) -> bool:
    return _is_negative(output, "time") or any(
        _is_negative(fields, field) for field in ("working_time", "total_time")
    )


def _is_negative(fields: Fields, field: str) -> bool:
    value = fields.values.get(field)
    return isinstance(value, int | float | Decimal) and value < 0


def _to_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _call_errors(fields: Fields, at: str | None) -> tuple[AttemptRecord, ...]:
    """Return the errors; the log times none of them, so all bear the time of the sample."""
    errors = [*fields.parts("error_retries")]
    if fields.values.get("error") is not None:
        errors.append(fields.part("error"))
    if not errors:
        return ()
    if at is None:
        raise fields.error("is missing or blank", "completed_at")
    return tuple(
        AttemptRecord(
            attempt=attempt, error_class=ErrorClass.SERVER, message=_safe_message(error), at=at
        )
        for attempt, error in enumerate(errors, 1)
    )


def _safe_message(error: Fields) -> str:
    """Return the message; providers quote keys and requests with keys in them."""
    return mask_key_shapes(error.get("message") or "")[:MAX_MESSAGE_CHARS]
