"""`aegish-dist report`: a run's leaderboard and details."""

import shutil
from pathlib import Path

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import MAX_INTEGER, run_id, with_opinion
from aegish_dist.cli.printing import note, output_is_terminal, say_rendered
from aegish_dist.core.opinion import Opinion
from aegish_dist.files import is_stream, replacing_text
from aegish_dist.pipeline.report import report_data
from aegish_dist.pipeline.runs import find_run
from aegish_dist.render import FORMATS, render


@click.command()
@run_id(default="latest")
@click.option(
    "--snapshot",
    type=click.IntRange(1, MAX_INTEGER),
    metavar="S",
    help="A stored snapshot by number.",
)
@with_opinion
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="`json` and `csv` carry unrounded numbers.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file.")
def report(
    run_id: str, snapshot: int | None, opinion: Opinion, form: str, output: Path | None
) -> None:
    """Print a run's leaderboard and details.

    Rates with 95 % intervals, PASS or FAIL against the targets, detection by category, error
    classes, latency and cost. Without `--snapshot` the report is of the verdicts as they are now.
    """
    workspace = open_workspace()
    found = find_run(workspace.engine, run_id)
    if output is None:
        data = report_data(workspace.engine, found, opinion, snapshot)
        width = shutil.get_terminal_size((140, 40)).columns
        say_rendered(render(data, form, width=width, color=output_is_terminal()))
        return
    # Opened first, so that a path that cannot be written leaves no snapshot behind.
    with replacing_text(output) as stream:
        stream.write(render(report_data(workspace.engine, found, opinion, snapshot), form))
    if not is_stream(output):
        note(f"written to {output}")
