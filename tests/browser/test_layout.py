"""The report on a phone, on a desk and on paper: nothing is cut off, nothing is out of reach."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from aegish_dist.report.page import render_page
from tests.browser.conftest import Visit
from tests.browser.recorded_run import MISSED_BY_ALL, MODELS
from tests.unit.report.charts.models import a_spread_report

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
PAPER = {"viewport": {"width": 1039, "height": 710}}
"""A4 across between margins of 11 mm, in CSS pixels."""

OVERFLOWING = """() => [...document.querySelectorAll("main *, nav *")].filter((each) => {
  const box = each.getBoundingClientRect();
  const scrolls = each.closest("nav ul, .scroll, .drawing, #grid-box, pre");
  const seen = each.checkVisibility({ visibilityProperty: true }) && box.width > 1 && box.height > 1;
  return seen && (scrolls === null || scrolls === each)
    && (box.right > window.innerWidth + 1 || box.left < -1);
}).map((each) => `${each.tagName} ${each.className} ${each.textContent.slice(0, 60)}`)"""
"""Elements that reach beyond the window, and are in no region that scrolls by itself."""

CUT = """() => [...document.querySelectorAll("main table, .drawing img, #grid")].filter((each) => {
  const region = each.closest(".scroll, .drawing, #grid-box") || document.documentElement;
  if (region.scrollWidth <= region.clientWidth + 1) return false;
  const focusable = region.tabIndex === 0 || region.querySelector("[tabindex='0']") !== null;
  const named = region.getAttribute("aria-label") || each.getAttribute("aria-label");
  return !(focusable && named);
}).map((each) => each.caption ? each.caption.textContent : each.id || each.alt)"""
"""Tables and charts wider than their region, where keys could not scroll it or nothing names it."""

UNMARKED = """() => [...document.querySelectorAll(".scroll, .drawing, #grid-box")].filter((each) =>
  each.checkVisibility() && each.scrollWidth > each.clientWidth + 1 && !("more" in each.dataset))
  .map((each) => each.id || each.textContent.slice(0, 60))"""
"""Regions that scroll, at their left end, and fade out at no right one."""


ASTRAY = """() => [...document.querySelectorAll("main tbody tr")].filter((row) => {
  const heads = row.closest("table").querySelectorAll("thead tr:last-child > *");
  return [...row.children].some((cell, place) => {
    const [box, head] = [cell, heads[place]].map((each) => each.getBoundingClientRect());
    return cell.colSpan === 1 && box.width > 0 && Math.abs(box.left - head.left) > 1;
  });
}).map((each) => each.textContent.slice(0, 60))"""
"""Rows of which a cell does not stand below its heading."""


@pytest.mark.parametrize("context_options", [PHONE])
def test_on_a_phone_nothing_scrolls_sideways_and_the_score_is_seen(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate(UNMARKED) == []
    scores = page.locator("#leaderboard tbody tr td.score:nth-of-type(2)")
    boxes = [score.bounding_box() for score in scores.all()]
    assert len(boxes) == len(MODELS)
    for box in boxes:
        assert box is not None
        assert box["x"] >= 0
        assert 0 < box["width"] <= 390 - box["x"]
        assert box["height"] > 10


@pytest.mark.parametrize("width", [1280, 1024])
def test_on_a_desk_no_column_is_cut(visit: Visit, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 900})
    page = visit.open()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(CUT) == []
    assert page.evaluate(ASTRAY) == []
    names = page.locator("#grid .grid-head .grid-cell span")
    assert len(set(names.all_inner_texts())) == len(MODELS)
    cut = "all => all.filter((each) => each.scrollHeight > each.clientHeight + 1).length"
    assert names.evaluate_all(cut) == 0


@pytest.mark.parametrize("context_options", [PAPER])
def test_on_paper_nothing_is_wider_than_the_page_and_the_worst_commands_are_there(
    page: Page,
) -> None:
    page.emulate_media(media="print")
    assert page.evaluate(OVERFLOWING.replace(".scroll, .drawing", ".none")) == []
    for unseen in ("nav", "#grid-view", "#answers", "#leaderboard .tools"):
        assert not page.locator(unseen).first.is_visible(), unseen
    assert page.locator("#commands tbody th").first.inner_text() == MISSED_BY_ALL
    assert page.locator(".facts dl").is_visible()
    assert "DR" in page.locator("#leaderboard thead").inner_text()
    # With boxes of their own in it a heading would not be repeated on the next page.
    assert page.locator("thead button").first.evaluate("e => getComputedStyle(e).display") == (
        "contents"
    )
    assert page.pdf(format="A4").startswith(b"%PDF-")


@pytest.mark.long
def test_twenty_models_print_on_twelve_pages_and_ten_take_twelve_screens_of_a_phone(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "twenty.html"
    path.write_text("".join(render_page(a_spread_report(20))), encoding="utf-8")
    page = browser.new_page(viewport={"width": 768, "height": 1024})
    page.goto(path.as_uri())
    page.locator("#leaderboard .scroll[data-more]").evaluate(
        "region => region.scrollTo(region.scrollWidth, 0)"
    )
    page.locator("#leaderboard .scroll:not([data-more])").wait_for()
    content = page.pdf(prefer_css_page_size=True, print_background=True)
    path.write_text("".join(render_page(a_spread_report(10))), encoding="utf-8")
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    assert page.evaluate("document.documentElement.scrollHeight") <= 12 * 844
    page.close()
    assert len(re.findall(rb"/Type /Page\b", content)) <= 12
    assert len(content) <= 3_000_000


def luminance(color: str) -> float:
    """Return the part of white in a colour such as `rgb(1, 2, 3)`, roughly."""
    parts: list[Any] = color.removeprefix("rgba").removeprefix("rgb").strip("()").split(",")
    return sum(float(part) for part in parts[:3]) / 765


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_colours_of_the_system(visit: Visit, scheme: Any) -> None:
    visit.page.emulate_media(color_scheme=scheme)
    page = visit.open()
    page.locator("#grid [role=rowheader]").first.click()
    page.locator("#grid-detail[data-shown]").wait_for()
    for selector in ("body", "#grid-detail"):
        ink, ground = page.locator(selector).evaluate(
            "each => [getComputedStyle(each).color, getComputedStyle(each).backgroundColor]"
        )
        assert (luminance(ink) > luminance(ground)) == (scheme == "dark"), (selector, ink, ground)
        assert abs(luminance(ink) - luminance(ground)) > 0.6
