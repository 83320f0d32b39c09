"""Reports as CSV and JSON."""

import csv
import io
import json
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from aegish_dist.core.model import Price, Rate
from aegish_dist.core.opinion import Opinion, record_of
from aegish_dist.report.data import ReportData
from aegish_dist.report.documents import COLUMNS, render_csv, render_json
from tests.defined import defined
from tests.unit.report.reports import HOSTILE, a_model, a_report, a_silent_model

FULL_WIDTH = "\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def row(metric: str, category: str = "", data: ReportData | None = None) -> dict[str, str]:
    """Find the one row of a metric and category."""
    everything = rows(render_csv(data or a_report()))
    (found,) = [r for r in everything if (r["metric"], r["category"]) == (metric, category)]
    return found


def test_a_metric_comes_with_its_uncertainty() -> None:
    """Numbers are not rounded."""
    assert row("aegish_score") == {
        "run_id": "0a1b2c3d4",
        "run_name": "nightly",
        "snapshot_id": "12",
        "scoring": "aegish-5.3",
        "scoring_version": "1",
        "scoring_fingerprint": Opinion().rule.fingerprint,
        "targets_fingerprint": Opinion().targets.fingerprint,
        "overlay_fingerprint": "",
        "model": "acme/guard-1",
        "metric": "aegish_score",
        "category": "",
        "value": "0.957",
        "stderr": "0.0068",
        "stderr_clustered": "0.0078",
        "ci_low": "0.939",
        "ci_high": "0.97",
        "n": "296",
        "clusters": "140",
        "message": "",
    }


def test_rows_of_several_reports_can_be_stacked() -> None:
    """Every row names its run, snapshot and rule set, so that no two files have equal rows."""
    texts = [render_csv(a_report(snapshot_id=12)), render_csv(a_report(snapshot_id=13))]
    stacked = [tuple(row.values()) for text in texts for row in rows(text)]
    assert len(set(stacked)) == len(stacked)


def test_failures_are_rows_with_a_message(failed_report: ReportData) -> None:
    """Verdicts without an answer and failed attempts are counted by reason."""
    verdicts = row("failed_verdicts", "auth", failed_report)
    assert (verdicts["model"], verdicts["value"]) == ("acme/guard-1", "6")
    assert verdicts["message"] == "no such key"
    assert row("failed_attempts", "rate_limit", failed_report)["value"] == "40"
    assert row("failed_verdicts", "rate_limit", failed_report)["value"] == "0"


def test_a_category_is_a_detection_rate() -> None:
    """The rows of a category name it."""
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
    """Counts, times, amounts and tokens follow the metrics; undefined is empty."""
    assert row(metric)["value"] == value


def test_formulas_are_disarmed(hostile_report: ReportData) -> None:
    """A model and a category that start like a formula get an apostrophe."""
    everything = rows(render_csv(hostile_report))
    assert {each["model"][:6] for each in everything} == {"'=cmd("}
    assert {each["category"][:6] for each in everything} == {"", "auth", "'=cmd("}
    assert {each["message"][:6] for each in everything} == {"", "'=cmd("}
    assert {each["run_name"][:6] for each in everything} == {"'=cmd("}
    assert all(value.isprintable() for each in everything for value in each.values())


@pytest.mark.parametrize("start", [*"=+-@", *FULL_WIDTH, " =", '"='])
def test_every_start_of_a_formula_is_known(start: str) -> None:
    """Spreadsheets compute cells that start with any of these."""
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
    """Signs within a word are no formula."""
    assert {each["model"] for each in rows(render_csv(a_report(a_model(name))))} == {name}


def test_negative_numbers_are_left_alone() -> None:
    """A number is no foreign text, even if it starts with a minus."""
    data = a_report(a_model(metrics={"ece": {"value": -0.5, "n": 1}}))
    assert row("ece", data=data)["value"] == "-0.5"


def test_the_form_is_that_of_rfc_4180() -> None:
    """A heading comes first, and CR LF ends every line."""
    text = render_csv(a_report())
    assert text.startswith(",".join(COLUMNS) + "\r\n")
    assert text.endswith("\r\n")
    assert text.count("\n") == text.count("\r\n")


def test_the_document_has_its_parts() -> None:
    """Run, snapshot, models and ranking, and what went wrong: all that a script needs."""
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
    """Datasets, prompt, parameters, epochs and models are named."""
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
    """Rates in USD per million tokens with their tiers, a flat price, or null when unknown."""
    data = a_report()
    tiered = Price(Rate(Decimal("1.25"), ((200_000, Decimal("2.5")),)), Rate(Decimal(10)))
    flat = Price(per_call=Decimal("0.001"))
    (spec,) = data.run.models
    for price, expected in (
        (None, None),
        (
            flat,
            {"per_call_usd": 0.001, "input": {"usd_per_million": 0.0, "above_input_tokens": {}}},
        ),
        (
            tiered,
            {
                "per_call_usd": None,
                "input": {"usd_per_million": 1.25, "above_input_tokens": {"200000": 2.5}},
                "output": {"usd_per_million": 10.0, "above_input_tokens": {}},
                "cache_read": None,
            },
        ),
    ):
        priced = replace(data, run=replace(data.run, models=(replace(spec, price=price),)))
        (model,) = json.loads(render_json(priced))["run"]["models"]
        if expected is None:
            assert model["price"] is None
        else:
            assert model["price"] | expected == model["price"]


def test_failures_have_their_numbers_and_the_whole_message(failed_report: ReportData) -> None:
    """The reason, counts, statuses, words and time of each kind, and why a model is not called."""
    document = json.loads(render_json(failed_report))
    assert document["failures"][0] == {
        "model": "acme/guard-1",
        "error_class": "auth",
        "verdicts": 6,
        "attempts": 6,
        "statuses": [401, 403],
        "message": "no such key",
        "last_at": "2026-11-20T14:20:00+00:00",
    }
    assert document["halted"] == [
        {"model": "acme/guard-1", "state": "parked", "reason": "no such key"}
    ]


def test_an_imported_run_has_nulls() -> None:
    """A value that an import cannot know is null."""
    data = a_report()
    data = replace(data, run=replace(data.run, prompt=None, parameters=None))
    run = json.loads(render_json(data))["run"]
    assert run["prompt"] is None
    assert run["parameters"] is None


def test_undefined_is_null() -> None:
    """A model without verdicts has nulls, not zeros."""
    document = json.loads(render_json(a_report(a_silent_model())))
    assert document["models"][0]["metrics"]["aegish_score"]["value"] is None
    assert document["ranking"][0]["rank"] is None


def test_hostile_text_is_exact_and_inert(hostile_report: ReportData) -> None:
    """A parser gets every character back, a terminal gets none that it would obey."""
    text = render_json(hostile_report)
    assert json.loads(text)["run"]["name"] == HOSTILE
    assert text.replace("\n", "").isprintable()
    assert text.isascii()


def test_keys_are_sorted() -> None:
    """The same report gives the same bytes, with keys in order."""
    text = render_json(a_report())
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2) + "\n"
