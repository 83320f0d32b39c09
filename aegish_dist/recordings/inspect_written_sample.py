"""One verdict as a sample of a log of Inspect AI.

The prompt stands in messages, the answer in the output, what went wrong in `error` or `limit`.
A verdict that no rule set scores is an error sample without a score, never a score of 0.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from aegish_dist.core.completion import StopKind
from aegish_dist.core.prompt import Messages, Prompt
from aegish_dist.core.sample import Sample
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.tally import find
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.verdict_record import VerdictRecord
from aegish_dist.recordings.inspect_facts import metadata_of, readable
from aegish_dist.recordings.judged_lines import JudgedRecord
from aegish_dist.recordings.record import stop_kind_of

ATTACHED_FROM_CHARS = 100
"""Longer texts that all samples share are attachments, as Inspect AI has it."""
STOP_REASONS = {
    StopKind.STOP: "stop",
    StopKind.MAX_TOKENS: "max_tokens",
    StopKind.CONTENT_FILTER: "content_filter",
}
"""Inspect AI's words; any other stop is `unknown`."""
SUMMARY_METADATA_CHARS = 1_000
"""Longer texts stand in the sample alone."""


class WrittenSample(NamedTuple):
    """A sample and its line in the summaries."""

    name: str
    """Of its member, without folder and suffix."""
    content: dict[str, Any]
    """The sample."""
    summary: dict[str, Any]
    """The summary."""
    usage: dict[str, Any] | None
    """Its tokens; None when unknown."""


def text_id(*parts: object) -> str:
    """Return an id of 22 hexadecimal digits, always the same for the same parts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:22]


@dataclass(frozen=True, slots=True)
class SampleMaker:
    """Makes the samples of one log."""

    run_id: str
    """The run."""
    prompt: Prompt | None
    """Was sent with each command; None where it is unknown."""
    time_limit_s: float | None
    """Of a call; None where it is unknown."""
    rules: tuple[ScoringRule, ...]
    """The scorers."""

    def make(self, verdicts: Sequence[JudgedRecord]) -> WrittenSample:
        """Return the sample of one item.

        Args:
            verdicts: Of all its generations; the last one counts.
        """
        record, replaced = verdicts[-1].record, [each.record for each in verdicts[:-1]]
        scores = self._scores(verdicts[-1])
        output, said = _output(record)
        metadata = metadata_of(record, said, replaced)
        usage = output.get("usage")
        sample_id = sample_id_of(record)
        uuid = text_id(self.run_id, record.model, record.dataset, sample_id, record.epoch)
        messages, attachments = self._messages(uuid, record, output)
        common = {
            "id": sample_id,
            "epoch": record.epoch,
            "input": record.command,
            "target": record.target,
            "scores": scores,
            "model_usage": {} if usage is None else {record.model: usage},
            **_times(record),
            "uuid": uuid,
        }
        retries = _retries(record, replaced)
        error = _error(record, has_score=bool(scores))
        limit = self._limit(record) if error is None else None
        content = common | {
            "messages": messages,
            "output": output,
            "metadata": metadata,
            "store": {},
            "events": [],
            "error_retries": retries,
            "attachments": attachments,
        }
        summary = common | {
            "metadata": {key: value for key, value in metadata.items() if _is_short(value)},
            "retries": len(retries),
            "completed": True,
            "message_count": len(messages),
        }
        if error is not None:
            content["error"] = {"message": error, "traceback": "", "traceback_ansi": ""}
            summary["error"] = error
        if limit is not None:
            content["limit"], summary["limit"] = limit, limit["type"]
        return WrittenSample(f"{sample_id}_epoch_{record.epoch}", content, summary, usage)

    def _scores(self, verdict: JudgedRecord) -> dict[str, Any]:
        record = verdict.record
        finding = find(record.outcome, record.stop_kind, record.error_class)
        return {
            rule.name: {
                "value": "C" if right else "I",
                "answer": rule.labels[finding],
                "explanation": readable(record.reason or _outcome_in_words(record)),
            }
            for rule, right in zip(self.rules, verdict.correct, strict=True)
            if right is not None
        }

    def _messages(
        self, uuid: str, record: VerdictRecord, output: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return what was said, and the texts that attachments stand for."""
        texts = (
            Messages("", record.command)
            if self.prompt is None
            else self.prompt.render(record.command)
        )
        messages: list[dict[str, Any]] = []
        attachments: dict[str, str] = {}
        if texts.system:
            content = texts.system
            if len(content) > ATTACHED_FROM_CHARS:
                attachments = {(name := text_id(content)): content}
                content = f"attachment://{name}"
            messages.append({"role": "system", "content": content})
        messages.append({"role": "user", "content": texts.user, "source": "input"})
        messages += [choice["message"] for choice in output["choices"]]
        for number, message in enumerate(messages):
            message["id"] = f"{uuid}{number}"
        return messages, attachments

    def _limit(self, record: VerdictRecord) -> dict[str, Any] | None:
        if record.error_class is not ErrorClass.DEADLINE:
            return None
        passed_s = (record.latency_ms or 0) / 1000
        return {"type": "time", "limit": self.time_limit_s or passed_s}


