"""How large the HTML report is, how fast it is written, and how fast a browser works with it.

Run `python benchmarks/html_report.py [--models 20] [--commands 5000] [--epochs 1] [--repeats 3]`.
It takes a minute and Chromium (`apt-get install chromium`). The run is synthetic: completions of
some 120 characters, all parts of the time, costs.

write:   the whole command `report --format html`, from its start to its end, and the part of it
         that gathers and packs verdicts.
         Two files of the same snapshot are compared byte by byte.
browser: median of visits. Interactive: from the start of loading until rows are shown and take
         input, one frame included. A detail, a sort, a filter: from the input until the next frame
         after the change, each the slowest kind of several. Beside each stand the CPU milliseconds
         of the page's main thread, which another load on the machine changes less. Elements of the
         whole page and of the section; JavaScript's heap after a collection.
"""

import shutil
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from aggregate import Store
from measuring import laid_out, number, print_table
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright
from synthetic import fill

from aegish_dist.core.opinion import Opinion
from aegish_dist.db.embedded import embedded_server
from aegish_dist.db.engine import open_engine
from aegish_dist.pipeline.report import report_data
from aegish_dist.pipeline.report_grid import report_grid

RUN = "0shown"
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
READY = "#grid-view[data-ready]"

_TIMED = """async (work) => {
    const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    await frame();
    const start = performance.now();
    await eval(`(async () => { ${work} })()`);
    await frame();
    return performance.now() - start;
}"""
_CHOOSE = """
    const field = document.querySelector('#grid-filters [name={name}]');
    field.{property} = {value};
    field.dispatchEvent(new Event('input', {{ bubbles: true }}));
"""
_OPEN = """
    const cells = document.querySelectorAll('#grid [role=gridcell][data-model="{model}"]');
    const command = cells[{place}].parentNode.dataset.command;
    cells[{place}].click();
    const dialog = document.getElementById('grid-detail');
    while (dialog.dataset.shown !== command) await new Promise((done) => setTimeout(done));
"""


def _choose(name: str, value: object, field: str = "value") -> str:
    return _CHOOSE.format(name=name, property=field, value=repr(value).replace("True", "true"))


SORTS = [_choose("sort", each) for each in ("command", "wrong", "outcome", "cost", "latency")]
FILTERS = [
    _choose("q", "binary-17"),
    _choose("q", ""),
    _choose("outcome", "FORMAT_ERROR"),
    _choose("outcome", ""),
    _choose("missed", "all"),
    _choose("missed", ""),
    _choose("disputed", True, "checked"),
]


def _timed(page: Page, session: CDPSession, work: str) -> tuple[float, float]:
    """Return the milliseconds until the next frame, and those of the main thread's CPU."""
    before = _cpu_ms(session)
    wall = float(page.evaluate(_TIMED, work))
    return wall, _cpu_ms(session) - before


def visit(browser: Browser, path: Path) -> dict[str, float]:
    """Open a report and measure what a reader does first."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    page.add_init_script(
        "new MutationObserver((_, self) => { if (document.querySelector('" + READY + "')) {"
        " self.disconnect(); requestAnimationFrame(() => setTimeout(() => {"
        " window.shownAt = performance.now(); })); } })"
        ".observe(document, { childList: true, subtree: true, attributes: true });"
    )
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    page.wait_for_function("window.shownAt")
    found = {"interactive ms": float(page.evaluate("window.shownAt")), "CPU": _cpu_ms(session)}
    page.locator("#commands").scroll_into_view_if_needed()
    found["elements"] = page.evaluate("document.querySelectorAll('*').length")
    found["of the grid"] = page.evaluate("document.querySelectorAll('#commands *').length")
    details = []
    for place in (3, 9):
        details.append(_timed(page, session, _OPEN.format(model=2, place=place)))
        page.keyboard.press("Escape")
        page.wait_for_function("!document.getElementById('grid-detail').open")
    for name, timed in (
        ("detail", details),
        ("sort", [_timed(page, session, each) for each in SORTS]),
        ("filter", [_timed(page, session, each) for each in FILTERS]),
    ):
        found[f"{name} ms"] = max(wall for wall, _ in timed)
        found[f"CPU of {name}"] = max(cpu for _, cpu in timed)
    found["heap MB"] = _heap_mb(session)
    page.close()
    return found


def _cpu_ms(session: CDPSession) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration")) * 1e3


def _heap_mb(session: CDPSession) -> float:
    session.send("HeapProfiler.collectGarbage")
    usage: dict[str, Any] = session.send("Runtime.getHeapUsage")
    return float(usage["usedSize"] + usage.get("backingStorageSize", 0)) / 1e6


def write(store: Store, path: Path) -> dict[str, float]:
    """Write a report twice and measure the second time."""
    command = ("report", "--run-id", RUN, "--format", "html", "-o")
    store.command_s(*command, path)
    first = path.read_bytes()
    found = {"written s": store.command_s(*command, path), "largest MB": store.largest_mb}
    if path.read_bytes() != first:
        raise RuntimeError("the same snapshot gave other bytes")
    with closing(_Gathering(store.url)) as gathering:
        found["of it verdicts s"] = gathering.grid_s()
    return {"MB": path.stat().st_size / 1e6, **found}


class _Gathering:
    """The part of writing that is the grid's, in this process."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._data = report_data(self._engine, RUN, Opinion())

    def grid_s(self) -> float:
        started = time.monotonic()
        report_grid(self._engine, self._data)
        return time.monotonic() - started

    def close(self) -> None:
        self._engine.dispose()


@click.command(help=laid_out(__doc__))
@click.option("--models", default=20, show_default=True)
@click.option("--commands", default=5_000, show_default=True)
@click.option("--epochs", default=1, show_default=True)
@click.option("--repeats", default=3, show_default=True, help="Visits of the browser.")
def main(models: int, commands: int, epochs: int, repeats: int) -> None:
    """Fill a store of our own and measure."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise click.ClickException("there is no Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="hr") as folder:
        with closing(embedded_server(Path(folder))) as server:
            store = Store(server.url)
            store.command_s("db", "upgrade")
            rows = fill(store.url, RUN, models * commands * epochs, epochs, models)
            store.sql_s("VACUUM ANALYZE")
            path = Path(folder) / "report.html"
            written = [_numbers(write(store, path))]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
            visits = [visit(browser, path) for _ in range(repeats)]
            visited = {name: statistics.median(v[name] for v in visits) for name in visits[0]}
            browser.close()
    print_table(f"HTML report of {rows:,} verdicts: {models} models, {epochs} epochs", written)
    print_table(f"The same in Chromium, median of {repeats} visits", [_numbers(visited)])


def _numbers(values: dict[str, float]) -> dict[str, str]:
    return {name: number(value) for name, value in values.items()}


if __name__ == "__main__":
    main()
