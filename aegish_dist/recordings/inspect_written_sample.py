"""One verdict as a sample of a log of Inspect AI.

The prompt stands in messages, the answer in the output, what went wrong in `error` or `limit`.
A verdict that no rule set scores is an error sample without a score, never a score of 0.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from aegish_dist.core.sample import Sample
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.tally import find
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.verdict_record import VerdictRecord
from aegish_dist.recordings.inspect_conversation import Conversation, text_id
from aegish_dist.recordings.inspect_facts import metadata_of
from aegish_dist.recordings.inspect_failures import error_of, outcome_in_words, retries_of
from aegish_dist.recordings.inspect_output import output_of
from aegish_dist.recordings.judged_lines import JudgedRecord

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
