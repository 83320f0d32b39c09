"""Reports on runs that were asked in batches: at their price, and without a measured latency."""

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest

from aegish_dist.report.commands import commands
from aegish_dist.report.data import ReportData
from aegish_dist.report.json import render_json
from aegish_dist.report.sections import build_report
from tests.unit.report.reports import a_model, a_report

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
    """The head, the notes on time and money, the prices, and the command that asks once more."""
    text = said(batched(after_s))
    assert words in text
    assert "Not measured, \N{EN DASH}, where a model was asked in batches." in text
    assert "What was answered in a batch counts at the price of batches." in text
    assert f"{MODEL} in a batch costs 50% of these prices" in text
    assert commands(batched(after_s))[-1].endswith(option)


def test_other_reports_say_nothing_of_batches() -> None:
    """A provider's price for batches alone is no reason to mention them."""
    data = batched({})
    assert "batch" not in said(data)
    assert "--batch" not in commands(data)[-1]


def test_the_document_names_batched_models() -> None:
    """By id, with the share of the price of each model."""
    run = json.loads(render_json(batched({MODEL: 0.0})))["run"]
    assert run["batched"] == [MODEL]
    assert [model["batch_share"] for model in run["models"]] == [0.5, 0.5]
