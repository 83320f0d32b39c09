"""A comparison as one JSON document, the machine interface of `compare`."""

from dataclasses import fields
from typing import Any

from aegish_dist.core.comparison import Difference
from aegish_dist.core.gate import commands_needed
from aegish_dist.core.printable import printable_json
from aegish_dist.core.side import Side
from aegish_dist.report.comparison_data import ComparedPair, ComparisonData, PairGate

JsonObject = dict[str, Any]

NUMBERS = tuple(
    field.name for field in fields(Difference) if field.name not in ("a_only", "b_only")
)
"""The plain numbers of a difference, in the order of exports."""


def render_comparison_json(data: ComparisonData) -> str:
    """Return a comparison as JSON in ASCII; absent numbers are null."""
    return printable_json(comparison_document(data)) + "\n"


def comparison_document(data: ComparisonData) -> JsonObject:
    """Return a comparison in JSON types."""
    rule = data.opinion.rule
    return {
        "scoring": rule.name,
        "scoring_version": rule.version,
        "opinion": data.opinion.provenance,
        "runs": [{"run_id": run.run_id, "name": run.name} for run in data.runs],
        "unlike": list(data.unlike),
        "metric": data.metric,
        "margin": data.margin,
        "pairs": [_pair(data, pair) for pair in data.pairs],
        "tie_groups": [list(group) for group in data.tie_groups],
        "gate": [_gate(each) for each in data.gates] or None,
    }


def _pair(data: ComparisonData, pair: ComparedPair) -> JsonObject:
    compared = pair.comparison
    return {
        **_sides(pair),
        "samples": compared.samples,
        "verdict": data.verdict(pair),
        "metrics": {name: _numbers(data, each) for name, each in compared.metrics.items()},
        "categories": {name: _numbers(data, each) for name, each in compared.categories.items()},
    }


def _sides(pair: ComparedPair) -> JsonObject:
    return {"a": _side(pair.a), "b": _side(pair.b)}


def _side(side: Side) -> JsonObject:
    return {"run_id": side.run_id, "model": side.model}


def _numbers(data: ComparisonData, found: Difference) -> JsonObject:
    return {
        **{name: getattr(found, name) for name in NUMBERS},
        "discordant": {"a_only": found.a_only, "b_only": found.b_only},
        "commands_needed": commands_needed(found, data.margin),
    }


def _gate(gate: PairGate) -> JsonObject:
    return {
        **_sides(gate.pair),
        "verdict": gate.verdict.value,
        "commands_needed": gate.needed,
        "commands_missing": gate.missing,
    }
