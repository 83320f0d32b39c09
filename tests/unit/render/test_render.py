"""Choosing a format."""

import pytest

from aegish_dist.errors import ReportError
from aegish_dist.render import FORMATS, render


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_ends_in_a_line_break(report, format):
    """A report is whole lines of text."""
    assert render(report(), format).endswith("\n")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_can_do_without_verdicts(report, silent_model, format):
    """Zero verdicts are no error in any format."""
    text = render(report(silent_model(), verdicts=0), format)
    assert "acme/silent" in text.replace("<wbr>", "")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_can_be_encoded(report, model, format):
    """A lone surrogate in a model id breaks no output file."""
    assert render(report(model("a\ud800b")), format).encode()


def test_an_unknown_format_is_refused(report):
    """The message names what there is."""
    with pytest.raises(ReportError, match="unknown report format 'pdf': choose one of table, json"):
        render(report(), "pdf")
