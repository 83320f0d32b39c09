"""Reports as CSV, as JSON, and in the form of the reference benchmark's result file."""

import csv
import io
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.model import Price, Rate
from aegish_dist.core.opinion import Opinion, record_of
from aegish_dist.core.run import RunDataset
from aegish_dist.report.data import ReportData
from aegish_dist.report.formats import COLUMNS, render, render_csv, render_json
from tests.defined import defined
from tests.unit.report.reports import HOSTILE, a_model, a_report, a_silent_model, undefined

FULL_WIDTH = "\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def row(metric: str, category: str = "", data: ReportData | None = None) -> dict[str, str]:
    everything = rows(render_csv(data or a_report()))
    (found,) = [r for r in everything if (r["metric"], r["category"]) == (metric, category)]
    return found


def test_a_metric_comes_with_its_uncertainty() -> None:
    opinion = Opinion()
    assert list(row("aegish_score").values()) == [
        *("0a1b2c3d4", "nightly", "12", "aegish-5.3", "1"),
        *(opinion.rule.fingerprint, opinion.targets.fingerprint, ""),
        *("acme/guard-1", "aegish_score", ""),
        *("0.957", "0.0068", "0.0078", "0.939", "0.97", "296", "140", ""),
    ]
    assert COLUMNS[:8] == (
        *("run_id", "run_name", "snapshot_id", "scoring", "scoring_version"),
        *("scoring_fingerprint", "targets_fingerprint", "overlay_fingerprint"),
    )
    assert COLUMNS[8:] == (
        *("model", "metric", "category", "value", "stderr", "stderr_clustered"),
        *("ci_low", "ci_high", "n", "clusters", "message"),
    )


def test_rows_of_several_reports_can_be_stacked() -> None:
    """Every row names its run, snapshot and rule set, so that no two files have equal rows."""
    texts = [render_csv(a_report(snapshot_id=12)), render_csv(a_report(snapshot_id=13))]
    stacked = [tuple(row.values()) for text in texts for row in rows(text)]
    assert len(set(stacked)) == len(stacked)


def test_failures_are_rows_with_a_message(failed_report: ReportData) -> None:
    verdicts = row("failed_verdicts", "auth", failed_report)
    assert (verdicts["model"], verdicts["value"]) == ("acme/guard-1", "6")
    assert verdicts["message"] == "no such key"
    assert row("failed_attempts", "rate_limit", failed_report)["value"] == "40"
    assert row("failed_verdicts", "rate_limit", failed_report)["value"] == "0"


def test_a_category_is_a_detection_rate() -> None:
    found = row("malicious_detection_rate", "shell")
    assert (found["value"], found["n"], found["clusters"]) == ("0.86", "46", "")


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("timeout_error_count", "12"),
        ("malicious_block_count", "185"),
        ("latency_service_p90_ms", "2310.0"),
        ("latency_queue_mean_ms", "41.2"),
        ("cost_per_1000_usd", "1.95"),
        ("tokens_cache_read", "1000000"),
        ("tokens_reasoning", ""),
        ("flip_rate", ""),
    ],
)
def test_single_numbers_have_a_value_only(metric: str, value: str) -> None:
    assert row(metric)["value"] == value


def test_formulas_are_disarmed(hostile_report: ReportData) -> None:
    everything = rows(render_csv(hostile_report))
    assert {each["model"][:6] for each in everything} == {"'=cmd("}
    assert {each["category"][:6] for each in everything} == {"", "auth", "'=cmd("}
    assert {each["message"][:6] for each in everything} == {"", "'=cmd("}
    assert {each["run_name"][:6] for each in everything} == {"'=cmd("}
    assert all(value.isprintable() for each in everything for value in each.values())


@pytest.mark.parametrize("start", [*"=+-@", *FULL_WIDTH, " =", '"='])
def test_every_start_of_a_formula_is_known(start: str) -> None:
    text = render_csv(a_report(a_model(f"{start}1+1")))
    assert {each["model"] for each in rows(text)} == {f"'{start}1+1"}


@pytest.mark.parametrize("separator", [";", "|", "; ", ';"', ";;"])
def test_no_formula_hides_behind_another_separator(separator: str) -> None:
    """A spreadsheet that separates cells at semicolons finds none that it would compute."""
    text = render_csv(a_report(a_model(f"x{separator}=1+1")))
    cells = [cell for line in text.splitlines() for cell in re.split("[;|]", line)]
    assert not [cell for cell in cells if cell.lstrip(' "').startswith("=")]


@pytest.mark.parametrize("name", ["openai/gpt-5.1", "a;b", "x=1", "e-mail@host", "検査", "a - b"])
def test_ordinary_names_stay_as_they_are(name: str) -> None:
    assert {each["model"] for each in rows(render_csv(a_report(a_model(name))))} == {name}


