"""`aegish-dist runs`: the list of runs."""

from dataclasses import asdict

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import MAX_INTEGER, as_json
from aegish_dist.cli.printing import say_json
from aegish_dist.cli.tables import TextTable, print_table
from aegish_dist.core.run import RunSummary
from aegish_dist.pipeline.runs import recent_runs


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
    found = recent_runs(open_workspace().engine, limit)
    if as_json:
        say_json([{**asdict(r), "created_at": r.created_at.isoformat()} for r in found])
        return
    columns = ("Run", "Created (UTC)", "Origin", "Name")
    numbers = ("Models", "Samples", "Epochs", "Verdicts")
    print_table(TextTable(columns, map(_row, found), numbers))


def _row(run: RunSummary) -> tuple[str, ...]:
    numbers = (run.models, run.samples, run.epochs, run.verdicts)
    created = f"{run.created_at:%Y-%m-%d %H:%M}"
    return run.run_id, created, run.origin, run.name, *(f"{number:,}" for number in numbers)
