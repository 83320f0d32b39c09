"""One verdict as a sample of a log of Inspect AI.

The prompt stands in messages, the answer in the output, what went wrong in `error` or `limit`.
A verdict that no rule set scores is an error sample without a score, never a score of 0.
The event of the call repeats the messages: data frames are made of events, the viewer shows both.
Long texts of the event are attachments, as Inspect AI itself writes them.

Facts that Inspect AI has no field for, or says less exactly, stand in a sample's metadata, so a new
field of `VerdictRecord` travels without a change here. Retries that a later one has replaced stand
there whole.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import fields

from aegish_dist.core.outcome import ErrorClass, StopKind, find
from aegish_dist.core.run import Messages, Prompt
from aegish_dist.core.sample import Sample
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.verdict_record import VerdictRecord
from aegish_dist.errors import InputError
from aegish_dist.interchange.record import FACTS, JudgedRecord, from_values, stop_kind_of

PREFIX = "aegish_dist_"
"""Begins every key of ours, in the metadata of samples and of logs."""
MARK = f"{PREFIX}export"
"""In the metadata of a log: the version of this layout."""
LAYOUT = 1
LABELS = ("dataset", "binary", "cluster", "category")
"""Metadata of a sample with a place of its own in a recording."""
OTHER_LABELS = f"{PREFIX}metadata"
"""The labels of the command whose own keys are taken."""
REPLACED = f"{PREFIX}replaced"
"""The verdicts that a retry has replaced, oldest first."""
OF_THE_SAMPLE = (
    *("model", "dataset", "command", "target", "category", "cluster", "epoch", "metadata"),
)
"""Facts that all retries of an item share."""

_NAMES = tuple(each.name for each in fields(VerdictRecord) if each.name in FACTS)
_OWN = tuple(name for name in _NAMES if name not in (*OF_THE_SAMPLE, "answered"))
_DEFAULTS = {
    each.name: None if each.default is msgspec.NODEFAULT else each.default
    for each in fields(VerdictRecord)
}


def unsaid(record: VerdictRecord, said: Mapping[str, object]) -> dict[str, Any]:
    """Return the facts of a verdict that its sample does not say.

    Args:
        said: The facts that a reader takes from fields of the sample.
    """
    found: dict[str, Any] = {}
    for name in _OWN:
        value = getattr(record, name)
        if value != (said[name] if name in said else _DEFAULTS[name]):
            found[name] = str(value) if isinstance(value, Decimal) else value
    if "call_errors" in found:
        found["call_errors"] = list(map(msgspec.to_builtins, found["call_errors"]))
    return found


def metadata_of(
    record: VerdictRecord, said: Mapping[str, object], replaced: Iterable[VerdictRecord]
) -> dict[str, Any]:
    labels = {name: getattr(record, name) for name in ("dataset", "category", "cluster")}
    found = {name: label for name, label in labels.items() if label is not None}
    taken: dict[str, str] = {}
    for key, text in record.metadata.items():
        (taken if key in LABELS or key.startswith(PREFIX) else found)[key] = text
    if taken:
        found[OTHER_LABELS] = taken
    found[f"{PREFIX}outcome"] = record.outcome
    if record.confidence is not None:
        found[f"{PREFIX}confidence"] = record.confidence
    found |= {PREFIX + name: value for name, value in unsaid(record, said).items()}
    if older := [_whole(each) for each in replaced]:
        found[REPLACED] = older
    return found


def _whole(record: VerdictRecord) -> dict[str, Any]:
    """Return the facts of a verdict that no sample speaks of."""
    found = unsaid(record, {})
    if record.completion is None and record.error_class is None:
        found["answered"] = True  # without text; otherwise it would be one without an answer
    return found


def labels_in(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the free labels of the command in the metadata of a sample."""
    plain = {
        key: value
        for key, value in metadata.items()
        if key not in LABELS and not key.startswith(PREFIX)
    }
    taken = metadata.get(OTHER_LABELS)
    return plain | taken if isinstance(taken, dict) else plain


def records_in(said: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterable[VerdictRecord]:
    """Yield the verdicts of a sample, oldest first."""
    shared = {name: said[name] for name in OF_THE_SAMPLE if name in said}
    replaced = metadata.get(REPLACED) or []
    if not isinstance(replaced, list) or not all(isinstance(each, dict) for each in replaced):
        raise InputError("must be a list of objects", field=REPLACED)
    for each in replaced:
        yield from_values({"completion": None} | each | shared)
    own = {
        key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)
    }
    yield from_values({"completion": None} | dict(said) | _facts(own))


def _facts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in _OWN}


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


ATTACHED_FROM_CHARS = 100
"""Longer texts are attachments, as Inspect AI has it."""


