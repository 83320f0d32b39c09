"""Reports in the form of the reference benchmark's result file, field by field."""

import json
from typing import Any

import pytest

from aegish_dist.core.run import RunDataset
from aegish_dist.report.data import ReportData
from aegish_dist.report.formats import render
from tests.unit.report.reports import HOSTILE, a_model, a_report, a_silent_model, undefined

FIELDS = {
    "metadata": {
        *("timestamp", "models_evaluated", "datasets", "scaffolding"),
        *("gtfobins_count", "harmless_count", "skipped_models"),
    },
    "result": {"model", "cot", "status", "datasets", "composite"},
    "gtfobins": {
        *("malicious_detection_rate", "malicious_detection_rate_macro", "accuracy", "stderr"),
        *("total_commands", "correct", "per_category_malicious_detection_rates", "latency"),
    },
    "harmless": {
        *("harmless_acceptance_rate", "false_positive_rate", "accuracy", "stderr"),
        *("total_commands", "correct", "per_category_malicious_detection_rates", "latency"),
    },
    "composite": {
        *("aegish_score", "aegish_score_se", "total_cost_usd", "cost_per_1000_combined"),
        "avg_latency_ms",
    },
}
"""The fields that the reference writes; `cost` of a data set is not known here."""


def written(data: ReportData) -> dict[str, Any]:
    text = render(data, "reference-json")
    assert text.isascii()
    read: dict[str, Any] = json.loads(text)
    return read


def test_a_result_has_the_fields_of_the_reference() -> None:
    """None is missing that its plots and tables read."""
    document = written(a_report())
    result = document["results"]["acme/guard-1"]
    assert set(document) == {"metadata", "results", "ranking"}
    assert set(document["metadata"]) == FIELDS["metadata"] | {"source", "note"}
    assert set(result) == FIELDS["result"]
    # 0.944 of 196 commands is no whole number of them, so how many are correct is not said.
    assert set(result["datasets"]["gtfobins"]) == FIELDS["gtfobins"] - {"correct"}
    assert set(result["datasets"]["harmless"]) == FIELDS["harmless"]
    assert set(result["composite"]) == FIELDS["composite"]
    assert set(result["datasets"]["gtfobins"]["latency"]) == {"mean", "p50", "p90", "p99", "max"}


def test_numbers_are_those_of_the_reference() -> None:
    """Its standard errors take samples as independent; its false positives include errors."""
    result = written(a_report())["results"]["acme/guard-1"]
    assert result["status"] == "success"
    assert result["cot"] is False
    gtfobins, harmless = result["datasets"]["gtfobins"], result["datasets"]["harmless"]
    assert (gtfobins["malicious_detection_rate"], gtfobins["stderr"]) == (0.944, 0.016)
    assert gtfobins["total_commands"] == 196
    assert gtfobins["per_category_malicious_detection_rates"]["shell"] == {
        "count": 46,
        "malicious_detection_rate": 0.86,
    }
    assert harmless["false_positive_rate"] == pytest.approx(0.03)
    assert harmless["correct"] == 97
    assert result["composite"] == {
        "aegish_score": 0.957,
        "aegish_score_se": 0.0068,
        "total_cost_usd": 0.585,
        "cost_per_1000_combined": 1.95,
        "avg_latency_ms": 950.0,
    }


def test_metadata_count_both_kinds_of_commands() -> None:
    """Whatever the datasets are called."""
    metadata = written(a_report())["metadata"]
    assert metadata["datasets"] == ["gtfobins", "harmless"]
    assert (metadata["gtfobins_count"], metadata["harmless_count"]) == (200, 100)
    assert metadata["timestamp"] == "2026-11-20T14:30:00Z"
    assert metadata["scaffolding"] == "standard"
    assert metadata["source"]["snapshot_id"] == 12
    only = written(a_report(datasets=(RunDataset("calm", "ab" * 32, 9, 0),)))["metadata"]
    assert only["datasets"] == ["harmless"]


def test_a_model_without_a_score_is_no_success_and_has_no_zero() -> None:
    """The reference ranks and plots successes only, and writes 0.0 for what it does not know."""
    half = a_model("acme/half", metrics={"harmless_acceptance_rate": undefined()})
    half["metrics"]["aegish_score"] = undefined()
    document = written(a_report(a_model(), half, a_silent_model()))
    results = document["results"]
    assert results["acme/half"]["status"] == "partial"
    assert results["acme/half"]["datasets"]["harmless"] is None
    assert "aegish_score" not in results["acme/half"]["composite"]
    assert results["acme/silent"]["status"] == "error"
    assert results["acme/silent"]["datasets"] == {"gtfobins": None, "harmless": None}
    assert results["acme/silent"]["composite"] == {}
    assert [place["model"] for place in document["ranking"]] == ["acme/guard-1"]


def test_the_ranking_is_strict() -> None:
    """As the reference numbers it: it knows no ties."""
    ties = [(1, 1, "acme/a", 0.957), (2, 1, "acme/b", 0.957)]
    document = written(a_report(a_model("acme/a"), a_model("acme/b"), ranking=ties))
    assert document["ranking"] == [
        {"rank": 1, "model": "acme/a", "aegish_score": 0.957, "cost_per_1000": 1.95},
        {"rank": 2, "model": "acme/b", "aegish_score": 0.957, "cost_per_1000": 1.95},
    ]


def test_hostile_names_stay_text(hostile_report: ReportData) -> None:
    """They are exact, and escaped where a terminal would obey."""
    assert HOSTILE in written(hostile_report)["results"]
