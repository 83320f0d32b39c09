"""The section on why models failed."""

from dataclasses import replace

import pytest

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.entries import ranked_entries
from aegish_dist.report.layout import Section
from aegish_dist.report.operations import MESSAGE_CHARACTERS, failures
from aegish_dist.report.report_formats import FORMATS, render
from tests.defined import defined
from tests.unit.report.reports import a_model, a_report

DASH = "\N{EN DASH}"


def section(data: ReportData) -> Section:
    return defined(failures(data, ranked_entries(data.snapshot.document)))


def test_nothing_is_said_where_nothing_failed() -> None:
    """A run without a failed call has no such section."""
    data = a_report()
    assert failures(data, ranked_entries(data.snapshot.document)) is None


def test_reasons_have_counts(failed_report: ReportData) -> None:
    """A row tells reason, HTTP statuses, lost verdicts, failed attempts and those tried again."""
    assert [[cell.text for cell in row] for row in section(failed_report).rows] == [
        ["acme/guard-1", "auth", "401, 403", "6", "6", "0"],
        ["acme/guard-1", "rate limit", "429", "0", "40", "40"],
    ]


def test_words_and_halts_stand_below(failed_report: ReportData) -> None:
    """The newest message of each reason, and why the model is not called any more."""
    assert section(failed_report).remarks == (
        "acme/guard-1 (parked): no such key",
        "acme/guard-1 (auth, 2026-11-20 14:20 UTC): no such key",
    )


def test_a_reason_without_attempts_is_shown() -> None:
    """Logs that were imported may hold time limits without an attempt that failed."""
    data = a_report(failures=(FailureCount("acme/guard-1", ErrorClass.DEADLINE, 292, 0),))
    (row,) = section(data).rows
    assert [cell.text for cell in row] == ["acme/guard-1", "deadline", DASH, "292", DASH, "0"]


def test_long_messages_are_cut(failed_report: ReportData) -> None:
    """A page of HTML as an error message does not fill the report."""
    long = replace(failed_report.failures[0], message="x" * 5000)
    words = section(replace(failed_report, failures=(long,))).remarks[-1]
    assert words.endswith("xxx\N{HORIZONTAL ELLIPSIS}")
    assert words.count("x") == MESSAGE_CHARACTERS


def test_models_stand_in_the_order_of_the_ranking() -> None:
    """The failures of a model are found where the model is in the tables above."""
    kinds = [FailureCount(name, ErrorClass.SERVER, 1, 1) for name in ("b", "a", "c")]
    data = a_report(a_model("c"), a_model("b"), a_model("a"), failures=kinds)
    assert [row[0].text for row in section(data).rows] == ["c", "b", "a"]


@pytest.mark.parametrize("form", sorted({*FORMATS} - {"reference-json"}))
def test_every_format_tells_the_reason(failed_report: ReportData, form: str) -> None:
    """The provider's words are in every report; only the reference's form has no place for them."""
    assert "no such key" in render(failed_report, form).replace("\\", "")
