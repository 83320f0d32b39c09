"""Reports as a page, with its figures, prompt and commands."""

import base64
import hashlib
import re

import pytest
from msgspec.structs import replace

from aegish_dist.core.run import Prompt
from aegish_dist.core.text import printable
from aegish_dist.report.charts.vega_lite import Chart
from aegish_dist.report.data import ReportData
from aegish_dist.report.page import render_page
from aegish_dist.report.page.page import figure
from aegish_dist.report.provenance import reproduction
from tests.unit.report.page.page_reader import Page
from tests.unit.report.reports import HOSTILE, a_model, a_report, a_silent_model

DASH = "\N{EN DASH}"


def render_html(data: ReportData) -> str:
    return "".join(render_page(data))


@pytest.fixture
def page(hostile_report: ReportData) -> Page:
    return Page(render_html(hostile_report))


def test_hostile_text_stays_text(page: Page) -> None:
    """Name, dataset, model and category are text, and no element comes from them."""
    assert page.open == []
    assert len(page.all("script")) == 1
    assert "".join(page.text).count(printable(HOSTILE)) >= 4


def test_the_page_loads_nothing(page: Page, hostile_report: ReportData) -> None:
    assert not page.attributes & {"style", "onload", "onclick"}
    assert not page.tags & {"link", "iframe", "object"}
    drawn = Page(render_html(a_report(a_model(), a_model("acme/2", cost={"per_1000_usd": 9}))))
    images = {str(found["src"]).partition(",")[0] for _, found in drawn.elements if "src" in found}
    assert images == {"data:image/svg+xml;base64"}
    assert {str(link["href"])[0] for link in page.all("a")} == {"#"}
    text = render_html(hostile_report)
    assert "default-src 'none'" in text
    assert "url(" not in text


def test_marks_intervals_remarks_and_dashes_are_in_the_cells(failed_report: ReportData) -> None:
    text = render_html(failed_report)
    assert '>95.7<b class="pass">PASS</b>\n[93.9, 97.0]<svg class="bar"' in text
    assert '>94.4<b class="undecided">UNDECIDED</b>\n[90.5, 96.8]<svg class="bar"' in text
    assert "<li>acme/guard-1 (parked): no such key</li>" in text


def test_what_has_no_content_is_left_out() -> None:
    silent = Page(render_html(a_report(a_silent_model())))
    assert {"latency", "cost-and-tokens"}.isdisjoint(
        str(each.get("id")) for each in silent.all("section")
    )
    known = {**a_model(), "cost": {}}
    known["metrics"] = {**known["metrics"], "coverage": {"value": 1.0}}
    html = render_html(a_report(known))
    head = html[html.index("<thead") : html.index("</thead")]
    assert "p50" in head
    assert not {"cost/1,000", "coverage"} & {*re.findall("[a-z/0-9,]+", head)}
    assert "coverage is 100 %" in html


@pytest.fixture
def tables(fourteen: ReportData) -> Page:
    return Page(render_html(fourteen))


def test_every_table_has_a_name_and_headings(tables: Page) -> None:
    assert len(tables.all("caption")) == len(tables.all("table")) >= 6
    scopes = [heading["scope"] for heading in tables.all("th")]
    rows = len(tables.all("tr")) - len(tables.all("thead"))
    assert scopes.count("row") == rows
    assert set(scopes) == {"row", "col"}


def test_what_may_scroll_is_reached_by_keyboard(tables: Page) -> None:
    regions = [each for each in tables.all("div") if each.get("class") == "scroll"]
    assert len(regions) == len(tables.all("table"))
    assert {(each["role"], each["tabindex"]) for each in regions} == {("region", "0")}
    assert regions[0]["aria-label"] == "Leaderboard"


def test_cards_of_narrow_screens_label_every_value(tables: Page) -> None:
    labels = [cell["data-label"] for cell in tables.all("td") if "data-label" in cell]
    assert labels == 14 * [
        "#",
        "aegish score",
        "DR",
        "HA",
        "stderr",
        "coverage",
        "cost/1,000",
        "p50",
    ]
    roles = {cell["role"] for cell in tables.all("td")}
    assert roles == {"cell"}  # what shows a row as a card takes its meaning away


