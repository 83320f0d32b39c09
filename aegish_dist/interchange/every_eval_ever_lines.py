"""Verdicts as lines of Every Eval Ever 0.3.0: each belongs to the rate that it counts in.

A malicious command's verdict belongs to the detection rate, a harmless one's to the acceptance
rate; category, dataset and binary are among its metadata, so that every other rate can be formed.
The format has no word for a verdict that is unscored, so it has no line.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from aegish_dist.core.outcome import ErrorClass, Outcome, OutcomeDetail, StopKind, find
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.scoring import ACTIONS, ScoringRule
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import printable_line_of_json
from aegish_dist.interchange.every_eval_ever import SCHEMA_VERSION, evaluation_name, result_id

CORRECT = "correct"
"""Key of a verdict line that says whether the rule set counts it as correct, null if unscored."""
_RATES = {
    TrueLabel.MALICIOUS: "malicious_detection_rate",
    TrueLabel.HARMLESS: "harmless_acceptance_rate",
}
_LATENCIES = ("queue_ms", "limiter_ms", "backoff_ms", "total_ms")
_METADATA = (
    *("epoch", "generation", "attempts", "confidence", "stop_reason", "stop_kind"),
    *("returned_model", "upstream", "simulated", "created_at", "cost_usd"),
)
"""Keys of verdict lines that become metadata where they are known."""


@dataclass(frozen=True, slots=True)
class Relabelled:
    """The label of a sample under an overlay."""

    target: TrueLabel
    category: str | None


@dataclass(frozen=True, slots=True)
class SampleLines:
    """Makes lines of the verdicts of a run under a rule set."""

    rule: ScoringRule
    relabelled: Mapping[tuple[str, str], Relabelled] = field(default_factory=dict)
    """By name of the dataset and id of the sample, the labels that an overlay changes."""

    def of(
        self, evaluation_id: str, verdicts: Iterable[Mapping[str, Any]]
    ) -> tuple[list[str], int]:
        """Return the lines of some verdicts, and how many verdicts are unscored.

        Args:
            verdicts: Decoded verdict lines of one model, by sample, epoch and generation; of an
                item the newest generation counts. `correct` says what the rule set makes of it.
        """
        lines, unscored = [], 0
        for _, generations in groupby(verdicts, _item):
            *_, newest = generations
            if newest[CORRECT] is None:
                unscored += 1
            else:
                lines.append(printable_line_of_json(self._line(evaluation_id, newest)))
        return lines, unscored

    def _line(self, evaluation_id: str, verdict: Mapping[str, Any]) -> dict[str, Any]:
        sample_id = _sample(verdict).sample_id
        label = self.relabelled.get((verdict["dataset"], sample_id)) or Relabelled(
            TrueLabel(verdict["target"]), verdict["category"]
        )
        right = self.rule.malicious_correct, self.rule.harmless_correct
        asked = {
            "raw": verdict["command"],
            "reference": sorted(right[label.target is TrueLabel.HARMLESS]),
        }
        answer = verdict["completion"]
        line = {
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": evaluation_id,
            "model_id": verdict["model"],
            "evaluation_name": evaluation_name(label.target),
            "evaluation_result_id": result_id(_RATES[label.target]),
            "sample_id": sample_id,
            "sample_hash": _hash(asked),
            "interaction_type": "single_turn",
            "input": asked,
            "output": {"raw": [] if answer is None else [answer]},
            "answer_attribution": _attribution(verdict),
            "evaluation": {
                "score": 1.0 if verdict[CORRECT] else 0.0,
                "is_correct": verdict[CORRECT],
            },
            "token_usage": _usage(verdict),
            "performance": _performance(verdict),
            "error": _error(verdict),
            "metadata": self._metadata(verdict, label),
        }
        return {name: value for name, value in line.items() if value is not None}

    def _metadata(self, verdict: Mapping[str, Any], label: Relabelled) -> dict[str, str]:
        known = {
            "dataset": verdict["dataset"],
            "target": label.target.value,
            "category": label.category,
            "cluster": verdict["cluster"],
            "label": self.rule.labels[_finding(verdict)].value,
            **{name: verdict[name] for name in _METADATA},
        }
        return {name: _text(value) for name, value in known.items() if value is not None}


def _item(verdict: Mapping[str, Any]) -> tuple[object, ...]:
    return _sample(verdict), verdict["epoch"]


def _sample(verdict: Mapping[str, Any]) -> Sample:
    return Sample(
        verdict["command"], TrueLabel(verdict["target"]), verdict["category"], verdict["cluster"]
    )


def _finding(verdict: Mapping[str, Any]) -> OutcomeDetail:
    stop, error = verdict["stop_kind"], verdict["error_class"]
    return find(Outcome(verdict["outcome"]), stop and StopKind(stop), error and ErrorClass(error))


def _hash(asked: Mapping[str, Any]) -> str:
    """Return what the format joins samples of several tools by."""
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _attribution(verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    if _finding(verdict) not in ACTIONS:
        return []
    return [
        {
            "turn_idx": 0,
            "source": "output.raw",
            "extracted_value": verdict["outcome"],
            "extraction_method": f"aegish-dist parser version {verdict['parser_version']}",
            "is_terminal": True,
        }
    ]


def _usage(verdict: Mapping[str, Any]) -> dict[str, int] | None:
    """Return tokens; the format wants both sides or none."""
    sent, received = verdict["input_tokens"], verdict["output_tokens"]
    if sent is None or received is None:
        return None
    known = {
        "input_tokens": sent,
        "output_tokens": received,
        "total_tokens": sent + received,
        "input_tokens_cache_write": verdict["cache_write_tokens"],
        "input_tokens_cache_read": verdict["cache_read_tokens"],
        "reasoning_tokens": verdict["reasoning_tokens"],
    }
    return {name: tokens for name, tokens in known.items() if tokens is not None}


def _performance(verdict: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the time of the call; what was spent waiting on our side stands beside it."""
    waits = {name: _text(verdict[name]) for name in _LATENCIES if verdict[name] is not None}
    found: dict[str, Any] = {"additional_details": waits} if waits else {}
    if verdict["latency_ms"] is not None:
        found["latency_ms"] = verdict["latency_ms"]
    return found or None


def _error(verdict: Mapping[str, Any]) -> str | None:
    if _finding(verdict) in ACTIONS:
        return None
    errors = verdict["call_errors"]
    message = (errors[-1]["message"] if errors and verdict["error_class"] else None) or ""
    parts = (verdict["outcome"], verdict["error_class"], mask_key_shapes(message))
    return ": ".join(part for part in parts if part)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
