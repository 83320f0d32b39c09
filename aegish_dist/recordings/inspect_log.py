"""Logs of Inspect AI (`.eval`): a zip archive with a header and one JSON file per sample."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from aegish_dist.core.completion import Completion, StopKind, Usage
from aegish_dist.core.parsing import judge
from aegish_dist.core.recording import Recording
from aegish_dist.core.verdict import CallError, ErrorClass, Timing, Verdict
from aegish_dist.errors import DatasetError
from aegish_dist.recordings.answers import stop_kind_of, unanswered
from aegish_dist.recordings.fields import MAX_TOKENS, Fields
from aegish_dist.recordings.inspect_archive import InspectArchive
from aegish_dist.recordings.inspect_sample import joined_text, labelled_sample

TIME_LIMITS = ("time", "working")
MAX_MESSAGE_CHARS = 500
# Error texts of providers quote keys and requests with keys in them.
KEY = re.compile(r"(?<![\w-])(?:sk-|gsk_|hf_|xai-|AIza|Bearer\s+|key=)[\w.~+/-]{6,}")


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
            _answer(fields, output),
            cost_usd=output.part("usage").cost("total_cost"),
            timing=_timing(fields, output),
            attempts=retries + 1,
            created_at=answered_at,
            call_errors=errors,
        ),
    )


def _answer(fields: Fields, output: Fields) -> Verdict:
    """Judge the answer, even where a limit or an error came after it."""
    choices = output.parts("choices")
    if choices:
        return judge(_completion(output, choices[0]))
    if fields.values.get("error") is not None:
        return unanswered(ErrorClass.SERVER)
    if fields.part("limit").text("type") in TIME_LIMITS:
        return unanswered(ErrorClass.DEADLINE)
    return judge(Completion(text=None))


def _completion(output: Fields, choice: Fields) -> Completion:
    stop_reason = choice.text("stop_reason")
    stop_kind = stop_kind_of(stop_reason)
    return Completion(
        text=joined_text(choice.part("message"), "content"),
        stop_reason=stop_reason,
        stop_kind=stop_kind,
        usage=_usage(output.part("usage")),
        refusal=output.text("error") if stop_kind is StopKind.CONTENT_FILTER else None,
        model=output.text("model") or None,
    )


def _usage(usage: Fields) -> Usage:
    """Bring the prompt tokens to one meaning: some providers count those of the cache apart."""

    def count(field: str) -> int | None:
        return usage.integer(field, highest=MAX_TOKENS)

    given, generated = count("input_tokens"), count("output_tokens")
    read, written = count("input_tokens_cache_read"), count("input_tokens_cache_write")
    cached = (read or 0) + (written or 0)
    if given is not None and count("total_tokens") == given + (generated or 0) + cached:
        given += cached
    return Usage(given, generated, count("reasoning_tokens"), read, written)


def _timing(fields: Fields, output: Fields) -> Timing:
    call_s, working_s = output.number("time"), fields.number("working_time")
    return Timing(
        service_ms=_to_ms(working_s if call_s is None else call_s),
        total_ms=_to_ms(fields.number("total_time")),
    )


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
    return KEY.sub("***", error.text("message") or "")[:MAX_MESSAGE_CHARS]
