"""`aegish-dist runs`: the list of runs."""

from dataclasses import asdict

import click
from sqlalchemy.orm import Session

from aegish_dist.cli.context import Workspace, print_json
from aegish_dist.cli.options import MAX_INTEGER, as_json
from aegish_dist.cli.tables import console, plain_table
from aegish_dist.db.engine import connection_errors_in_one_line
from aegish_dist.db.runs import list_runs
from aegish_dist.render.text import printable


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_INTEGER),
    default=20,
    show_default=True,
    help="At most this many.",
)
@as_json
def runs(limit: int, as_json: bool) -> None:
    """List the runs, newest first."""
    workspace = Workspace()
    with connection_errors_in_one_line(), Session(workspace.engine) as session:
        found = list_runs(session, limit)
    if as_json:
        print_json([{**asdict(r), "created_at": r.created_at.isoformat()} for r in found])
        return
    table = plain_table(
        ("Run", "Created (UTC)", "Origin", "Name"), ("Models", "Samples", "Epochs", "Verdicts")
    )
    for run in found:
        table.add_row(
            run.run_id,
            f"{run.created_at:%Y-%m-%d %H:%M}",
            run.origin,
            printable(run.name),
            *(f"{number:,}" for number in (run.models, run.samples, run.epochs, run.verdicts)),
        )
    console().print(table)