def test_long_ids_break_between_their_words() -> None:
    """A place to break follows the separators at which browsers do not break by themselves."""
    text = render_html(a_report(a_model("hub/org_x/Guard-7B.v2:host")))
    assert "hub/<wbr>org_<wbr>x/<wbr>Guard-7B.v2:<wbr>host" in text
    assert "overflow-wrap: break-word" in text


def test_quotes_end_no_attribute() -> None:
    rate = a_model()["categories"]["shell"]
    name = """x" onmouseover="alert(1)' y"""
    page = Page(render_html(a_report(a_model(categories={name: rate}))))
    assert "onmouseover" not in page.attributes
    assert name in "".join(page.text)


def test_the_policy_admits_the_style_and_the_script_and_nothing_else() -> None:
    text = render_html(a_report())
    assert text == render_html(a_report())
    assert text.index("Content-Security-Policy") < text.index("<style")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_every_link_of_the_navigation_has_its_target(tables: Page) -> None:
    ids = [str(attributes["id"]) for _, attributes in tables.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(link["href"])[1:] for link in tables.all("a")} <= set(ids)


def a_chart(name: str, words: str = "words") -> tuple[Chart, str]:
    chart = Chart(name, f"Title {name}", words, words, {}, 0, 9)
    return chart, '<svg width="9"><path d="M0 0"/></svg>'


def test_a_chart_is_an_image_with_its_finding_in_words() -> None:
    page = Page(figure(*a_chart("score-by-cost", HOSTILE)))
    assert page.open == []
    assert page.tags == {"figure", "h3", "div", "img", "figcaption"}
    (image,) = page.all("img")
    kind, _, content = str(image["src"]).partition(",")
    assert kind == "data:image/svg+xml;base64"
    drawing = base64.b64decode(content).decode()
    assert drawing.startswith('<svg width="9"><style>')
    assert drawing.endswith('</style><path d="M0 0"/></svg>')
    assert "\u202e" not in str(image["alt"])


def test_the_chart_of_prices_stands_beside_the_summary_and_curves_with_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no section has their numbers, curves stand below the leaderboard."""
    charts = [a_chart(name) for name in ("score-by-cost", "roc", "systems")]
    monkeypatch.setattr("aegish_dist.report.page.page.page_charts", lambda _: charts)
    html = render_html(a_report())
    parts = "chart-score-by-cost leaderboard chart-roc chart-systems detection-by-category"
    places = [html.index(f'id="{each}"') for each in parts.split()]
    assert places == sorted(places)
    assert html.count("<figure") == 3


def test_each_command_stands_once_in_a_box() -> None:
    data = a_report()
    html = "".join(render_page(data))
    boxes = re.findall(r'<pre class="copied" tabindex="0">(.*?)</pre>', html)
    assert boxes == [command for _, command in reproduction(data)]
    assert boxes[0] == "aegish-dist report --run-id 0a1b2c3d4 --snapshot 12"
    assert html.count(boxes[0]) == 1


def test_the_prompt_is_folded_and_whole() -> None:
    key = "sk-" + "a1B2" * 10
    data = a_report()
    prompt = Prompt("own", f"Line <b>one</b>\nline two {key}", "Judge {command}")
    html = "".join(render_page(replace(data, run=replace(data.run, prompt=prompt))))
    assert "<pre>Line &lt;b&gt;one&lt;/b&gt;\nline two " in html
    assert "<pre>Judge {command}</pre>" in html
    assert f"Prompt own, fingerprint {prompt.fingerprint}</summary>" in html
    assert key not in html


def test_short_names_of_metrics_are_spelled_out_beside_the_leaderboard() -> None:
    html = render_html(a_report(a_model("a"), a_model("b")))
    assert '<th scope="col" role="columnheader" title="malicious detection rate">DR' in html
    before, after = html.split('id="legend"')
    assert "HA: harmless acceptance rate." in before
    assert "1=" not in after
