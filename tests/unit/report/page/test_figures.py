"""Charts as figures of the page."""

import base64

from aegish_dist.report.charts import DrawnChart
from aegish_dist.report.page.figures import figure, figures
from tests.unit.report.page.page_reader import Page
from tests.unit.report.reports import HOSTILE


def a_chart(name: str, words: str = "words") -> DrawnChart:
    """Return a chart with a drawing of one line."""
    return DrawnChart(name, f"Title {name}", words, words, '<svg width="9"><path d="M0 0"/></svg>')


def test_a_chart_is_an_image_with_its_finding_in_words() -> None:
    """The drawing is inert, has the colours of dark screens, and hostile text stays text."""
    page = Page(figure(a_chart("score-by-cost", HOSTILE)))
    assert page.open == []
    assert page.tags == {"figure", "h3", "div", "img", "figcaption"}
    (image,) = page.all("img")
    kind, _, content = str(image["src"]).partition(",")
    assert kind == "data:image/svg+xml;base64"
    drawing = base64.b64decode(content).decode()
    assert drawing.startswith('<svg width="9"><style>')
    assert drawing.endswith('</style><path d="M0 0"/></svg>')
    assert "\u202e" not in str(image["alt"])


def test_a_chart_stands_with_the_table_of_its_numbers() -> None:
    """By its name; where the page has no such section it stands with the first one."""
    names = ("score-by-cost", "latency-split", "reliability", "error-timeline", "score-by-price")
    found = figures([a_chart(name) for name in names], ["leaderboard", "cost", "latency"])
    assert {name: html.count("<figure") for name, html in found.items()} == {
        "leaderboard": 3,
        "cost": 1,
        "latency": 1,
    }
    assert 'id="chart-latency-split"' in found["latency"]
