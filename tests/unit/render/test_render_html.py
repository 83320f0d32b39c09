"""Reports as a page."""

from html.parser import HTMLParser

import pytest

from aegish_dist.core.printable import printable
from aegish_dist.render.html import render_html

DASH = "\N{EN DASH}"

VOID = {"meta"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks the nesting."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], set(), set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def page(hostile_report):
    """The page of a hostile report."""
    return Page(render_html(hostile_report))


def test_the_page_is_well_nested(page):
    """Every element is closed in order."""
    assert page.open == []


def test_hostile_text_stays_text(page, hostile):
    """Name, dataset, model and category are text, and no element comes from them."""
    assert "script" not in page.tags
    assert "".join(page.text).count(printable(hostile)) >= 4


def test_the_page_loads_nothing(page, hostile_report):
    """No element names another resource, and the page forbids itself to load one."""
    assert not page.attributes & {"src", "href", "style", "onload", "onclick"}
    assert not page.tags & {"link", "img", "iframe", "object", "a"}
    text = render_html(hostile_report)
    assert "default-src 'none'" in text
    assert "url(" not in text


def test_marks_and_intervals_are_in_the_cells(report):
    """Value, mark and interval share a cell."""
    text = render_html(report())
    assert '<td>95.7<b class="pass">PASS</b><small>[93.9, 97.0]</small></td>' in text
    assert '<td>94.4<b class="fail">FAIL</b><small>[90.5, 96.8]</small></td>' in text


def test_undefined_is_a_dash(report, silent_model):
    """A model without verdicts has cells of dashes."""
    assert f"<td>{DASH}</td>" * 3 in render_html(report(silent_model()))
