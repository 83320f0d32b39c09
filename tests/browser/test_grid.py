"""The grid of commands: filters, order, history, addresses and keys."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Report, Visit
from tests.browser.recorded_run import (
    CATEGORIES,
    FILTERS,
    MALICIOUS,
    MISSED_BY_ALL,
    MISSED_BY_NONE,
)

pytestmark = pytest.mark.long

Verdict = dict[str, Any]


def shown(page: Page) -> set[str]:
    """Return the ids of the commands that the grid shows; all of them fit into its window."""
    page.locator("#grid-box").evaluate(
        "box => { box.style.maxHeight = box.style.height = '3000px' }"
    )
    rows = page.locator("#grid [role=row][data-command]")
    count = int(page.locator("#grid").get_attribute("aria-rowcount") or 0) - 1
    page.wait_for_function(
        "count => document.querySelectorAll('#grid [role=row][data-command]').length === count",
        arg=count,
    )
    return set(rows.evaluate_all("rows => rows.map(row => row.dataset.command)"))


def in_order(page: Page, fact: str) -> list[str]:
    """Return a fact of each row that the grid shows, from the top."""
    found: list[str] = page.locator("#grid [role=row][data-command]").evaluate_all(
        f"rows => rows.sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map(row => {fact})"
    )
    return found


def wait_for_detail(page: Page) -> None:
    page.locator("#grid-detail[data-shown]").wait_for()


def majorities(verdicts: list[Verdict]) -> Iterator[tuple[str, bool]]:
    """Yield each model that has scored epochs, and whether most of them are wrong.

    A model that is right as often as wrong is neither.
    """
    by_model = defaultdict(list)
    for each in verdicts:
        if each["correct"] is not None:
            by_model[each["model"]].append(each["correct"])
    for model, correct in by_model.items():
        if 2 * sum(correct) != len(correct):
            yield model, 2 * sum(correct) < len(correct)


@pytest.fixture
def by_command(report: Report) -> dict[str, list[Verdict]]:
    found = defaultdict(list)
    for each in report.listed:
        found[each["sample_id"]].append(each)
    return found


def choose(page: Page, fields: dict[str, str]) -> None:
    page.locator(".grid-more").evaluate("each => { each.open = true }")
    for name, value in fields.items():
        field = page.locator(f"#grid-filters [name={name}]")
        match field.evaluate("each => each.type"):
            case "checkbox":
                field.check()
            case "search":
                field.fill(value)
            case _:
                field.select_option(value)


def test_the_most_disputed_commands_come_first(
    page: Page, by_command: dict[str, list[Verdict]]
) -> None:
    shown(page)
    rows = in_order(page, "row.dataset.command")
    sides = [[wrong for _, wrong in majorities(by_command[row])] for row in rows]
    minority = [min(side.count(True), side.count(False)) for side in sides]
    assert minority == sorted(minority, reverse=True)
    assert minority[0] > minority[-1]


def test_filters_show_what_the_lists_of_verdicts_have(
    page: Page, report: Report, by_command: dict[str, list[Verdict]]
) -> None:
    """No list is that of what any model missed, or none, or of what has an answer without a score."""
    every = set(by_command)
    assert shown(page) == every
    wrong = {
        command
        for command, verdicts in by_command.items()
        if any(is_wrong for _, is_wrong in majorities(verdicts))
    }
    unscored = {each["sample_id"] for each in report.listed if each["correct"] is None}
    expected = [(FILTERS[options], listed) for options, listed in report.filtered.items()]
    expected += [({"missed": "any"}, wrong), ({"missed": "none"}, every - wrong)]
    expected.append(({"unscored": "1"}, unscored))
    for fields, commands in expected:
        assert commands not in (set(), every), fields
        choose(page, fields)
        assert shown(page) == commands, fields
        assert (page.locator("#grid-count").text_content() or "").startswith(f"{len(commands)} of ")
        page.locator("#grid-clear").click()
        assert shown(page) == every


@pytest.mark.parametrize(("missed", "only"), [("all", MISSED_BY_ALL), ("none", MISSED_BY_NONE)])
def test_the_command_that_all_models_get_wrong_or_right(
    page: Page, by_command: dict[str, list[Verdict]], missed: str, only: str
) -> None:
    """By hand: every model that was asked allows a malicious one, and a harmless one."""
    choose(page, {"missed": missed})
    (command,) = shown(page)
    assert by_command[command][0]["command"] == only


def test_back_and_forward_restore_what_was_seen(
    visit: Visit, by_command: dict[str, list[Verdict]]
) -> None:
    page = visit.open("#commands")
    every = shown(page)
    choose(page, {"target": "malicious"})
    malicious = shown(page)
    choose(page, {"flipping": "1"})
    flips = shown(page)
    assert every > malicious > flips
    page.locator("#grid [role=rowheader]").first.click()
    dialog = page.locator("#grid-detail")
    dialog.wait_for()
    page.go_back()
    dialog.wait_for(state="hidden")
    assert shown(page) == flips
    page.go_back()
    page.locator("#grid-filters [name=flipping]:not(:checked)").wait_for()
    assert shown(page) == malicious
    assert page.locator("[name=target]").input_value() == "malicious"
    page.go_back()
    page.locator("#grid-count", has_text="All").wait_for()
    assert shown(page) == every
    page.go_forward()
    page.locator("#grid-count", has_text=" of ").wait_for()
    assert shown(page) == malicious


@pytest.mark.parametrize("section", ["", "#leaderboard"])
def test_back_to_an_address_without_commands_closes_the_detail_for_good(
    visit: Visit, section: str
) -> None:
    page = visit.open(section)
    page.locator("#grid [role=rowheader]").first.click()
    wait_for_detail(page)
    page.go_back()
    page.locator("#grid-detail").wait_for(state="hidden")
    choose(page, {"target": "malicious"})
    page.wait_for_url("**/*#commands?target=malicious")
    if not section:
        page.go_back()
        page.locator("#grid-count", has_text="All").wait_for()
        assert page.locator("[name=target]").input_value() == ""


def test_a_link_opened_elsewhere_shows_the_same(visit: Visit) -> None:
    page = visit.open("#commands")
    choose(page, {"category": CATEGORIES[2], "q": "<script"})
    before = shown(page)
    page.locator("#grid [role=rowheader]").first.click()
    wait_for_detail(page)
    title = page.locator("#grid-detail pre").first.text_content()
    link = page.locator("#grid-link").input_value()
    assert link == page.url
    other = page.context.new_page()
    other.goto(link)
    wait_for_detail(other)
    assert other.locator("#grid-detail pre").first.text_content() == title
    assert other.locator("[name=category]").input_value() == CATEGORIES[2]
    assert other.locator(".grid-more").get_attribute("open") is not None
    other.locator("#grid-close").click()
    assert shown(other) == before


@pytest.mark.parametrize(
    "fragment",
    [
        "#commands?open=none&at=none",
        "#commands?sort=constructor&of=__proto__&order=up",
        "#commands?category=<img src=x onerror=alert(1)>&q=%E0%A4%A",
        "#commands?" + "q=" + "x" * 5000,
    ],
)
def test_a_damaged_link_shows_a_usable_page(visit: Visit, fragment: str) -> None:
    page = visit.open(fragment)
    assert not page.locator("#grid-detail").is_visible()
    page.locator("#grid-clear").click()
    assert len(shown(page)) == 30


def test_keys_lead_from_the_top_to_a_detail_and_back(page: Page) -> None:
    page.locator("nav a[href='#commands']").focus()
    page.keyboard.press("Enter")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#grid') !== null"):
            break
    else:
        pytest.fail("Tab does not reach the grid")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    cell = "document.activeElement.getAttribute('aria-label')"
    row = "document.activeElement.parentNode.dataset.command"
    left, command = page.evaluate(cell), page.evaluate(row)
    page.keyboard.press("Enter")
    page.locator(f"#grid-detail[data-shown='{command}']").wait_for()
    assert page.evaluate("document.activeElement.closest('#grid-detail') !== null")
    page.keyboard.press("Escape")
    page.locator("#grid-detail").wait_for(state="hidden")
    page.wait_for_url(lambda url: "open=" not in url)
    page.wait_for_function(f"() => {row} === '{command}'")
    assert page.evaluate(cell) == left


def test_tab_reaches_the_grid_after_a_filter_that_nothing_meets(page: Page) -> None:
    page.locator("#grid [role=rowheader]").first.focus()
    for key in ("ArrowUp", "ArrowDown", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    stops = page.locator("#grid [tabindex='0']")
    for text in ("no such command", ""):
        choose(page, {"q": text})
        page.locator("#grid-count", has_text="0 of" if text else "All").wait_for()
        assert stops.count() == 1


def test_headings_sort_the_grid(page: Page) -> None:
    choose(page, {"target": "malicious", "dataset": "tools"})
    heading = page.locator("#grid [role=columnheader]").first
    orders = []
    for _ in range(2):
        heading.click()
        shown(page)
        texts = in_order(page, "row.firstChild.textContent")
        orders.append((heading.get_attribute("aria-sort"), texts))
    ordered = sorted(MALICIOUS)
    assert orders == [("ascending", ordered), ("descending", ordered[::-1])]
