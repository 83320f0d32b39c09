"""axe finds nothing serious: names, roles, contrast, order."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import Visit

pytestmark = pytest.mark.long

SERIOUS = {"serious", "critical"}


def findings(page: Page) -> list[tuple[str, list[tuple[str, str]]]]:
    violations: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        (each["id"], [(node["html"][:160], node["failureSummary"]) for node in each["nodes"][:3]])
        for each in violations
        if each["impact"] in SERIOUS
    ]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_the_page(visit: Visit, scheme: Any, width: int) -> None:
    visit.page.emulate_media(color_scheme=scheme)
    visit.page.set_viewport_size({"width": width, "height": 844})
    assert findings(visit.open()) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_open_detail(visit: Visit, scheme: Any) -> None:
    visit.page.emulate_media(color_scheme=scheme)
    page = visit.open("#commands")
    page.locator("#grid [role=gridcell]").first.click()
    page.locator("#grid-detail[data-shown]").wait_for()
    assert findings(page) == []


@pytest.mark.parametrize(("epochs", "heading"), [(1, "H4"), (3, "H5")])
def test_headings_of_texts_follow_those_above_them(page: Page, epochs: int, heading: str) -> None:
    """A model stands below a heading of level 3; those of its epochs are there if it has several."""
    tags = page.evaluate(
        """epochs => Array.from(verdictElements({ epochs, outcomes: [], labels: { "-1": "WARN" },
             cells: new Proxy({}, { get: () => [UNKNOWN] }) }, 0, { completion: "text" }),
             (element) => element.tagName)""",
        epochs,
    )
    assert tags == ["DL", heading, "PRE"]
