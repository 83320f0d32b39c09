"""A fleet of four workers and 20,000 items, watched by Prometheus: is every panel filled?

Run `python benchmarks/watched_run.py [--answers FILE]`; takes about six minutes. Needs redis-server
and prometheus. Three runs: 15,816 items of four models on three wire formats, of which one refuses
calls beyond its rate and one fails now and then; 2,636 items in batches; 1,977 items under a cap
that they nearly reach. Printed are the panels of the dashboard and how many series each had; an
empty panel makes it fail. `--answers` keeps the answers for `draw_dashboard.py`.
"""

import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from alert_stand import Stand
from cluster import ROOT
from measuring import laid_out

from tests.services import wait_until

CATALOG = """
[providers.simulated]
wire = "openai"
base_url = "{url}/v1"
key_variable = ""
batch_share = 0.5
max_in_flight = 25

[providers.simulated-anthropic]
wire = "anthropic"
base_url = "{url}"
key_variable = ""
batch_share = 0.5
max_in_flight = 25

[providers.simulated-google]
wire = "google"
base_url = "{url}/v1beta"
key_variable = ""
batch_share = 0.5

[[models]]
id = "simulated/careful"
price = {{input = 1.25, output = 10}}

[[models]]
id = "simulated/thinking"
price = {{input = 2.5, output = 15}}

[[models]]
id = "simulated-anthropic/lenient"
price = {{input = 3, output = 15}}

[[models]]
id = "simulated-google/hasty"
price = {{input = 0.3, output = 2.5}}
"""
SCENARIO = """
latency = "lognormal:0.7,0.4"

[models.hasty.rate_limit]
requests_per_minute = 900

[models.lenient.faults]
server_error = 0.03

[batches]
duration = "constant:60"
"""
MODELS = "simulated/careful,simulated/thinking,simulated-anthropic/lenient,simulated-google/hasty"
RUNS = (
    ("--models", MODELS, "--epochs", "6"),
    ("--models", "simulated-anthropic/lenient", "--epochs", "4", "--batch"),
    ("--models", "simulated/careful", "--epochs", "3", "--max-cost", "9"),
)
ITEMS = 659 * (4 * 6 + 4 + 3)
WORKERS = 4
PATIENCE_S = 900
POINTS = 150
"""Of a series, as many as a panel can show."""


def run(stand: Stand) -> tuple[float, float]:
    """Submit the runs and wait for all of their verdicts; return when that began and ended."""
    stand.simulate("--latency", "lognormal:0.7,0.4", scenario=SCENARIO)
    began = time.time()
    for options in RUNS:
        stand.command("submit", "--skip-preflight", *options)

    def complete() -> bool:
        time.sleep(1)
        return int(stand.sql("SELECT count(*) FROM verdicts")[0][0]) >= ITEMS

    wait_until(complete, f"{ITEMS} verdicts", PATIENCE_S)
    return began, time.time()


def answers(stand: Stand, dashboard: dict[str, Any], began: float, ended: float) -> dict[str, Any]:
    """Ask Prometheus what Grafana would, and return the series by panel and letter of the query."""
    step = max(1.0, (ended - began) / POINTS)
    window = f"{max(step, 10):.0f}s"
    found: dict[str, Any] = {}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", window).replace("$model", ".*")
            series = stand.prometheus.query(query, start=began, end=ended, step=step)
            found.setdefault(str(panel["id"]), {})[target["refId"]] = series
    return found


@click.command(help=laid_out(__doc__))
@click.option("--answers", "kept", type=click.Path(path_type=Path), help="File for the answers.")
def main(*, kept: Path | None) -> None:
    """Run, print the table, and fail for an empty panel."""
    path = ROOT / "deploy" / "grafana" / "dashboards" / "aegish-dist.json"
    dashboard = json.loads(path.read_text())
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="watched")))
        stand = Stand(home, workers=WORKERS, catalog=CATALOG, drilled=False)
        stack.enter_context(stand)
        began, ended = run(stand)
        fired = stand.prometheus.query(
            'ALERTS{alertstate="firing"}', start=began, end=ended, step=1
        )
        found = answers(stand, dashboard, began, ended)
    if kept:
        kept.write_text(json.dumps({"answers": found, "from": began * 1000, "to": ended * 1000}))
    print(
        f"{ITEMS} items in {ended - began:.0f} s; {len(fired)} alerts fired\n\n| panel | series |"
    )
    print("|---|---:|")
    empty = []
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            series = sum(len(each) for each in found[str(panel["id"])].values())
            print(f"| {panel['title']} | {series} |")
            empty += [panel["title"]] * (not series)
    if empty:
        raise click.ClickException(f"empty: {', '.join(empty)}")


if __name__ == "__main__":
    main()
