"""The report from disk: it asks for nothing, says nothing, and shows hostile text as text."""

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Report, Visit
from tests.browser.recorded_run import MODELS, UNREACHABLE


def test_it_has_a_policy_that_allows_nothing_from_outside(report: Report) -> None:
    """The first element that could load something comes after it."""
    text = report.path.read_text(encoding="utf-8")
    policy = text.index('http-equiv="Content-Security-Policy"')
    assert "default-src 'none'" in text[policy : policy + 400]
    assert policy < min(text.index(f"<{name}") for name in ("style", "body"))


def test_no_foreign_text_becomes_an_element(page: Page) -> None:
    """Nothing has the id, the source or the handler that hostile names and commands ask for."""
    assert page.locator("#injected").count() == 0
    assert page.locator("img:not([src^='data:']), iframe, object, embed, base").count() == 0
    assert page.locator("a[href^='javascript:' i]").count() == 0
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert not page.evaluate(f"{handlers}.filter(name => name.startsWith('on'))")


def test_what_is_loaded_is_the_file_alone(visit: Visit) -> None:
    """No request, no message, no dialog; `visit` fails otherwise. The page is there."""
    page = visit.open()
    assert page.locator("h1").inner_text()


@pytest.mark.parametrize("context_options", [{"java_script_enabled": False}])
def test_without_scripts_the_tables_are_there(visit: Visit) -> None:
    """Every model has its row."""
    text = visit.open().locator("body").inner_text()
    assert all(model in text for model in MODELS[:5])
    assert UNREACHABLE in text
