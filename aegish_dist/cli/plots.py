"""`aegish-dist plots`: a run's plots as files."""

from pathlib import Path

import click

from aegish_dist.cli.command import FOLDER, command, flag
from aegish_dist.cli.opinions import note_what_counts, with_opinion, with_policies
from aegish_dist.cli.options import (
    Utf8,
    completes,
    known_names,
    open_run,
    run_id,
    with_snapshot,
    without_collector,
)
from aegish_dist.cli.printing import note, say
from aegish_dist.errors import ReportError
from aegish_dist.files import replacing_in
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.report import ReportPart, report_data
from aegish_dist.report.charts.catalogue import CHARTS, plot_files
from aegish_dist.report.charts.vega_lite import PLOT_FORMATS, NoChart, converter


def _list(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    width = max(map(len, CHARTS))
    for name, (summary, _chart) in CHARTS.items():
        say(f"{name:<{width}}  {summary}")
    context.exit()


@command(
    "aegish-dist plots -o figures",
    "aegish-dist plots --only ranking,roc --format svg,png",
)
@run_id(default="latest")
@with_snapshot
@with_opinion
@with_policies
@click.option(
    "-o",
    "--output",
    type=FOLDER,
    metavar="DIR",
    help="The folder to write to; made if absent. Default: plots-RUN_ID.",
)
@click.option(
    "--format",
    "forms",
    type=Utf8(),
    multiple=True,
    default=("svg",),
    callback=known_names("format of plots", PLOT_FORMATS),
    metavar="FORMAT[,...]",
    shell_complete=completes(PLOT_FORMATS),
    help=f"Of {', '.join(PLOT_FORMATS)}; `vega` is the specification, to edit.",
)
@click.option(
    "--only",
    type=Utf8(),
    multiple=True,
    callback=known_names("plot", CHARTS),
    metavar="NAME[,...]",
    shell_complete=completes(CHARTS),
    help="Only these plots; `--list` names them. Default: all.",
)
@flag(
    "--list", is_eager=True, expose_value=False, callback=_list,
    help="Name the plots, and say what each shows.",
)  # fmt: skip
def plots(
    *,
    run_id: str,
    snapshot: int | None,
    opinion: Opinion,
    output: Path | None,
    forms: list[str],
    only: list[str],
) -> None:
    """Draw a run's plots, each into a file of its own.

    Each caption says what is drawn, over how many commands, with which interval, of which run and
    rule set. A plot without data is left out, and the reason is printed. `--format vega` writes
    Vega-Lite specifications to edit; other formats need `pip install 'aegish-dist[plots]'`.
    """
    if set(forms) != {"vega"}:
        # Missing packages are named before anything is counted.
        converter()
    store, run = open_run(run_id)
    note_what_counts(store, run, opinion, snapshot)
    folder = output or Path(f"plots-{run}")
    # Opened first: counting stores a snapshot, which a folder that cannot be written is not worth.
    with replacing_in(folder) as opened:
        names = only or list(CHARTS)
        parts = [part for part in ReportPart if part in names]
        with without_collector():
            data = report_data(store.engine, run, opinion, snapshot, parts=parts)
        drawn: list[tuple[str, bytes]] = []
        missing: list[NoChart] = []
        for plot in plot_files(data, names, forms):
            if isinstance(plot, NoChart):
                missing.append(plot)
            else:
                drawn.append(plot)
        if not drawn:
            reasons = [f"{chart.name}: {chart.reason}" for chart in missing]
            raise ReportError(f"run {run} has no data for these plots: {'; '.join(reasons)}")
        for name, content in drawn:
            opened(name).write(content)
    # Named once all are in place.
    for name, _ in drawn:
        say(str(folder / name))
    for chart in missing:
        note(f"no plot {chart.name}: {chart.reason}")
