"""Choosing a format."""

import re

import pytest

from aegish_dist.errors import ReportError
from aegish_dist.report.report_formats import FORMATS, IN_SECTIONS, render
from tests.unit.report.reports import a_model, a_report, a_silent_model


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_ends_in_a_line_break(format: str) -> None:
    """A report is whole lines of text."""
    assert render(a_report(), format).endswith("\n")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_can_do_without_verdicts(format: str) -> None:
    """Zero verdicts are no error in any format."""
    text = render(a_report(a_silent_model(), verdicts=0), format)
    assert "acme/silent" in text.replace("<wbr>", "")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_can_be_encoded(format: str) -> None:
    """A lone surrogate in a model id breaks no output file."""
    assert render(a_report(a_model("a\ud800b")), format).encode()


def test_an_unknown_format_is_refused() -> None:
    """The message names what there is."""
    with pytest.raises(
        ReportError, match="unknown report format 'pdf': choose one of table, markdown"
    ):
        render(a_report(), "pdf")


@pytest.mark.parametrize("form", sorted(IN_SECTIONS))
def test_rows_with_their_source_can_be_stacked(form: str) -> None:
    """Every row about a model begins with run, snapshot and rule set."""
    data = a_report(a_model("acme/a"), a_model("acme/b"), name="")
    text = render(
        data, form, sections=("leaderboard", "latency", "cost"), with_source=True, width=400
    )
    rows = [line for line in text.splitlines() if "acme/a" in line]
    assert len(rows) == 3
    for row in rows:
        cells = re.split(r" *[|&] *|  +", row.strip(" |"))
        assert cells[:3] == ["0a1b2c3d4", "12", "aegish-5.3 v1"]
