"""`aegish-dist status`: how far a run is."""

import time
from dataclasses import asdict
from typing import Any

import click
from rich.live import Live
from rich.table import Table

from aegish_dist.cli.context import Workspace, print_json
from aegish_dist.cli.halts import halted
from aegish_dist.cli.options import as_json, run_id
from aegish_dist.cli.tables import console, plain_table
from aegish_dist.pipeline.status import RunStatus, State, run_status
from aegish_dist.pipeline.submit import find_run
from aegish_dist.render.text import printable

WATCH_INTERVAL_S = 1.0


@click.command()
@run_id(default="latest")
@click.option("--watch", is_flag=True, help="Keep showing it until the run is complete.")
@as_json
def status(run_id: str, watch: bool, as_json: bool) -> None:
    """Show how far a run is: verdicts by model and outcome, speed, cost, time left."""
    workspace = Workspace()
    found = find_run(workspace.engine, run_id)
    current = run_status(workspace.engine, found)
    if as_json:
        print_json(_document(current))
        return
    if not watch:
        console().print(_table(current))
        _advise(current, embedded=workspace.settings.embedded_broker)
        return
    with Live(_table(current), console=console(), refresh_per_second=4) as live:
        while not current.ended:
            time.sleep(WATCH_INTERVAL_S)
            current = run_status(workspace.engine, found)
            live.update(_table(current))


def _document(current: RunStatus) -> dict[str, Any]:
    document = asdict(current)
    del document["workers"]
    return document


def _table(current: RunStatus) -> Table:
    eta = "" if not current.eta_s else f", about {current.eta_s:.0f} s left"
    outcomes = "  ".join(f"{name} {number:,}" for name, number in current.outcomes.items())
    table = plain_table(
        ("Model", "State"),
        ("Done", "Planned", "In flight", "Per second", "Cost $"),
        title=f"Run {current.run_id}: {current.state}, {current.done:,} of {current.planned:,}"
        + eta,
    )
    table.caption = outcomes or None
    table.caption_justify = "left"
    for model in current.models:
        table.add_row(
            printable(model.model),
            model.state,
            f"{model.done:,}",
            f"{model.planned:,}",
            f"{model.in_flight:,}",
            f"{model.rate_per_s:.1f}",
            "-" if model.cost_usd is None else f"{model.cost_usd:.4f}",
        )
    return table


def _advise(current: RunStatus, *, embedded: bool) -> None:
    for line in halted(current):
        click.echo(line, err=True)
    if current.state is not State.WAITING:
        return
    resume = f"`aegish-dist resume --run-id {current.run_id}`"
    if current.workers:
        hint = f"workers live but hold none of it: if its queues are empty, {resume} fills them"
    elif embedded:
        hint = f"nobody works on it: {resume} goes on"
    else:
        hint = "no worker is alive: start one with `aegish-dist worker`"
    click.echo(hint, err=True)
