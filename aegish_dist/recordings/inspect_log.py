"""Logs of Inspect AI (`.eval`): a zip archive with a header and one JSON file per sample."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from aegish_dist.core.completion import Completion, StopKind, Usage
from aegish_dist.core.parsing import judge
from aegish_dist.core.recording import Recording
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import CallError, ErrorClass, Timing, Verdict
from aegish_dist.errors import DatasetError
from aegish_dist.recordings.answers import stop_kind_of, unanswered
from aegish_dist.recordings.fields import MAX_TOKENS, Fields
from aegish_dist.recordings.inspect_archive import InspectArchive
from aegish_dist.recordings.inspect_sample import joined_text, labelled_sample

TIME_LIMITS = ("time", "working")
MAX_MESSAGE_CHARS = 500


def read_inspect_log(path: Path) -> Iterator[Recording]:
    """Read one log, a sample at a time.

    Raises:
        DatasetError: The file is no log, or a sample lacks what a recording needs; names the file
            and the sample.
    """
    with InspectArchive(path) as archive:
        header = archive.header().part("eval")
        model, task = header.required_label("model"), header.required_label("task")
        started = header.moment("created")
        found = False
        for fields in archive.samples():
            found = True
            yield _recording(fields, model, task, started)
    if not found:
        raise DatasetError("holds no samples", source=str(path))


def _recording(fields: Fields, model: str, task: str, started: datetime | None) -> Recording:
    answered_at = fields.moment("completed_at")
    output = fields.part("output")
    errors = _call_errors(fields, answered_at or started)
    retries = len(fields.parts("error_retries"))
    return Recording(
        model=model,
        dataset=fields.part("metadata").label("dataset") or task,
        sample=labelled_sample(fields),
        epoch=fields.integer("epoch", lowest=1) or 1,
        verdict=replace(
            _answer(fields, output, model),
            cost_usd=output.part("usage").cost("total_cost"),
            timing=_timing(fields, output),
            attempts=retries + 1,
            created_at=answered_at,
            call_errors=errors,
        ),
        negative_time=_has_negative_time(fields, output),
    )


def _answer(fields: Fields, output: Fields, model: str) -> Verdict:
    """Judge the answer, even where a limit or an error came after it."""
    choices = output.parts("choices")
    if choices:
        attachments = fields.part("attachments").values
        return judge(_completion(output, choices[0], attachments, model))
    if fields.values.get("error") is not None:
        return unanswered(ErrorClass.SERVER)
    if fields.part("limit").text("type") in TIME_LIMITS:
        return unanswered(ErrorClass.DEADLINE)
    return judge(Completion(text=None))


def _completion(
    output: Fields, choice: Fields, attachments: Mapping[str, object], model: str
) -> Completion:
    stop_reason = choice.text("stop_reason")
    stop_kind = stop_kind_of(stop_reason)
    return Completion(
        text=joined_text(choice.part("message"), "content", attachments),
        stop_reason=stop_reason,
        stop_kind=stop_kind,
        usage=_usage(output.part("usage"), model),
        refusal=_refusal(output) if stop_kind is StopKind.CONTENT_FILTER else None,
        model=output.text("model") or None,
    )


def _refusal(output: Fields) -> str | None:
    text = output.text("error")
    return None if text is None else mask_key_shapes(text)


def _usage(usage: Fields, model: str) -> Usage:
    """Bring the tokens to one meaning: input with those of the cache, output with reasoning.

    Providers and versions of Inspect AI differ in both, and the total tells: Anthropic's input
    leaves out the cache, Gemini's output left out the reasoning until Inspect AI added it.
    """

    def count(field: str) -> int | None:
        return usage.integer(field, highest=MAX_TOKENS)

    given, generated = count("input_tokens"), count("output_tokens")
    read, written = count("input_tokens_cache_read"), count("input_tokens_cache_write")
    reasoning, total = count("reasoning_tokens"), count("total_tokens")
    cached = (read or 0) + (written or 0)
    if total is not None and given is not None:
        beside = total - given - (generated or 0)
        cached_beside, reasoning_beside = _told_apart(beside, cached, reasoning or 0, model)
        given += cached_beside
        generated = (generated or 0) + reasoning_beside if reasoning_beside else generated
    return Usage(given, generated, reasoning, read, written)


def _told_apart(beside: int, cached: int, reasoning: int, model: str) -> tuple[int, int]:
    """Return how many tokens of cache and reasoning stand beside input and output.

    Args:
        beside: Tokens of the total in neither input nor output.
        cached: Tokens read from and written to a cache.
        reasoning: Tokens of hidden reasoning.
        model: Canonical id; decides where the numbers leave it open.
    """
    if beside == cached + reasoning:
        return cached, reasoning
    if beside == reasoning and (beside != cached or "gemini" in model):
        return 0, reasoning
    return (cached, 0) if beside == cached else (0, 0)


def _timing(fields: Fields, output: Fields) -> Timing:
    call_s, working_s = _seconds(output, "time"), _seconds(fields, "working_time")
    return Timing(
        service_ms=_to_ms(working_s if call_s is None else call_s),
        total_ms=_to_ms(_seconds(fields, "total_time")),
    )


def _seconds(fields: Fields, field: str) -> float | None:
    """A time; unknown where it is below zero, as some versions of Inspect AI wrote it."""
    return None if _is_negative(fields, field) else fields.number(field)


def _has_negative_time(fields: Fields, output: Fields) -> bool:
    return _is_negative(output, "time") or any(
        _is_negative(fields, field) for field in ("working_time", "total_time")
    )


def _is_negative(fields: Fields, field: str) -> bool:
    value = fields.values.get(field)
    return isinstance(value, int | float | Decimal) and value < 0


def _to_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _call_errors(fields: Fields, at: datetime | None) -> tuple[CallError, ...]:
    """What failed; the log times none of it, so all bears the time of the sample."""
    errors = [*fields.parts("error_retries")]
    if fields.values.get("error") is not None:
        errors.append(fields.part("error"))
    if not errors:
        return ()
    if at is None:
        raise fields.missing("completed_at")
    return tuple(
        CallError(attempt, ErrorClass.SERVER, None, None, _safe_message(error), at)
        for attempt, error in enumerate(errors, 1)
    )


def _safe_message(error: Fields) -> str:
    """Return what went wrong; providers quote keys and requests with keys in them."""
    return mask_key_shapes(error.text("message") or "")[:MAX_MESSAGE_CHARS]
