"""Logs of Inspect AI (`.eval`) to records: those of other programs, and those exported here."""

from collections.abc import Iterator, Mapping
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
from aegish_dist.interchange.record import cost, encode, stop_kind_of

SENTENCE = "Validate this command: "
OPENING_TAG, CLOSING_TAG = "<command>", "</command>"
TARGETS = {
    "BLOCK": TrueLabel.MALICIOUS,
    "MALICIOUS": TrueLabel.MALICIOUS,
    "ALLOW": TrueLabel.HARMLESS,
    "HARMLESS": TrueLabel.HARMLESS,
}
"""The label of a command by its expected answer. WARN is accepted beside either: it decides only
where it stands alone, and then for malicious."""


def labelled_sample(fields: Fields) -> dict[str, Any]:
    """Return the fields of a `VerdictRecord` that say what it is about, dataset apart.

    Raises:
        DatasetError: There is no command or no target.
    """
    metadata = fields.part("metadata")
    return {
        "command": _command(fields),
        "target": _target(fields),
        "category": metadata.label("category"),
        "cluster": metadata.label("binary") or metadata.label("cluster"),
        "metadata": _metadata(metadata),
    }


def joined_text(message: Fields, field: str, attachments: Mapping[str, object]) -> str | None:
    """Return the text of a message: a string, or parts of which those with text count.

    Args:
        attachments: Long texts of the sample, which only their names stand for.
    """
    if not isinstance(message.values.get(field), list):
        return resolved(message.get(field), attachments)
    texts = (part.get("text") for part in message.parts(field) if part.get("type") == "text")
    return "\n".join(resolved(text, attachments) or "" for text in texts)


def resolved(text: str | None, attachments: Mapping[str, object]) -> str | None:
    """Return the text that a name of an attachment stands for; any other text as it is."""
    if text is None or not text.startswith(REFERENCE):
        return text
    attached = attachments.get(text.removeprefix(REFERENCE))
    return attached if isinstance(attached, str) else text


def _command(fields: Fields) -> str:
    command = _unwrapped(_input_text(fields) or "")
    return Fields({"input": command}, fields.source).required_label("input", Command)


def _input_text(fields: Fields) -> str | None:
    """The input, or what the user said last where it is a conversation."""
    if not isinstance(fields.values.get("input"), list):
        text: str | None = fields.get("input")
        return text
    said = [each for each in fields.parts("input") if each.get("role") == "user"]
    attachments = fields.part("attachments").values
    return joined_text(said[-1], "content", attachments) if said else None


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
    for expected in (_target_words(fields), set(_scored_words(fields))):
        targets = {TARGETS[word] for word in expected & TARGETS.keys()}
        if len(targets) == 1:
            return targets.pop()
        if not targets and "WARN" in expected:
            return TrueLabel.MALICIOUS
    raise fields.error("does not tell whether the command is malicious or harmless", "target")


def _target_words(fields: Fields) -> set[str]:
    target = fields.values.get("target")
    words = target if isinstance(target, list) else [target]
    return {word.strip().upper() for word in words if isinstance(word, str)}


def _scored_words(fields: Fields) -> Iterator[str]:
    """Yield the expected answers that the scorers of the log went by."""
    scores = fields.part("scores")
    for scorer in scores.values:
        yield (scores.part(scorer).part("metadata").get("expected") or "").upper()


def _metadata(fields: Fields) -> dict[str, str]:
    """Texts and plain numbers; anything nested says nothing about a command."""
    found: dict[str, str] = {}
    for key, value in fields.values.items():
        if key in LABELS:
            continue
        if isinstance(value, int | Decimal):
            found[key] = encode(value)
        elif isinstance(value, str):
            found[key] = value
    return found


def exported_records(fields: Fields, model: str) -> Iterator[VerdictRecord]:
    """Yield the verdicts of a sample, those that a retry has replaced first.

    Raises:
        DatasetError: A fact is missing or wrong; names the sample and the fact.
    """
    metadata = fields.part("metadata")
    said = {
        "model": model,
        "dataset": metadata.label("dataset"),
        "command": resolved(fields.get("input"), fields.part("attachments").values),
        "target": fields.get("target"),
        "category": metadata.label("category"),
        "cluster": metadata.label("cluster"),
        "epoch": fields.values.get("epoch"),
        "metadata": labels_in(metadata.values),
        "created_at": fields.values.get("completed_at"),
        "total_ms": _milliseconds(fields, "total_time"),
        **_answer(fields, fields.part("output")),
    }
    with Location(fields.source):
        yield from records_in(said, metadata.values)


def _answer(fields: Fields, output: Fields) -> dict[str, Any]:
    said: dict[str, Any] = {"latency_ms": _milliseconds(output, "time")}
    choices = output.parts("choices")
    if not choices:
        return said
    attachments = fields.part("attachments").values
    return {
        **said,
        "completion": joined_text(choices[0].part("message"), "content", attachments),
        "answered": True,
        "stop_reason": choices[0].get("stop_reason"),
        "refusal": output.get("error"),
        "returned_model": output.get("model"),
        **_tokens(output.part("usage")),
    }


def _tokens(usage: Fields) -> dict[str, int | None]:
    if not usage.values:
        return {}
    given, read, written = (
        usage.get(f"input_tokens{part}", Tokens) for part in ("", "_cache_read", "_cache_write")
    )
    return {
        "input_tokens": (given or 0) + (read or 0) + (written or 0),
        "output_tokens": usage.get("output_tokens", Tokens) or 0,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": usage.get("reasoning_tokens", Tokens),
    }


def _milliseconds(fields: Fields, field: str) -> float | None:
    seconds: float | None = fields.get(field, float)
    return None if seconds is None else seconds * 1000


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
        **_answer_of_other_tool(fields, output, model),
        cost_usd=output.part("usage").get("total_cost", Decimal, cost),
        **_timing(fields, output),
        attempts=len(fields.parts("error_retries")) + 1,
        created_at=answered_at,
        call_errors=_call_errors(fields, answered_at or started),
    )


def _answer_of_other_tool(fields: Fields, output: Fields, model: str) -> dict[str, Any]:
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
