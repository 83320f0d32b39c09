"""Reports as Markdown."""

import re
from html import unescape

import pytest
from markdown_it import MarkdownIt

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.text import printable
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.formats import render
from aegish_dist.report.layout import HEADLINES
from tests.unit.report.reports import HOSTILE, a_model, a_report, a_silent_model

DASH = "\N{EN DASH}"

READER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def as_read(text: str) -> str:
    """Return what a Markdown reader shows, without tags."""
    return unescape(re.sub(r"<[^>]*>", " ", READER.render(text)))


def test_a_row_has_as_many_cells_as_its_heading(hostile_report: ReportData) -> None:
    for data in (a_report(), hostile_report):
        html = READER.render(render(data, "markdown"))
        for table in re.findall(r"<table>.*?</table>", html, re.DOTALL):
            sizes = [len(re.findall(r"<t[hd][ >]", row)) for row in table.split("</tr>")[:-1]]
            assert len(set(sizes)) == 1


def test_hostile_text_is_read_as_it_stands(hostile_report: ReportData) -> None:
    text = render(hostile_report, "markdown")
    read = " ".join(as_read(text).split())
    assert read.count(" ".join(printable(HOSTILE).split())) >= 4
    assert "<script" not in text
    html = READER.render(text)
    assert not re.findall(r"<(?:a|code|em|s|script|img)\b", html)


LINKS = re.compile(r"(?:https?|ftp)://\w|www\.\w|[\w.+-]@\w|@\w", re.IGNORECASE)
"""Extended autolinks and mentions, of which GitHub makes links."""


@pytest.mark.parametrize(
    "address",
    [
        *("https://example.com/x", "HTTP://example.com", "ftp://example.com", "www.example.com"),
        *("WWW.example.com", "me@example.com", "mailto:me@example.com", "xmpp:me@example.com/x"),
        *("@maintainers", "(https://a_b.example.com)"),
    ],
)
def test_bare_addresses_are_no_links(address: str) -> None:
    failure = FailureCount("m", ErrorClass.AUTH, 1, 1, message=f"see {address} now")
    text = render(a_report(a_model("m"), name=address, failures=(failure,)), "markdown")
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    shown = [piece for token in tokens for piece in token.children or ()]
    assert [p.content for p in shown if p.type == "text" and LINKS.search(p.content)] == []
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert f"see {address} now" in unescape(re.sub(r"<[^>]*>", "", html))


def test_the_leaderboard_is_a_table() -> None:
    text = render(a_report(a_model(), a_silent_model()), "markdown")
    assert (
        "| 1 | acme/guard-1 | 95.7 PASS<br>[93.9, 97.0] | 94.4 UNDECIDED<br>[90.5, 96.8] |" in text
    )
    silent = [
        DASH,
        "acme/silent<br>no score: no verdict yet",
        *[DASH] * len(HEADLINES),
        DASH,
        "0.0",
        DASH,
        DASH,
    ]
    assert f"| {' | '.join(silent)} |" in text
