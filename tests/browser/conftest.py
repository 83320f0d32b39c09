"""One real run, one report of it, one browser; every test has a page of its own."""

import json
import logging
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from aegish_dist.cli import run
from tests.browser.recorded_run import FILTERS, write_run
from tests.services import require_binary

OPTIONS = """--no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking --disable-component-update --disable-sync"""


class Report(Struct, frozen=True):
    """A report in a file, and what the command line says of the same run elsewhere."""

    path: Path
    document: dict[str, Any]
    listed: list[dict[str, Any]]
    exported: list[dict[str, Any]]
    filtered: dict[str, set[str]]
    """By options of `verdicts list` the ids of the commands that it has with them."""

    @property
    def url(self) -> str:
        return self.path.as_uri()


@pytest.fixture(scope="package")
def report(_postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report")
    page, document, listed, exported = (
        folder / name for name in ("report.html", "report.json", "list.json", "export.jsonl")
    )
    with pytest.MonkeyPatch.context() as patch, _postgres.database() as url:
        patch.setenv("AEGISH_DIST_DATABASE_URL", url)
        _command("verdicts import", write_run(folder / "run.jsonl"))
        _command("report --format html -o", page)
        _command("report --format json -o", document)
        _command("verdicts list --json -o", listed)
        _command("verdicts export --run-id latest -o", exported)
        verdicts = _listed(listed)
        filtered = {}
        for options in FILTERS:
            _command(f"verdicts list --json {options} -o", listed)
            filtered[options] = {each["sample_id"] for each in _listed(listed)}
    return Report(
        page,
        json.loads(document.read_bytes()),
        verdicts,
        [json.loads(line) for line in exported.read_bytes().splitlines()],
        filtered,
    )


def _listed(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["verdicts"]
    return found


def _command(line: str, path: Path) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        assert run([*shlex.split(line), str(path)]) == 0
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = require_binary("chromium", "chromium-browser")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=OPTIONS.split())
        yield opened
        opened.close()


class Visit:
    """A page that shows the report, and what it did that nothing should do."""

    def __init__(self, page: Page, report: Report) -> None:
        self.page, self.report = page, report
        self.faults: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        self.page.on("popup", lambda other: self.faults.append(f"window: {other.url}"))
        self.page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        self.faults.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if request.url.partition("#")[0] != self.report.url:
            self.faults.append(f"request: {request.url[:200]}")

    def open(self, fragment: str = "") -> Page:
        """Open the report, at a fragment such as `#leaderboard`, and wait for the grid."""
        self.page.goto(f"{self.report.url}{fragment}")
        self.page.locator("#grid-view[data-ready]").wait_for(state="attached")
        return self.page


@pytest.fixture
def context_options() -> dict[str, Any]:
    return {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture
def visit(browser: Browser, report: Report, context_options: dict[str, Any]) -> Iterator[Visit]:
    """Give a page; after the test it must have done nothing that a file should not do."""
    context = browser.new_context(**context_options)
    context.set_default_timeout(30_000)
    made = Visit(context.new_page(), report)
    yield made
    context.close()
    assert made.faults == []


@pytest.fixture
def page(visit: Visit) -> Page:
    return visit.open()
