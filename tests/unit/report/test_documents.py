"""Reports as CSV, as JSON, and in the form of the reference benchmark's result file."""

import csv
import io
import json
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from aegish_dist.core.model import Price, Rate
from aegish_dist.core.run import RunDataset
from aegish_dist.opinions.opinion import Opinion, record_of
from aegish_dist.report.data import ReportData
from aegish_dist.report.formats import COLUMNS, render, render_json
from tests.defined import defined
from tests.recorded import lines_of
from tests.unit.report.reports import HOSTILE, a_model, a_report, a_silent_model, undefined

FULL_WIDTH = "\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def row(metric: str, category: str = "", data: ReportData | None = None) -> dict[str, str]:
    everything = rows(render(data or a_report(), "csv"))
    (found,) = [r for r in everything if (r["metric"], r["category"]) == (metric, category)]
    return found


def test_a_metric_comes_with_its_uncertainty() -> None:
    opinion = Opinion()
    assert list(row("aegish_score").values()) == [
        *("0a1b2c3d4", "nightly", "12", "aegish-5.3", "1"),
        *(opinion.rule.fingerprint, opinion.targets.fingerprint, ""),
        *("acme/guard-1", "aegish_score", ""),
        *("0.957", "0.0068", "0.0078", "0.939", "0.97", "296", "140", "", "PASS"),
    ]
    assert COLUMNS[:8] == (
        *("run_id", "run_name", "snapshot_id", "scoring", "scoring_version"),
        *("scoring_fingerprint", "targets_fingerprint", "overlay_fingerprint"),
    )
    assert COLUMNS[8:] == (
        *("model", "metric", "category", "value", "stderr", "stderr_clustered"),
        *("ci_low", "ci_high", "n", "clusters", "message", "judgement"),
    )


@pytest.mark.parametrize(
    ("metric", "category", "value"),
    lines_of("csv_rows.jsonl"),
)
def test_every_number_has_a_row(
    failed_report: ReportData, metric: str, category: str, value: str
) -> None:
    found = row(metric, category, failed_report)
    assert (found["model"], found["value"]) == ("acme/guard-1", value)
    assert found["message"] == ("no such key" if category == "auth" else "")


def test_formulas_are_disarmed(hostile_report: ReportData) -> None:
    everything = rows(render(hostile_report, "csv"))
    assert {each["model"][:6] for each in everything} == {"'=cmd("}
    assert {each["category"][:6] for each in everything} == {"", "auth", "'=cmd("}
    assert {each["message"][:6] for each in everything} == {"", "'=cmd("}
    assert {each["run_name"][:6] for each in everything} == {"'=cmd("}
    assert all(value.isprintable() for each in everything for value in each.values())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *((f"{start}1+1", f"'{start}1+1") for start in (*"=+-@", *FULL_WIDTH, " =", '"=')),
        # A spreadsheet that separates cells at semicolons or bars finds no formula either.
        *((f"x{mark}=1+1", f"x{mark[0]}'{mark[1:]}=1+1") for mark in (";", "|", "; ", ';"')),
        *((name, name) for name in ("openai/gpt-5.1", "a;b", "x=1", "e-mail@host", "a - b")),
    ],
)
def test_what_a_spreadsheet_would_compute_is_disarmed(text: str, shown: str) -> None:
    assert {each["model"] for each in rows(render(a_report(a_model(text)), "csv"))} == {shown}


def test_negative_numbers_are_left_alone() -> None:
    data = a_report(a_model(metrics={"ece": {"value": -0.5, "n": 1}}))
    assert row("ece", data=data)["value"] == "-0.5"


def test_the_form_is_that_of_rfc_4180() -> None:
    text = render(a_report(), "csv")
    assert text.startswith(",".join(COLUMNS) + "\r\n")
    assert text.endswith("\r\n")
    assert text.count("\n") == text.count("\r\n")


def test_the_document_has_its_parts() -> None:
    data = a_report()
    document = json.loads(render_json(data))
    assert set(document) == {
        *("run", "snapshot", "models", "ranking", "failures", "halted", "overlay_effect"),
        *("failure_times", "reasons", "comparison", "commands", "judgements", "scores", "policies"),
        "recommendation",
    }
    judgements = document["judgements"]["acme/guard-1"]
    assert judgements.pop("malicious_detection_rate") == "UNDECIDED"
    assert judgements == {"aegish_score": "PASS", "harmless_acceptance_rate": "PASS"}
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
    assert {name: run[name] for name in run if name not in ("datasets", "models")} == {
        "id": "0a1b2c3d4",
        "name": "nightly",
        "origin": "submit",
        "epochs": 1,
        "created_at": "2026-11-20T14:03:00+00:00",
        "package_version": "0.1.0",
        "pruned_completions": 0,
        "batched": [],
        "prompt": asdict(defined(data.run.prompt))
        | {"fingerprint": defined(data.run.prompt).fingerprint},
        "parameters": {
            **{"seed": 42, "temperature": None},
            **{"max_output_tokens": 4096, "time_limit_s": 180.0},
        },
    }
    assert run["datasets"] == [asdict(data.run.datasets[0])]
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
    assert (
        text
        == json.dumps(json.loads(text), sort_keys=True, indent=2).replace("\x7f", "\\u007f") + "\n"
    )
    assert text.replace("\n", "").isprintable()
    assert text.isascii()


def written(data: ReportData) -> dict[str, Any]:
    text = render(data, "reference-json")
    assert text.isascii()
    read: dict[str, Any] = json.loads(text)
    return read


def test_a_result_is_that_of_the_reference() -> None:
    """Its fields; `cost` of a data set is not known here."""
    document = written(a_report())
    assert set(document) == {"metadata", "results", "ranking"}
    service = {"mean": 950.0, "p50": 812.4, "p90": 2310.0, "p99": 23100.0, "max": 60000.0}
    detection, acceptance = 0.944, 0.97
    assert document["results"]["acme/guard-1"] == {
        "model": "acme/guard-1",
        "cot": False,
        "status": "success",
        "datasets": {
            # 0.944 of 196 commands is no whole number of them, so `correct` is not said.
            "gtfobins": {
                "malicious_detection_rate": detection,
                "malicious_detection_rate_macro": 0.91,
                "accuracy": detection,
                "stderr": 0.016,
                "total_commands": 196,
                "per_category_malicious_detection_rates": {
                    "file-read": {"count": 150, "malicious_detection_rate": 0.96},
                    "shell": {"count": 46, "malicious_detection_rate": 0.86},
                },
                "latency": service,
            },
            "harmless": {
                "harmless_acceptance_rate": acceptance,
                "false_positive_rate": pytest.approx(0.03),
                "accuracy": acceptance,
                "stderr": 0.017,
                "total_commands": 100,
                "correct": 97,
                "per_category_malicious_detection_rates": {},
                "latency": service,
            },
        },
        "composite": {
            "aegish_score": 0.957,
            "aegish_score_se": 0.0068,
            "total_cost_usd": 0.585,
            "cost_per_1000_combined": 1.95,
            "avg_latency_ms": 950.0,
        },
    }


def test_metadata_count_both_kinds_of_commands() -> None:
    metadata = written(a_report())["metadata"]
    assert set(metadata) == {
        *("timestamp", "models_evaluated", "datasets", "scaffolding", "source", "note"),
        *("gtfobins_count", "harmless_count", "skipped_models"),
    }
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


def test_rates_stay_fractions_where_they_are_whole() -> None:
    never = a_model(metrics={"harmless_acceptance_rate": {"value": 0.0, "n": 100}})
    assert '"false_positive_rate": 1.0' in render(a_report(never), "reference-json")


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
