"""A comparison as CSV in long form (RFC 4180): one row per pair, metric and category, unrounded."""

from collections.abc import Iterator
from typing import Any

from aegish_dist.core.gate import commands_needed
from aegish_dist.core.snapshot import CATEGORY_METRIC
from aegish_dist.report.comparison_data import ComparedPair, ComparisonData
from aegish_dist.report.comparison_json import NUMBERS
from aegish_dist.report.csv import csv_text

COLUMNS = (
    *("scoring", "scoring_version", "unlike", "a_run_id", "a_model", "b_run_id", "b_model"),
    *("samples", "verdict", "metric", "category", *NUMBERS),
    *("a_only", "b_only", "margin", "commands_needed"),
)


def render_comparison_csv(data: ComparisonData) -> str:
    """Return a comparison as CSV; what is undefined is empty."""
    return csv_text(
        COLUMNS, (_about(data, pair) | row for pair in data.pairs for row in _rows(data, pair))
    )


def _about(data: ComparisonData, pair: ComparedPair) -> dict[str, Any]:
    return {
        "scoring": data.opinion.rule.name,
        "scoring_version": data.opinion.rule.version,
        "unlike": "; ".join(data.unlike),
        "a_run_id": pair.a.run_id,
        "a_model": pair.a.model,
        "b_run_id": pair.b.run_id,
        "b_model": pair.b.model,
        "samples": pair.comparison.samples,
        "verdict": data.verdict(pair),
        "margin": data.margin,
    }


def _rows(data: ComparisonData, pair: ComparedPair) -> Iterator[dict[str, Any]]:
    found = [(name, "", each) for name, each in pair.comparison.metrics.items()]
    found += [
        (CATEGORY_METRIC, category, each)
        for category, each in sorted(pair.comparison.categories.items())
    ]
    for metric, category, each in found:
        yield {
            "metric": metric,
            "category": category,
            **{name: getattr(each, name) for name in NUMBERS},
            "a_only": each.a_only,
            "b_only": each.b_only,
            "commands_needed": commands_needed(each, data.margin),
        }
