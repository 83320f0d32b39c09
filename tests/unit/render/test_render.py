"""Choosing a format."""

import pytest

from aegish_dist.errors import ReportError
from aegish_dist.render import FORMATS, render
from tests.unit.render.reports import a_model, a_report, a_silent_model


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
