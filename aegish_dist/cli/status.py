"""`aegish-dist status`: how far a run is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.halts import aggregated, halted, left_to_retry, read
from aegish_dist.cli.options import as_json, run_id
from aegish_dist.cli.printing import note, output_is_terminal, say_json
from aegish_dist.cli.progress import status_line
from aegish_dist.cli.tables import TextTable, print_table, table_that_changes
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.status import ModelStatus, RunStatus, State, run_status
from aegish_dist.pipeline.watch import watch as watch_run


@click.command()
@run_id(default="latest")
@click.option("--watch", is_flag=True, help="Keep showing it until the run is complete.")
@as_json
def status(run_id: str, watch: bool, as_json: bool) -> None:
    """Show how far a run is: verdicts by model and outcome, speed, cost, time left."""
    workspace = open_workspace()
    found = find_run(workspace.engine, run_id)
    current = run_status(workspace.engine, found)
    if as_json:
        say_json(_document(current))
        return
    if not watch:
        print_table(_table(current))
        _advise(current, embedded=workspace.settings.embedded_broker)
        return
    with _shown(current) as show:
        current = watch_run(workspace.engine, current, show)
    if not output_is_terminal():
        print_table(_table(current))
    _advise(current, embedded=workspace.settings.embedded_broker)


@contextmanager
def _shown(first: RunStatus) -> Iterator[Callable[[RunStatus], None]]:
    """Give what shows a status: as a table on a terminal, else as lines on standard error."""
    if output_is_terminal():
        with table_that_changes(_table(first)) as table:
            yield lambda status: table(_table(status))
    else:
        with status_line() as line:
            yield line.show


def _document(current: RunStatus) -> dict[str, Any]:
    document = asdict(current)
    del document["workers"]
    return document


def _table(current: RunStatus) -> TextTable:
    eta = "" if not current.eta_s else f", about {current.eta_s:.0f} s left"
    return TextTable(
        ("Model", "State"),
        [_row(model, current.workers) for model in current.models],
        ("Done", "Planned", "Failed", "Replaced", "In flight", "Per second", "Cost $"),
        title=f"Run {current.run_id}: {current.state}, {current.done:,} of {current.planned:,}"
        + eta,
        caption="  ".join(f"{name} {number:,}" for name, number in current.outcomes.items()),
    )


def _row(model: ModelStatus, workers: int) -> tuple[str, ...]:
    return (
        model.model,
        _state(model, workers),
        f"{model.done:,}",
        f"{model.planned:,}",
        f"{model.failed:,}",
        f"{model.replaced:,}",
        f"{model.in_flight:,}",
        f"{model.rate_per_s:.1f}",
        "-" if model.cost_usd is None else f"{model.cost_usd:.4f}",
    )


def _state(model: ModelStatus, workers: int) -> str:
    if model.reason is None:
        return model.state
    if model.state is State.PARKED:
        return f"{model.state}: {model.reason}"
    return f"{model.state}: no worker may call it ({workers} running): {model.reason}"


def _advise(current: RunStatus, *, embedded: bool) -> None:
    for line in (*halted(current), *read(current), *aggregated(current), *left_to_retry(current)):
        note(line)
    if current.state is not State.WAITING or current.ended:
        return
    resume = f"`aegish-dist resume --run-id {current.run_id}`"
    if current.workers:
        hint = f"workers live but hold none of it: if its queues are empty, {resume} fills them"
    elif embedded:
        hint = f"no command works on it: {resume} goes on"
    else:
        hint = "no worker is running: start one with `aegish-dist worker`"
    note(hint)
