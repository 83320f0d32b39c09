"""Pictures of the dashboard, drawn by Grafana's own components from the answers of a Prometheus.

There is no Grafana server in it: panels, legends, units and colours are those of @grafana/ui, the
grid is the dashboard's. `benchmarks/watched_run.py --answers FILE` writes the answers. Needs
chromium and, once, in a copy of benchmarks/drawing/:

    npm install --legacy-peer-deps && npm run build

Then run `python benchmarks/draw_dashboard.py ANSWERS COPY/out -o PICTURE.png [--rows NAME,...]`.
"""

import json
from pathlib import Path
from typing import Any

import click
from cluster import ROOT
from measuring import laid_out
from playwright.sync_api import sync_playwright

from tests.services import require_binary

SIZES = {"column": 62, "unit": 32, "gap": 8}
MARGIN = 8
SETTLED_MS = 5000
PAGE = (
    "<!doctype html><meta charset=utf-8><style>{css}</style>"
    "<body style='background:#111217;margin:{margin}px'><div id=root></div>"
    "<script>window.DRAWN={drawn}</script><script>{script}</script>"
)


def chosen(dashboard: dict[str, Any], rows: tuple[str, ...]) -> dict[str, Any]:
    """Return the dashboard with these rows alone, moved together; all without a name."""
    kept: list[dict[str, Any]] = []
    y, shift, wanted = 0, 0, True
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        if panel["type"] == "row":
            wanted = not rows or panel["title"] in rows
            shift = place["y"] - y
        if wanted:
            kept.append({**panel, "gridPos": {**place, "y": place["y"] - shift}})
            y = max(y, place["y"] - shift + place["h"])
    return {**dashboard, "panels": kept}


def embedded(value: object) -> str:
    """Write a value as JSON that may stand in a script."""
    return json.dumps(value).replace("</", "<\\/")


def page(answers: dict[str, Any], components: Path, rows: tuple[str, ...]) -> str:
    """Return the page."""
    path = ROOT / "deploy" / "grafana" / "dashboards" / "aegish-dist.json"
    drawn = {"dashboard": chosen(json.loads(path.read_text()), rows), **answers, **SIZES}
    script = (components / "dashboard.js").read_text().replace("</script", "<\\/script")
    css = (components / "dashboard.css").read_text()
    return PAGE.format(margin=MARGIN, css=css, drawn=embedded(drawn), script=script)


@click.command(help=laid_out(__doc__))
@click.argument("answers", type=click.Path(path_type=Path, exists=True))
@click.argument("components", type=click.Path(path_type=Path, exists=True))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True)
@click.option("--rows", default="", help="Headings of rows, comma-separated.")
def main(*, answers: Path, components: Path, output: Path, rows: str) -> None:
    """Draw the picture."""
    names = tuple(filter(None, rows.split(",")))
    written = output.with_suffix(".html").resolve()
    written.write_text(page(json.loads(answers.read_text()), components, names), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=require_binary("chromium"), args=["--no-sandbox"]
        )
        width = 24 * SIZES["column"] + 2 * MARGIN
        tab = browser.new_page(viewport={"width": width, "height": 800})
        tab.goto(written.as_uri())
        tab.wait_for_selector("[data-panel] canvas, [data-panel] svg")
        tab.wait_for_timeout(SETTLED_MS)
        tab.screenshot(path=output, full_page=True)
        browser.close()
    written.unlink()


if __name__ == "__main__":
    main()