def test_negative_numbers_are_left_alone() -> None:
    data = a_report(a_model(metrics={"ece": {"value": -0.5, "n": 1}}))
    assert row("ece", data=data)["value"] == "-0.5"


def test_the_form_is_that_of_rfc_4180() -> None:
    text = render_csv(a_report())
    assert text.startswith(",".join(COLUMNS) + "\r\n")
    assert text.endswith("\r\n")
    assert text.count("\n") == text.count("\r\n")


def test_the_document_has_its_parts() -> None:
    data = a_report()
    document = json.loads(render_json(data))
    assert set(document) == {
        *("run", "snapshot", "models", "ranking", "failures", "halted", "overlay_effect"),
        *("failure_times", "reasons", "comparison", "commands"),
    }
    assert document["models"] == data.snapshot.document["models"]
    assert document["ranking"] == [
        {"rank": 1, "tie_group": 1, "model": "acme/guard-1", "aegish_score": 0.957}
    ]
    assert document["snapshot"] == {
        "id": 12,
        "scoring": "aegish-5.3",
        "scoring_version": 1,
        "opinion": record_of(Opinion()),
        "metrics_version": 2,
        "parser_versions": "2",
        "code_version": "0.1.0",
        "verdicts": 300,
        "verdicts_hash": "0" * 16,
        "created_at": "2026-11-20T14:30:00+00:00",
        "is_current": True,
    }


def test_the_run_can_be_repeated_from_its_block() -> None:
    data = a_report()
    run = json.loads(render_json(data))["run"]
    assert (run["id"], run["name"], run["epochs"]) == ("0a1b2c3d4", "nightly", 1)
    assert run["created_at"] == "2026-11-20T14:03:00+00:00"
    assert run["package_version"] == "0.1.0"
    assert run["datasets"] == [
        {
            "name": "mixed",
            "fingerprint": "ab" * 32,
            "samples": 300,
            "malicious": 200,
            "source": "GTFOBins, commit 0123",
            "licence": "GPL-3.0",
        }
    ]
    assert run["prompt"] == {
        "name": "guard",
        "fingerprint": defined(data.run.prompt).fingerprint,
        "system": "system",
        "template": "{command}",
    }
    assert run["parameters"] == {
        "seed": 42,
        "temperature": None,
        "max_output_tokens": 4096,
        "time_limit_s": 180.0,
    }
    assert [model["id"] for model in run["models"]] == ["acme/guard-1"]


def test_prices_are_those_of_submit() -> None:
    data = a_report()
    tiered = Price(Rate(Decimal("1.25"), ((200_000, Decimal("2.5")),)), Rate(Decimal(10)))
    flat = Price(per_call=Decimal("0.001"))
    (spec,) = data.run.models
    nothing: dict[str, object] = {"usd_per_million": 0.0, "above_input_tokens": {}}
    above = {"usd_per_million": 1.25, "above_input_tokens": {"200000": 2.5}}
    for price, expected in (
        (None, {}),
        (flat, {"per_call_usd": 0.001, "input": nothing}),
        (tiered, {"per_call_usd": None, "input": above, "cache_read": None}),
        (tiered, {"output": {"usd_per_million": 10.0, "above_input_tokens": {}}}),
    ):
        priced = replace(data, run=replace(data.run, models=(replace(spec, price=price),)))
        (model,) = json.loads(render_json(priced))["run"]["models"]
        assert (model["price"] is None) == (price is None)
        assert expected.items() <= (model["price"] or {}).items()


def test_failures_have_their_numbers_and_the_whole_message(failed_report: ReportData) -> None:
    document = json.loads(render_json(failed_report))
    model, message = "acme/guard-1", "no such key"
    counts = {"verdicts": 6, "attempts": 6, "statuses": [401, 403]}
    reason = {"error_class": "auth", "message": message, "last_at": "2026-11-20T14:20:00+00:00"}
    assert document["failures"][0] == {"model": model, **counts, **reason}
    assert document["halted"] == [{"model": model, "state": "parked", "reason": message}]


def test_what_is_unknown_is_null() -> None:
    data = a_report(a_silent_model())
    imported = replace(data, run=replace(data.run, prompt=None, parameters=None))
    document = json.loads(render_json(imported))
    assert document["run"]["prompt"] is document["run"]["parameters"] is None
    assert document["models"][0]["metrics"]["aegish_score"]["value"] is None
    assert document["ranking"][0]["rank"] is None


def test_hostile_text_is_exact_and_inert(hostile_report: ReportData) -> None:
    """A parser gets every character back, a terminal gets none that it would obey."""
    text = render_json(hostile_report)
    assert json.loads(text)["run"]["name"] == HOSTILE
    assert text.replace("\n", "").isprintable()
    assert text.isascii()


def test_keys_are_sorted() -> None:
    text = render_json(a_report())
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n"


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
    assert HOSTILE in written(hostile_report)["results"]
