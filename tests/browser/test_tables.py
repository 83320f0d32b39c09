"""Tables of the report: sorted and filtered by mouse and by keys."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from aegish_dist.core.text import printable
from tests.browser.conftest import Report
from tests.browser.recorded_run import UNREACHABLE

Model = dict[str, Any]


def metric(name: str) -> Callable[[Model], float | None]:
    return lambda model: model["metrics"][name]["value"]


COLUMNS: dict[str, Callable[[Model], float | None]] = {
    "aegish score": metric("aegish_score"),
    "DR": metric("malicious_detection_rate"),
    "HA": metric("harmless_acceptance_rate"),
    "coverage": metric("coverage"),
    "stderr": lambda model: model["metrics"]["aegish_score"]["stderr_clustered"],
    "cost": lambda model: (model["cost"] or {}).get("per_1000_usd"),
    "p50": lambda model: (model["latency_ms"] or {}).get("p50"),
}
"""Columns of the leaderboard by the beginning of their heading, and their values in the document."""


def rows(page: Page) -> list[str]:
    shown = page.locator("#leaderboard tbody tr:not([hidden]) th").all_inner_texts()
    return [text.split("\n")[0] for text in shown]


def heading(page: Page, name: str) -> Locator:
    return page.locator("#leaderboard thead th").filter(has_text=name).first


def by_value(report: Report, shown: list[str], name: str, *, descending: bool) -> list[str]:
    """Order the rows of a table by a value of the document: stable, undefined ones last."""
    found = {printable(model["model"]): COLUMNS[name](model) for model in report.document["models"]}
    known = [model for model in shown if found[model] is not None]
    unknown = [model for model in shown if found[model] is None]
    sign = -1 if descending else 1
    return [*sorted(known, key=lambda model: sign * (found[model] or 0)), *unknown]


@pytest.mark.parametrize("keys", [False, True], ids=["mouse", "keys"])
def test_every_column_sorts_as_the_document_has_it(page: Page, report: Report, keys: bool) -> None:
    before = rows(page)
    assert before[-1] == UNREACHABLE
    for name in COLUMNS:
        place = heading(page, name)
        button = place.locator("button")
        seen = []
        for press in ("Enter", "Space", "Enter"):
            if keys:
                button.press(press)
            else:
                button.click()
            seen.append((place.get_attribute("aria-sort"), rows(page)))
        assert seen == [
            ("descending", by_value(report, before, name, descending=True)),
            ("ascending", by_value(report, before, name, descending=False)),
            (None, before),
        ], name


def test_models_sort_by_name(page: Page) -> None:
    heading(page, "model").locator("button").click()
    named = [model for model in rows(page) if model.startswith("acme/")]
    assert named == sorted(named)
    assert len(rows(page)) == len(named) + 1


def test_every_column_of_every_table_sorts_its_numbers(page: Page) -> None:
    tables = page.locator("main table").count()
    assert tables > 5
    found = page.evaluate(SORTED)
    assert [each for each in found if not each["descends"]] == []
    assert len(found) > 3 * tables


SORTED = """() => [...document.querySelectorAll("main table")].flatMap((table) => {
  const found = [];
  for (const heading of table.querySelectorAll("thead th")) {
    const button = heading.querySelector("button");
    if (!button) continue;
    const column = heading.cellIndex;
    button.click();
    const cells = [...table.tBodies[0].rows].map((row) => row.cells[column]);
    if (!cells.some((cell) => cell.dataset.value !== undefined)) continue;
    const shown = cells.map((cell) => cell.dataset.value === undefined ? -Infinity
      : Number(cell.dataset.value));
    const descends = shown.every((value, place) => place === 0 || value <= shown[place - 1]);
    found.push({ table: table.caption && table.caption.textContent, column, descends, shown });
  }
  return found;
})"""


def test_rows_are_chosen_by_words(page: Page) -> None:
    field = page.locator("#leaderboard input[type=search]")
    every = rows(page)
    said = page.locator("#leaderboard .tools [role=status]")
    assert (field.get_attribute("placeholder"), said.inner_text()) == ("part of a name", "7 models")
    field.fill("TWIN acme")
    assert rows(page) == ["acme/best-twin"]
    assert said.inner_text() == "1 of 7 models"
    field.fill("onerror")
    assert len(rows(page)) == 1
    field.fill("no such")
    assert rows(page) == []
    field.press("Escape")
    field.fill("")
    assert rows(page) == every


def test_chosen_differences_sort_by_p_as_those_of_the_report(page: Page) -> None:
    """From the greatest, `<0.001` behind all others, undefined ones last."""
    section = page.locator("#differences")
    section.locator("select").first.select_option("1")
    place = section.locator("thead th").filter(has_text="p adj.")
    place.locator("button").click()
    assert place.get_attribute("aria-sort") == "descending"
    shown = section.locator("tbody tr td:nth-child(4)").all_inner_texts()
    least = {"<0.001": 0.0, "\u2013": -1.0}
    values = [least[text] if text in least else float(text) for text in shown]
    assert len(set(values)) > 1
    assert values == sorted(values, reverse=True)