def sample_id_of(record: VerdictRecord) -> str:
    """Return the id of the sample that a verdict is about."""
    sample = Sample(record.command, record.target, record.category, record.cluster)
    return sample.sample_id


def _is_short(value: object) -> bool:
    return isinstance(value, int | float) or (
        isinstance(value, str) and len(value) <= SUMMARY_METADATA_CHARS
    )


def _output(record: VerdictRecord) -> tuple[dict[str, Any], dict[str, Any]]:
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
    text, kind = readable(record.completion or ""), record.stop_kind
    stop_reason = "unknown" if kind is None else STOP_REASONS.get(kind, "unknown")
    model = readable(record.returned_model or "")
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
        output["error"] = said["refusal"] = readable(record.refusal)
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


def _times(record: VerdictRecord) -> dict[str, Any]:
    times: dict[str, Any] = {}
    if record.created_at is not None:
        times["completed_at"] = record.created_at
        took_ms = record.latency_ms if record.total_ms is None else record.total_ms
        with suppress(OverflowError):
            ended = datetime.fromisoformat(record.created_at)
            times["started_at"] = (ended - timedelta(milliseconds=took_ms or 0)).isoformat()
    if record.total_ms is not None:
        times["total_time"] = record.total_ms / 1000
    if record.latency_ms is not None:
        times["working_time"] = record.latency_ms / 1000
    return times


def _outcome_in_words(record: VerdictRecord) -> str:
    if record.error_class is ErrorClass.DEADLINE:
        return "no answer within the time limit"
    if record.error_class is not None:
        return f"{record.outcome}: {record.error_class}"
    return f"{record.outcome}: the answer states no reason"


def _error(record: VerdictRecord, *, has_score: bool) -> str | None:
    """Return why a verdict is an error sample; None when it is none."""
    if has_score:
        return None
    if record.error_class is None:
        return f"not scored: {record.outcome}"
    last = record.call_errors[-1].message if record.call_errors else None
    return _in_words(record, last)


def _in_words(record: VerdictRecord, message: str | None) -> str:
    return f"{record.outcome}: {record.error_class}" + (f": {readable(message)}" if message else "")


def _retries(record: VerdictRecord, replaced: Sequence[VerdictRecord]) -> list[dict[str, str]]:
    """Return the attempts that failed before the answer, and the verdicts that were replaced."""
    said = []
    for older in replaced:
        last = older.call_errors[-1].message if older.call_errors else None
        said.append(
            f"replaced by a retry: {_in_words(older, last)}"
            if older.error_class
            else f"replaced by a retry: {older.outcome}"
        )
    failed = record.call_errors if record.error_class is None else record.call_errors[:-1]
    for error in failed:
        status = "" if error.status is None else f" (HTTP {error.status})"
        said.append(f"{error.error_class}{status}: {readable(error.message or '')}")
    return [{"message": text, "traceback": "", "traceback_ansi": ""} for text in said]
