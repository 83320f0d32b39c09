"""Logs of Inspect AI (`.eval`) to records: those of other programs, and those exported here."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict_record import (
    AttemptRecord,
    Command,
    Duration,
    Number,
    Tokens,
    VerdictRecord,
)
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.checking import Location
from aegish_dist.interchange.inspect_archive import REFERENCE, Fields, InspectArchive
from aegish_dist.interchange.inspect_sample import LABELS, MARK, labels_in, records_in
from aegish_dist.interchange.record import RecordChecker, Row, cost, encode, stop_kind_of

SENTENCE = "Validate this command: "
OPENING_TAG, CLOSING_TAG = "<command>", "</command>"
TARGETS = {
    "BLOCK": TrueLabel.MALICIOUS,
    "MALICIOUS": TrueLabel.MALICIOUS,
    "ALLOW": TrueLabel.HARMLESS,
    "HARMLESS": TrueLabel.HARMLESS,
}
"""By expected answer; WARN stands beside either, and alone for malicious."""
TIME_LIMITS = ("time", "working")
MAX_MESSAGE_CHARS = 500


def read_inspect_log(path: Path, checker: RecordChecker) -> Iterator[Row]:
    """Yield the verdicts of one log, a sample at a time."""
    found = False
    with InspectArchive(path) as archive:
        header = archive.header().part("eval")
        model, task = header.required_label("model"), header.required_label("task")
        started, is_ours = header.moment("created"), MARK in header.part("metadata").values
        for fields in archive.samples():
            found, negative = True, False
            if is_ours:
                records = _exported(fields, model)
            else:
                records = [_record(fields, model, task, started)]
                negative = any(_is_negative(*place) for place in _times(fields))
            with Location(fields.source):
                for record in records:
                    yield checker.row(record, path.stem, negative_time=negative)
    if not found:
        raise DatasetError("holds no samples", source=str(path))


def _exported(fields: Fields, model: str) -> Iterable[VerdictRecord]:
    """Return the verdicts of a sample that was exported here, the replaced ones first."""
    metadata, output = fields.part("metadata"), fields.part("output")
    attachments = fields.part("attachments").values
    said = {
        "model": model,
        "dataset": metadata.label("dataset"),
        "command": _resolved(fields.get("input"), attachments),
        "target": fields.get("target"),
        "category": metadata.label("category"),
        "cluster": metadata.label("cluster"),
        "epoch": fields.values.get("epoch"),
        "metadata": labels_in(metadata.values),
        "created_at": fields.values.get("completed_at"),
        "total_ms": _milliseconds(fields, "total_time", float),
        "latency_ms": _milliseconds(output, "time", float),
    }
    for choice in output.parts("choices")[:1]:
        said |= {
            "completion": _joined_text(choice.part("message"), "content", attachments),
            "answered": True,
            "stop_reason": choice.get("stop_reason"),
            "refusal": output.get("error"),
            "returned_model": output.get("model"),
            **_tokens(output.part("usage"), None),
        }
    return records_in(said, metadata.values)


def _record(fields: Fields, model: str, task: str, started: str | None) -> VerdictRecord:
    answered_at = fields.moment("completed_at")
    output, metadata = fields.part("output"), fields.part("metadata")
    command = _unwrapped(_input_text(fields) or "")
    return VerdictRecord(
        model=model,
        dataset=metadata.label("dataset") or task,
        command=Fields({"input": command}, fields.source).required_label("input", Command),
        target=_target(fields),
        category=metadata.label("category"),
        cluster=metadata.label("binary") or metadata.label("cluster"),
        metadata=_texts(metadata),
        epoch=fields.get("epoch", Number) or 1,
        **_answer(fields, output, model),
        cost_usd=output.part("usage").get("total_cost", Decimal, cost),
        **_timing(fields),
        attempts=len(fields.parts("error_retries")) + 1,
        created_at=answered_at,
        call_errors=_call_errors(fields, answered_at or started),
    )


def _input_text(fields: Fields) -> str | None:
    """The input, or what the user said last where it is a conversation."""
    if not isinstance(fields.values.get("input"), list):
        text: str | None = fields.get("input")
        return text
    said = [each for each in fields.parts("input") if each.get("role") == "user"]
    attachments = fields.part("attachments").values
    return _joined_text(said[-1], "content", attachments) if said else None


def _joined_text(message: Fields, field: str, attachments: Mapping[str, object]) -> str | None:
    """Return the text of a message: a string, or parts of which those with text count."""
    if not isinstance(message.values.get(field), list):
        return _resolved(message.get(field), attachments)
    texts = (part.get("text") for part in message.parts(field) if part.get("type") == "text")
    return "\n".join(_resolved(text, attachments) or "" for text in texts)


def _resolved(text: str | None, attachments: Mapping[str, object]) -> str | None:
    """Return the text that a name of an attachment stands for; any other text as it is."""
    if text is None or not text.startswith(REFERENCE):
        return text
    attached = attachments.get(text.removeprefix(REFERENCE))
    return attached if isinstance(attached, str) else text


def _unwrapped(text: str) -> str:
    """Take the command out of the words or tags that a prompt puts around it."""
    if text.startswith(SENTENCE):
        return text.removeprefix(SENTENCE)
    _, opening, rest = text.partition(OPENING_TAG)
    command, closing, after = rest.rpartition(CLOSING_TAG)
    if opening and closing and not after.strip():
        return command.removeprefix("\n").removesuffix("\n")
    return text


def _target(fields: Fields) -> TrueLabel:
    """Return the label by the target, or else by the answers that the scorers went by."""
    target, scores = fields.values.get("target"), fields.part("scores")
    words = target if isinstance(target, list) else [target]
    stated = {word.strip().upper() for word in words if isinstance(word, str)}
    scored = {
        (scores.part(scorer).part("metadata").get("expected") or "").upper()
        for scorer in scores.values
    }
    for expected in (stated, scored):
        targets = {TARGETS[word] for word in expected & TARGETS.keys()}
        if len(targets) == 1:
            return targets.pop()
        if not targets and "WARN" in expected:
            return TrueLabel.MALICIOUS
    raise fields.error("does not tell whether the command is malicious or harmless", "target")


def _texts(metadata: Fields) -> dict[str, str]:
    """Texts and plain numbers; anything nested says nothing about a command."""
    return {
        key: value if isinstance(value, str) else encode(value)
        for key, value in metadata.values.items()
        if key not in LABELS and isinstance(value, str | int | Decimal)
    }


def _answer(fields: Fields, output: Fields, model: str) -> dict[str, Any]:
    """Return the fields of the answer, even where a limit or an error came after it."""
    for choice in output.parts("choices")[:1]:
        stop_reason = choice.get("stop_reason")
        is_filtered = stop_kind_of(stop_reason) is StopKind.CONTENT_FILTER
        refusal = output.get("error") if is_filtered else None
        attachments = fields.part("attachments").values
        return {
            "completion": _joined_text(choice.part("message"), "content", attachments),
            "answered": True,
            "stop_reason": stop_reason,
            "refusal": None if refusal is None else mask_key_shapes(refusal),
            "returned_model": output.get("model") or None,
            **_tokens(output.part("usage"), model),
        }
    if fields.values.get("error") is not None:
        return {"completion": None, "error_class": ErrorClass.SERVER}
    if fields.part("limit").get("type") in TIME_LIMITS:
        return {"completion": None, "error_class": ErrorClass.DEADLINE}
    return {"completion": None, "answered": True}


def _tokens(usage: Fields, model: str | None) -> dict[str, int | None]:
    """Bring the tokens to one meaning: input with those of the cache, output with reasoning.

    Providers and versions of Inspect AI differ in both, and the total tells: Anthropic's input
    leaves out the cache, Gemini's output left out the reasoning until Inspect AI added it. `model`
    is None in a log that was exported here.
    """
    if model is None and not usage.values:
        return {}
    names = ("input_tokens", "output_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    given, generated, read, written = (usage.get(name, Tokens) for name in names)
    reasoning = usage.get("reasoning_tokens", Tokens)
    cached = (read or 0) + (written or 0)
    if model is None:
        given, generated = (given or 0) + cached, generated or 0
    else:
        total = usage.get("total_tokens", Tokens)
        if total is not None and given is not None:
            rest = total - given - (generated or 0)
            cached_beside, reasoning_beside = _split_rest(rest, cached, reasoning or 0, model)
            given += cached_beside
            generated = (generated or 0) + reasoning_beside if reasoning_beside else generated
    return {
        "input_tokens": given,
        "output_tokens": generated,
        "reasoning_tokens": reasoning,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def _split_rest(rest: int, cached: int, reasoning: int, model: str) -> tuple[int, int]:
    """Return how many tokens of cache and reasoning stand beside input and output."""
    if rest == cached + reasoning:
        return cached, reasoning
    if rest == reasoning and (rest != cached or "gemini" in model):
        return 0, reasoning
    return (cached, 0) if rest == cached else (0, 0)


def _times(fields: Fields) -> tuple[tuple[Fields, str], ...]:
    """Return where a sample says how long the call, the work on it and all of it took."""
    return (fields.part("output"), "time"), (fields, "working_time"), (fields, "total_time")


def _is_negative(fields: Fields, field: str) -> bool:
    value = fields.values.get(field)
    return isinstance(value, int | float | Decimal) and value < 0


def _timing(fields: Fields) -> dict[str, Any]:
    """Return times; unknown where below zero, as some versions of Inspect AI wrote them."""
    call_ms, working_ms, total_ms = (
        None if _is_negative(*place) else _milliseconds(*place, Duration)
        for place in _times(fields)
    )
    return {"latency_ms": working_ms if call_ms is None else call_ms, "total_ms": total_ms}


def _milliseconds(fields: Fields, field: str, kind: Any) -> float | None:
    seconds: float | None = fields.get(field, kind)
    return None if seconds is None else seconds * 1000


def _call_errors(fields: Fields, at: str | None) -> tuple[AttemptRecord, ...]:
    """Return the errors; the log times none of them, so all bear the time of the sample."""
    errors = [*fields.parts("error_retries")]
    if fields.values.get("error") is not None:
        errors.append(fields.part("error"))
    if errors and at is None:
        raise fields.error("is missing or blank", "completed_at")
    return tuple(
        AttemptRecord(
            attempt=attempt,
            error_class=ErrorClass.SERVER,
            # Providers quote keys and requests with keys in them.
            message=mask_key_shapes(error.get("message") or "")[:MAX_MESSAGE_CHARS],
            at=at or "",
        )
        for attempt, error in enumerate(errors, 1)
    )
