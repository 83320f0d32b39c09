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
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import fields

from aegish_dist.core.outcome import ErrorClass, StopKind, find
from aegish_dist.core.run import Messages, Run
from aegish_dist.core.sample import Sample
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.verdict_record import VerdictRecord
from aegish_dist.errors import InputError
from aegish_dist.interchange.record import FACTS, ScoredRecord, from_values, known, stop_kind_of

PREFIX = "aegish_dist_"  # begins every key of ours, in the metadata of samples and of logs
MARK = f"{PREFIX}export"  # in the metadata of a log: the version of this layout
LAYOUT = 1
LABELS = ("dataset", "binary", "cluster", "category")  # with a place of its own in a recording
_OTHER_LABELS = f"{PREFIX}metadata"  # labels of the command whose own keys are taken
_REPLACED = f"{PREFIX}replaced"  # by a retry, oldest first
_OF_THE_SAMPLE = (
    *("model", "dataset", "command", "target", "category", "cluster", "epoch", "metadata"),
)
"""Shared by all retries of an item."""
_DEFAULTS = {
    each.name: None if each.default is msgspec.NODEFAULT else each.default
    for each in fields(VerdictRecord)
    if each.name in FACTS and each.name not in (*_OF_THE_SAMPLE, "answered")
}
"""Of the facts of a verdict itself."""
_STOP_REASONS = {
    StopKind.STOP: "stop",
    StopKind.MAX_TOKENS: "max_tokens",
    StopKind.CONTENT_FILTER: "content_filter",
}
"""Inspect AI's words; any other is `unknown`."""
_ATTACHED_FROM_CHARS = 100  # longer texts are attachments, as in Inspect AI
_SUMMARY_METADATA_CHARS = 1_000


