"""The report from disk: it asks for nothing, says nothing, and shows hostile text as text."""

import pytest
from playwright.sync_api import Page

from aegish_dist.core.text import printable
from tests.browser.conftest import Report, Visit
from tests.browser.recorded_run import MODELS

pytestmark = pytest.mark.long

FOREIGN = (
    "img:not([src^='data:']), iframe, object, embed, base, link, #injected, [href^='javascript:' i]"
)


def test_no_foreign_text_becomes_an_element(page: Page, report: Report) -> None:
    names = "[...document.querySelectorAll('*')].flatMap(each => each.getAttributeNames())"
    for command in {each["sample_id"] for each in report.listed if "hostile" in each["dataset"]}:
        page.evaluate("address => { window.location.hash = address }", f"#commands?open={command}")
        page.locator(f"#grid-detail[data-shown='{command}']").wait_for()
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert page.locator(FOREIGN).count() == 0
        assert not page.evaluate(f"{names}.filter(name => name.startsWith('on'))")


def test_what_is_loaded_is_the_file_alone(visit: Visit) -> None:
    """No request, no message, no dialog: `visit` fails otherwise."""
    assert visit.open().locator("h1").inner_text()


@pytest.mark.parametrize("context_options", [{"java_script_enabled": False}])
def test_without_scripts_the_tables_are_there(visit: Visit) -> None:
    visit.page.goto(visit.report.url)
    names = visit.page.locator("#leaderboard tbody th").all_inner_texts()
    assert {name.split("\n")[0] for name in names} == {printable(model) for model in MODELS}
    assert "JavaScript" in visit.page.locator("body").inner_text()
