"""Plots in pages: their colours come from the page, their text is text."""

import re
import sys
from pathlib import Path

import pytest

import aegish_dist.report.page
from aegish_dist.report.charts.drawing import page_charts
from aegish_dist.report.data import ReportData
from tests.unit.report.charts.drawings import Drawing
from tests.unit.report.charts.models import a_spread_report

STYLE = Path(aegish_dist.report.page.__file__).with_name("assets") / "charts.css"
PROPERTY = re.compile(r"--chart-[a-z0-9]+")


def test_a_page_has_five_plots_without_styles_of_their_own() -> None:
    """Every colour is a property with a fallback, and the style sheet has one for dark screens."""
    charts = page_charts(a_spread_report(9))
    names = "score-by-cost score-by-latency reliability latency-split error-timeline"
    assert [chart.name for chart in charts] == names.split()
    known = set(PROPERTY.findall(STYLE.read_text()))
    for chart in charts:
        assert set(PROPERTY.findall(chart.svg)) <= known
        assert not re.search(r'"#|rgb\(', chart.svg)
        seen = Drawing(chart.svg)
        assert seen.attributes.isdisjoint({"style", "href", "xlink:href", "onload", "id"})
        assert not {"script", "style", "image", "a", "rect"} & set(seen.tags)
        assert chart.title not in [each.text for each in seen.texts]
        assert chart.caption
        assert chart.description


def test_names_that_look_like_attributes_stay_as_they_are(hostile_report: ReportData) -> None:
    """Colours and numbers are replaced in tags alone, and markup is text."""
    for chart in page_charts(hostile_report):
        assert "script" not in Drawing(chart.svg).tags
    name = 'acme/fill="#1c2024",12.3456 <b>'
    renamed = a_spread_report(1)
    renamed.snapshot.document["models"][0]["model"] = name
    renamed.snapshot.document["ranking"][0]["model"] = name
    texts = [each.text for each in Drawing(page_charts(renamed)[0].svg).texts]
    assert 'fill="#1c2024",12.3456 <b>' in texts


def test_without_the_package_a_page_has_no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is written all the same."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert page_charts(a_spread_report(1)) == []