def text_id(*parts: object) -> str:
    """Return an id of 22 hexadecimal digits, always the same for the same parts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:22]


class SampleMaker(msgspec.Struct, frozen=True):
    run: Run
    model: str
    config: Mapping[str, Any]  # parameters of the calls, in Inspect AI's words
    rules: Sequence[ScoringRule]

    def make(self, verdicts: Sequence[ScoredRecord]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the sample of one item, and its line in the summaries."""
        record, replaced = verdicts[-1].record, [each.record for each in verdicts[:-1]]
        output, said = _output(record)
        sample = Sample(record.command, record.target, record.category, record.cluster)
        parts = (self.run.run_id, record.model, record.dataset, sample.sample_id, record.epoch)
        metadata = _metadata(record, said, replaced)
        common = {
            "id": sample.sample_id,
            "epoch": record.epoch,
            "input": record.command,
            "target": record.target,
            "scores": self._scores(verdicts[-1]),
            "model_usage": {record.model: output["usage"]} if "usage" in output else {},
            **_times(record),
            "uuid": text_id(*parts),
        }
        messages = self._messages(common["uuid"], record, output)
        retries = _retries(record, replaced)
        error, limit = self._failure(record, has_score=bool(common["scores"]))
        content = common | {
            "messages": messages,
            "output": output,
            "metadata": metadata,
            "store": {},
            **self._transcript(common, messages, output, error),
            "error_retries": [_as_error(each) for each in retries],
        }
        summary = common | {
            "metadata": {
                key: value
                for key, value in metadata.items()
                if not isinstance(value, list | dict)
                and (not isinstance(value, str) or len(value) <= _SUMMARY_METADATA_CHARS)
            },
            "retries": len(retries),
            "completed": True,
            "message_count": len(messages),
        }
        if error is not None:
            content["error"], summary["error"] = _as_error(error), error
        if limit is not None:
            content["limit"], summary["limit"] = limit, limit["type"]
        return content, summary

    def _scores(self, verdict: ScoredRecord) -> dict[str, Any]:
        record = verdict.record
        finding = find(record.outcome, record.stop_kind, record.error_class)
        return {
            rule.name: {
                "value": "C" if right else "I",
                "answer": rule.labels[finding],
                "explanation": record.reason or _without_reason(record),
            }
            for rule, right in zip(self.rules, verdict.correct, strict=True)
            if right is not None
        }

    def _failure(
        self, record: VerdictRecord, *, has_score: bool
    ) -> tuple[str | None, dict[str, Any] | None]:
        """Return why a verdict is an error sample, or else the limit that ended its call."""
        if not has_score:
            return _in_words(
                record
            ) if record.error_class else f"not scored: {record.outcome}", None
        if record.error_class is not ErrorClass.DEADLINE:
            return None, None
        limit_s = self.run.parameters and self.run.parameters.time_limit_s
        return None, {"type": "time", "limit": limit_s or (record.latency_ms or 0) / 1000}

    def _messages(
        self, uuid: str, record: VerdictRecord, output: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return system text, command and answer, each where there is one."""
        prompt = self.run.prompt
        texts = Messages("", record.command) if prompt is None else prompt.render(record.command)
        messages: list[dict[str, Any]] = []
        if texts.system:
            messages.append({"role": "system", "content": texts.system})
        messages.append({"role": "user", "content": texts.user, "source": "input"})
        messages += [choice["message"] for choice in output["choices"]]
        for number, message in enumerate(messages):
            message["id"] = f"{uuid}{number}"
        return messages

    def _transcript(
        self,
        sample: Mapping[str, Any],
        messages: Sequence[dict[str, Any]],
        output: Mapping[str, Any],
        error: str | None,
    ) -> dict[str, Any]:
        attachments: dict[str, str] = {}
        said = []
        for message in messages:
            text, name = message["content"], text_id(message["content"])
            if len(text) > _ATTACHED_FROM_CHARS:
                attachments[name], text = text, f"attachment://{name}"
            said.append(message | {"content": text})
        choices = [choice | {"message": said.pop()} for choice in output["choices"]]
        event = {
            "event": "model",
            "uuid": f"{sample['uuid']}e",
            "timestamp": sample.get("started_at", self.run.created_at.isoformat()),
            "working_start": 0,
            "model": self.model,
            "input": said,
            "tools": [],
            "tool_choice": "none",
            "config": self.config,
            "output": {name: value for name, value in output.items() if name != "completion"}
            | {"choices": choices},
            "error": error,
            "completed": sample.get("completed_at"),
            "working_time": sample.get("working_time"),
        }
        return {"events": [known(event)], "attachments": attachments}


def _output(record: VerdictRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the output, and the facts that it and the times of the sample say."""
    call_s, total_s = _seconds(record.latency_ms), _seconds(record.total_ms)
    output: dict[str, Any] = {"model": "", "choices": [], **known({"time": call_s})}
    said: dict[str, Any] = {
        "created_at": record.created_at,
        "latency_ms": None if call_s is None else call_s * 1000,
        "total_ms": None if total_s is None else total_s * 1000,
    }
    if record.error_class is not None:
        return output, said
    text, kind, model = record.completion or "", record.stop_kind, record.returned_model or ""
    stop_reason = "unknown" if kind is None else _STOP_REASONS.get(kind, "unknown")
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
    if usage:
        output["usage"] = usage
    return output, said | tokens


def _usage(record: VerdictRecord) -> tuple[dict[str, Any], dict[str, int | None]]:
    """Return the tokens in Inspect AI's meaning: input without the cache, output with reasoning."""
    given, generated = record.input_tokens, record.output_tokens or 0
    parts = {
        "cache_read_tokens": record.cache_read_tokens,
        "cache_write_tokens": record.cache_write_tokens,
        "reasoning_tokens": record.reasoning_tokens,
    }
    if {given, record.output_tokens, record.cost_usd, *parts.values()} == {None}:
        return {}, {}
    cached = (record.cache_read_tokens or 0) + (record.cache_write_tokens or 0)
    beside = max(0, (given or 0) - cached)
    usage = {
        "input_tokens": beside,
        "output_tokens": generated,
        "total_tokens": beside + cached + generated,
        "input_tokens_cache_read": record.cache_read_tokens,
        "input_tokens_cache_write": record.cache_write_tokens,
        "reasoning_tokens": record.reasoning_tokens,
        "total_cost": None if record.cost_usd is None else float(record.cost_usd),
    }
    return known(usage), {"input_tokens": beside + cached, "output_tokens": generated, **parts}


def _metadata(
    record: VerdictRecord, said: Mapping[str, object], replaced: Iterable[VerdictRecord]
) -> dict[str, Any]:
    labels = {name: getattr(record, name) for name in ("dataset", "category", "cluster")}
    found: dict[str, Any] = known(labels)
    taken: dict[str, str] = {}
    for key, text in record.metadata.items():
        (taken if key in LABELS or key.startswith(PREFIX) else found)[key] = text
    if taken:
        found[_OTHER_LABELS] = taken
    opinions = {"outcome": record.outcome} | known({"confidence": record.confidence})
    facts = opinions | _unsaid(record, said)
    found |= {PREFIX + name: value for name, value in facts.items()}
    older = [_unsaid(each, {}) | _answered_without_text(each) for each in replaced]
    return found | ({_REPLACED: older} if older else {})


def _answered_without_text(record: VerdictRecord) -> dict[str, bool]:
    """Tell an answer without a text from no answer."""
    empty = record.completion is None and record.error_class is None
    return {"answered": True} if empty else {}


def _unsaid(record: VerdictRecord, said: Mapping[str, object]) -> dict[str, Any]:
    """Return the facts of a verdict beside those that a reader takes from the sample's fields."""
    found: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(record, name)
        if value != said.get(name, default):
            found[name] = str(value) if isinstance(value, Decimal) else value
    if "call_errors" in found:
        found["call_errors"] = msgspec.to_builtins(list(found["call_errors"]))
    return found


def _times(record: VerdictRecord) -> dict[str, Any]:
    times: dict[str, Any] = known({"completed_at": record.created_at})
    if record.created_at is not None:
        took_ms = record.latency_ms if record.total_ms is None else record.total_ms
        with suppress(OverflowError):
            ended = datetime.fromisoformat(record.created_at)
            times["started_at"] = (ended - timedelta(milliseconds=took_ms or 0)).isoformat()
    total_s, call_s = _seconds(record.total_ms), _seconds(record.latency_ms)
    return times | known({"total_time": total_s, "working_time": call_s})


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _as_error(text: str) -> dict[str, str]:
    return {"message": text, "traceback": "", "traceback_ansi": ""}


def _without_reason(record: VerdictRecord) -> str:
    """Return how an item ended for which the model stated no reason."""
    if record.error_class is ErrorClass.DEADLINE:
        return "no answer within the time limit"
    return f"{record.outcome}: {record.error_class or 'the answer states no reason'}"


def _in_words(record: VerdictRecord) -> str:
    message = record.call_errors[-1].message if record.call_errors else None
    return f"{record.outcome}: {record.error_class}" + (f": {message}" if message else "")


def _retries(record: VerdictRecord, replaced: Iterable[VerdictRecord]) -> list[str]:
    """Return the verdicts that were replaced, and the attempts that failed before the answer."""
    said = [
        f"replaced by a retry: {_in_words(older) if older.error_class else older.outcome}"
        for older in replaced
    ]
    failed = record.call_errors if record.error_class is None else record.call_errors[:-1]
    for error in failed:
        status = "" if error.status is None else f" (HTTP {error.status})"
        said.append(f"{error.error_class}{status}: {error.message or ''}")
    return said


def labels_in(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the free labels of the command in the metadata of a sample."""
    plain = {
        key: value
        for key, value in metadata.items()
        if key not in LABELS and not key.startswith(PREFIX)
    }
    taken = metadata.get(_OTHER_LABELS)
    return plain | taken if isinstance(taken, dict) else plain


def records_in(said: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterable[VerdictRecord]:
    """Yield the verdicts of a sample, oldest first."""
    shared = {name: said[name] for name in _OF_THE_SAMPLE if name in said}
    replaced = metadata.get(_REPLACED) or []
    if not isinstance(replaced, list) or not all(isinstance(each, dict) for each in replaced):
        raise InputError("must be a list of objects", field=_REPLACED)
    for each in replaced:
        yield from_values({"completion": None} | each | shared)
    own = {name: metadata[PREFIX + name] for name in _DEFAULTS if PREFIX + name in metadata}
    yield from_values({"completion": None} | dict(said) | own)