def text_id(*parts: object) -> str:
    """Return an id of 22 hexadecimal digits, always the same for the same parts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:22]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Makes the messages of the samples of one log."""

    prompt: Prompt | None
    """Was sent with each command; None where it is unknown."""
    model: str
    config: Mapping[str, Any]
    created_at: str
    """When the run was submitted: the time of calls that have none."""

    def messages(
        self, uuid: str, record: VerdictRecord, output: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return system text, command and answer, each where there is one."""
        texts = Messages("", record.command)
        if self.prompt is not None:
            texts = self.prompt.render(record.command)
        messages: list[dict[str, Any]] = []
        if texts.system:
            messages.append({"role": "system", "content": texts.system})
        messages.append({"role": "user", "content": texts.user, "source": "input"})
        messages += [choice["message"] for choice in output["choices"]]
        for number, message in enumerate(messages):
            message["id"] = f"{uuid}{number}"
        return messages

    def transcript(
        self,
        sample: Mapping[str, Any],
        messages: Sequence[dict[str, Any]],
        output: Mapping[str, Any],
        error: str | None,
    ) -> dict[str, Any]:
        """Return events and attachments of a sample."""
        attachments: dict[str, str] = {}
        said = [_attached(message, attachments) for message in messages]
        answered = len(output["choices"])
        choices = [
            choice | {"message": message}
            for choice, message in zip(output["choices"], said[len(said) - answered :], strict=True)
        ]
        event: dict[str, Any] = {
            "event": "model",
            "uuid": f"{sample['uuid']}e",
            "timestamp": sample.get("started_at", self.created_at),
            "working_start": 0,
            "model": self.model,
            "input": said[: len(said) - answered],
            "tools": [],
            "tool_choice": "none",
            "config": self.config,
            "output": {name: value for name, value in output.items() if name != "completion"}
            | {"choices": choices},
        }
        optional = {
            "error": error,
            "completed": sample.get("completed_at"),
            "working_time": sample.get("working_time"),
        }
        event |= {name: value for name, value in optional.items() if value is not None}
        return {"events": [event], "attachments": attachments}


def _attached(message: dict[str, Any], attachments: dict[str, str]) -> dict[str, Any]:
    text = message["content"]
    if len(text) <= ATTACHED_FROM_CHARS:
        return message
    name = text_id(text)
    attachments[name] = text
    return message | {"content": f"attachment://{name}"}


def outcome_in_words(record: VerdictRecord) -> str:
    """Return how an item ended for which the model stated no reason."""
    if record.error_class is ErrorClass.DEADLINE:
        return "no answer within the time limit"
    if record.error_class is not None:
        return f"{record.outcome}: {record.error_class}"
    return f"{record.outcome}: the answer states no reason"


def error_of(record: VerdictRecord, *, has_score: bool) -> str | None:
    """Return why a verdict is an error sample; None when it is none."""
    if has_score:
        return None
    if record.error_class is None:
        return f"not scored: {record.outcome}"
    last = record.call_errors[-1].message if record.call_errors else None
    return _in_words(record, last)


def _in_words(record: VerdictRecord, message: str | None) -> str:
    return f"{record.outcome}: {record.error_class}" + (f": {message}" if message else "")


def retries_of(record: VerdictRecord, replaced: Sequence[VerdictRecord]) -> list[dict[str, str]]:
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
        said.append(f"{error.error_class}{status}: {error.message or ''}")
    return [{"message": text, "traceback": "", "traceback_ansi": ""} for text in said]


SUMMARY_METADATA_CHARS = 1_000


class WrittenSample(NamedTuple):
    """A sample and its line in the summaries."""

    name: str
    content: dict[str, Any]
    summary: dict[str, Any]
    usage: dict[str, Any] | None
    """Its tokens; None when unknown."""


@dataclass(frozen=True, slots=True)
class SampleMaker:
    """Makes the samples of one log."""

    run_id: str
    talk: Conversation
    time_limit_s: float | None
    """Of a call; None where it is unknown."""
    rules: tuple[ScoringRule, ...]

    def make(self, verdicts: Sequence[JudgedRecord]) -> WrittenSample:
        """Return the sample of one item."""
        record, replaced = verdicts[-1].record, [each.record for each in verdicts[:-1]]
        scores = self._scores(verdicts[-1])
        output, said = output_of(record)
        metadata = metadata_of(record, said, replaced)
        usage = output.get("usage")
        sample_id = sample_id_of(record)
        uuid = text_id(self.run_id, record.model, record.dataset, sample_id, record.epoch)
        messages = self.talk.messages(uuid, record, output)
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
        retries = retries_of(record, replaced)
        error = error_of(record, has_score=bool(scores))
        limit = self._limit(record) if error is None else None
        content = common | {
            "messages": messages,
            "output": output,
            "metadata": metadata,
            "store": {},
            **self.talk.transcript(common, messages, output, error),
            "error_retries": retries,
        }
        summary = common | {
            "metadata": {
                key: value
                for key, value in metadata.items()
                if not isinstance(value, list | dict)
                and (not isinstance(value, str) or len(value) <= SUMMARY_METADATA_CHARS)
            },
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
                "explanation": record.reason or outcome_in_words(record),
            }
            for rule, right in zip(self.rules, verdict.correct, strict=True)
            if right is not None
        }

    def _limit(self, record: VerdictRecord) -> dict[str, Any] | None:
        if record.error_class is not ErrorClass.DEADLINE:
            return None
        passed_s = (record.latency_ms or 0) / 1000
        return {"type": "time", "limit": self.time_limit_s or passed_s}


def sample_id_of(record: VerdictRecord) -> str:
    """Return the id of the sample that a verdict is about."""
    sample = Sample(record.command, record.target, record.category, record.cluster)
    return sample.sample_id


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
