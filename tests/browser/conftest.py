"""One real run, one report of it, one browser; every test has a page of its own."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.browser.recorded_run import write_run
from tests.e2e.cluster import run, run_json
from tests.services import require_binary

OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@dataclass(frozen=True)
class Report:
    """A report in a file, and the command line of the store that it was made from."""

    path: Path
    env: dict[str, str]

    @property
    def url(self) -> str:
        """Address of the file, from disk."""
        return self.path.as_uri()

    def json(self, *arguments: str) -> Any:
        """Run a command on the same store and read what it prints with `--json`."""
        return run_json(self.env, *arguments)


@pytest.fixture(scope="package")
def report(_postgres: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    """Give the report of a run that was imported, written by the command line."""
    folder = tmp_path_factory.mktemp("report")
    name = _postgres.create(_postgres.template)
    env = os.environ | {"AEGISH_DIST_DATABASE_URL": _postgres.url(name)}
    run(env, "verdicts", "import", str(write_run(folder / "run.jsonl")))
    run(env, "report", "--format", "html", "-o", str(folder / "report.html"))
    yield Report(folder / "report.html", env)
    _postgres.drop(name)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Give the system's Chromium, headless."""
    path = require_binary("chromium", "chromium-browser")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield opened
        opened.close()


@dataclass
class Visit:
    """A page that shows the report, and what it did that nothing should do."""

    page: Page
    report: Report
    faults: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note messages, errors, dialogs, windows and requests."""
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
        """Open the report, at a fragment such as `#leaderboard`."""
        self.page.goto(f"{self.report.url}{fragment}")
        return self.page


@pytest.fixture
def context_options() -> dict[str, Any]:
    """Options of the page's context; a test or a file replaces them."""
    return {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture
def visit(browser: Browser, report: Report, context_options: dict[str, Any]) -> Iterator[Visit]:
    """Give a page; after the test it must have done nothing that a file should not do."""
    context = browser.new_context(**context_options)
    context.set_default_timeout(5000)
    made = Visit(context.new_page(), report)
    made.watch()
    yield made
    context.close()
    assert made.faults == []


@pytest.fixture
def page(visit: Visit) -> Page:
    """Give a page that shows the report."""
    return visit.open()
