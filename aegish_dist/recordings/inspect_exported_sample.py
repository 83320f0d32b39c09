"""A sample of a log that this program exported, read back without a guess."""

from collections.abc import Iterator
from typing import Any

from aegish_dist.core.verdict_record import Tokens, VerdictRecord
from aegish_dist.inputs.checking import Location
from aegish_dist.recordings.inspect_facts import labels_in, records_in
from aegish_dist.recordings.inspect_fields import Fields
from aegish_dist.recordings.inspect_sample import joined_text, resolved


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
