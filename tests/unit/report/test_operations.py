"""The sections on why models failed, and reports on runs that were asked in batches."""

import json
from collections.abc import Mapping
from decimal import Decimal

import pytest
from msgspec.structs import replace

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.formats import FORMATS, render, render_json
from aegish_dist.report.layout import Section
from aegish_dist.report.operations import MESSAGE_CHARACTERS
from aegish_dist.report.provenance import reproduction
from aegish_dist.report.sections import build_report
from tests.unit.report.reports import a_model, a_report, section, titles

DASH = "\N{EN DASH}"


def failed_calls(data: ReportData) -> Section:
    return section(data, "Failed calls")


def test_reasons_have_counts(failed_report: ReportData) -> None:
    assert "Failed calls" not in titles(a_report())
    assert [[cell.text for cell in row] for row in failed_calls(failed_report).rows] == [
        ["acme/guard-1", "auth", "401, 403", "6", "6", "0"],
        ["acme/guard-1", "rate limit", "429", "0", "40", "40"],
    ]


def test_words_and_halts_stand_below(failed_report: ReportData) -> None:
    assert failed_calls(failed_report).remarks == (
        "acme/guard-1 (parked): no such key",
        "acme/guard-1 (auth, 2026-11-20 14:20 UTC): no such key",
    )


def test_a_reason_without_attempts_is_shown() -> None:
    """Logs that were imported may hold time limits without an attempt that failed."""
    data = a_report(failures=(FailureCount("acme/guard-1", ErrorClass.DEADLINE, 292, 0),))
    (row,) = failed_calls(data).rows
    assert [cell.text for cell in row] == ["acme/guard-1", "timeout", DASH, "292", DASH, "0"]


def test_long_messages_are_cut(failed_report: ReportData) -> None:
    long = replace(failed_report.failures[0], message="x" * 5000)
    words = failed_calls(replace(failed_report, failures=(long,))).remarks[-1]
    assert words.endswith("xxx\N{HORIZONTAL ELLIPSIS}")
    assert words.count("x") == MESSAGE_CHARACTERS


def test_models_stand_in_the_order_of_the_ranking() -> None:
    kinds = [FailureCount(name, ErrorClass.SERVER, 1, 1) for name in ("b", "a", "c")]
    data = a_report(a_model("c"), a_model("b"), a_model("a"), failures=kinds)
    assert [row[0].text for row in failed_calls(data).rows] == ["c", "b", "a"]


@pytest.mark.parametrize("form", sorted({*FORMATS} - {"reference-json"}))
def test_every_format_tells_the_reason(failed_report: ReportData, form: str) -> None:
    """The provider's words are in every report; only the reference's form has no place for them."""
    assert "no such key" in render(failed_report, form).replace("\\", "")


MODEL = "acme/guard-1"


def batched(after_s: Mapping[str, float]) -> ReportData:
    data = a_report(a_model(MODEL), a_model("acme/guard-2"))
    specs = tuple(replace(spec, batch_share=Decimal("0.5")) for spec in data.run.models)
    return replace(data, run=replace(data.run, models=specs, batched=after_s))


def said(data: ReportData) -> str:
    report = build_report(data, ["latency", "cost", "provenance"])
    notes = (f"{section.note} {' '.join(section.remarks)}" for section in report.sections)
    return " ".join((*(fact.text for fact in report.facts), *notes))


@pytest.mark.parametrize(
    ("after_s", "words", "option"),
    [
        ({MODEL: 0.2, "acme/guard-2": 0.2}, "requests were sent in batches: at 50%", "--batch"),
        ({MODEL: 0.2}, "requests of some models were sent in batches: at 50%", "--batch"),
        (
            {MODEL: 7201.0},
            "in batches, after a while of single calls: at 50%",
            "--batch-after 120m",
        ),
    ],
)
def test_a_report_says_that_requests_were_batched(
    after_s: dict[str, float], words: str, option: str
) -> None:
    text = said(batched(after_s))
    assert words in text
    assert "Not measured, \N{EN DASH}, where a model was asked in batches." in text
    assert "What was answered in a batch counts at the price of batches." in text
    assert f"{MODEL} in a batch costs 50% of these prices" in text
    assert [*reproduction(batched(after_s))][-1][1].endswith(option)
    run = json.loads(render_json(batched(after_s)))["run"]
    assert run["batched"] == sorted(after_s)
    assert [model["batch_share"] for model in run["models"]] == [0.5, 0.5]


def test_other_reports_say_nothing_of_batches() -> None:
    data = batched({})
    assert "batch" not in said(data)
    assert "--batch" not in [*reproduction(data)][-1][1]
