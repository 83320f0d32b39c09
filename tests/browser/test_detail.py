"""A command in detail: everything that the store has of its verdicts, character by character."""

from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from aegish_dist.core.text import printable, printable_lines
from tests.browser.conftest import Report
from tests.browser.recorded_run import (
    BLOCKS_ALL,
    CALL_ERROR,
    EPOCHS,
    HOSTILE_COMMANDS,
    HOSTILE_MODEL,
    LONG_COMMAND,
    MALICIOUS,
    MEGABYTE,
    MODELS,
    UNREACHABLE,
)

pytestmark = pytest.mark.long

FACTS = """list => Object.fromEntries([...list.querySelectorAll("dt")].map((term) =>
  [term.textContent, term.nextElementSibling.textContent]))"""
PARTS = ("latency_ms", "queue_ms", "limiter_ms", "backoff_ms")
TEXT_FACTS = ("Returned model", "Upstream", "Request id", "Worker", "Stop reason")
TEXTS = """model => [...model.querySelectorAll("pre")].map((text) =>
  [text.getAttribute("aria-label"), text.textContent])"""


UNFOLD = """() => {
  const detail = document.getElementById("grid-detail");
  for (const each of detail.querySelectorAll("details")) each.open = true;
}"""
SHOW_ALL = """() => {
  for (const each of document.querySelectorAll("#grid-detail .detail-all")) each.click();
}"""


def open_detail(page: Page, report: Report, command: str) -> None:
    """Open the detail of a command by its address, with every model unfolded and every text whole."""
    (found,) = {each["sample_id"] for each in report.listed if each["command"] == command}
    page.evaluate("address => { window.location.hash = address }", f"#commands?open={found}")
    page.locator(f"#grid-detail[data-shown='{found}']").wait_for()
    page.evaluate(UNFOLD)
    page.locator("#grid-detail details").last.locator("p, dl").first.wait_for()
    page.evaluate(SHOW_ALL)


def of_model(page: Page, model: str) -> Locator:
    names = page.locator("#grid-detail details .detail-name").all_text_contents()
    return page.locator("#grid-detail details").nth(names.index(printable(model)))


def stored(report: Report, command: str, model: str) -> list[dict[str, Any]]:
    """Return the exported verdicts of a model about a command, by epoch."""
    chosen = [e for e in report.exported if (e["command"], e["model"]) == (command, model)]
    return sorted(chosen, key=lambda each: int(each["epoch"]))


def texts_of(report: Report, command: str, model: str) -> list[list[str]]:
    """Return reasons and completions as they are shown: what is invisible is escaped."""
    found = []
    for each in stored(report, command, model):
        if each["reason"] is not None:
            found.append(["Reason", printable_lines(each["reason"])])
        if each["completion"] is not None:
            found.append(["Completion", printable_lines(each["completion"]) or "(empty)"])
    return found


def test_texts_are_those_of_the_store(page: Page, report: Report) -> None:
    for command in (*HOSTILE_COMMANDS, MALICIOUS[5]):
        open_detail(page, report, command)
        shown = page.locator("#grid-detail pre").first.evaluate("each => each.textContent")
        assert shown == printable_lines(command)
        for model in MODELS:
            if (model, command) == (BLOCKS_ALL, LONG_COMMAND):
                continue
            assert of_model(page, model).evaluate(TEXTS) == texts_of(report, command, model)


@pytest.mark.parametrize("command", [HOSTILE_COMMANDS[0], MALICIOUS[5]])
def test_numbers_are_those_of_the_store(page: Page, report: Report, command: str) -> None:
    open_detail(page, report, command)
    for model in (MODELS[0], HOSTILE_MODEL):
        lists = of_model(page, model).locator("dl").all()
        assert len(lists) == EPOCHS
        for shown, each in zip(lists, stored(report, command, model), strict=True):
            facts = shown.evaluate(FACTS)
            # Errors have the words of the tables, such as `format`.
            word = each["outcome"]
            assert facts["Outcome"].startswith(
                word.removesuffix("_ERROR").lower() if "_" in word else word
            )
            assert facts["Tokens"] == (
                f"{each['input_tokens']} in, {each['cache_read_tokens']} from cache, "
                f"{each['output_tokens']} out, {each['reasoning_tokens']} reasoning"
            )
            assert float(facts["Cost"].removesuffix(" USD")) == float(each["cost_usd"])
            assert facts["Attempts"] == str(each["attempts"])
            times = [f"{part.split('_')[0]} {round(each[part])} ms" for part in PARTS]
            assert facts["Time"] == ", ".join(times).replace("latency", "service")
            for name in TEXT_FACTS:
                assert facts[name] == printable(each[name.lower().replace(" ", "_")])


def test_failed_attempts_stand_one_by_one(page: Page, report: Report) -> None:
    open_detail(page, report, MALICIOUS[0])
    for shown in of_model(page, UNREACHABLE).locator("dl").all():
        facts = shown.evaluate(FACTS)
        assert facts["Attempts"] == "3"
        assert facts["No answer"] == "overloaded"
        for attempt in (1, 2, 3):
            words = facts[f"Failed attempt {attempt}"]
            assert words.startswith("overloaded, status 529, retry after 0.5 s, 2026-03-01 12:00:0")
            assert words.endswith(printable(CALL_ERROR))


def test_a_megabyte_of_one_word_is_cut_and_says_so(page: Page, report: Report) -> None:
    open_detail(page, report, LONG_COMMAND)
    model = of_model(page, BLOCKS_ALL)
    (name, text), *_ = model.evaluate(TEXTS)
    assert name == "Completion"
    assert 10_000 < len(text) < len(MEGABYTE)
    assert MEGABYTE.startswith(text)
    assert "The completion has 1,000,000 characters" in model.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_stepping_goes_through_the_commands_in_view(page: Page, report: Report) -> None:
    open_detail(page, report, MALICIOUS[5])
    first = page.url
    page.locator("#grid-next").click()
    page.wait_for_url(lambda url: url != first)
    page.locator("#grid-previous").click()
    page.wait_for_url(first)
