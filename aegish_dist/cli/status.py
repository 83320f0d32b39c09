"""`aegish-dist status`: how far a run is."""

from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import click
import msgspec

from aegish_dist.cli.options import as_json, open_run, run_id
from aegish_dist.cli.printing import note, say_json
from aegish_dist.cli.status_view import (
    aggregated,
    halted,
    left_to_retry,
    print_status,
    waiting_hint,
    watched,
)
from aegish_dist.core.status import RunStatus
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.status import watch as watch_run


@click.command()
@run_id(default="latest")
@click.option("--watch", is_flag=True, help="Keep showing it until the run is complete.")
@as_json
def status(run_id: str, watch: bool, as_json: bool) -> None:
    """Show how far a run is: verdicts by model and outcome, speed, cost, time left."""
    workspace, found = open_run(run_id)
    current = run_status(workspace.engine, found)
    if as_json:
        say_json(_document(current))
        return
    hint = partial(waiting_hint, embedded=workspace.settings.embedded_broker)
    if watch and not current.settled:
        with watched(hint, stderr=False) as show:
            show(current)
            current = watch_run(workspace.engine, current, show)
    print_status(current)
    advice = (*halted(current), *aggregated(current), *left_to_retry(current), hint(current))
    note(*filter(None, advice))


def _document(current: RunStatus) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(current, builtin_types=(datetime, Decimal))
    for error in document["last_errors"]:
        error["at"] = error["at"].isoformat()
    for model in document["models"]:
        if (batches := model["batches"]) is not None and batches["expected_usd"] is not None:
            batches["expected_usd"] = float(batches["expected_usd"])
    return document
