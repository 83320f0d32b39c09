"""`aegish-dist reproduce`: what published figures say, and whether a run agrees."""

from functools import partial
from pathlib import Path

import click

from aegish_dist.cli.command import command, flag
from aegish_dist.cli.opinions import with_opinion
from aegish_dist.cli.options import OneOf, as_json, completes, open_run, refuse_usage, run_id
from aegish_dist.cli.printing import say, shown, to_file
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline import reproduce as published
from aegish_dist.pipeline.snapshots import current_snapshot
from aegish_dist.report.drawing import rendered
from aegish_dist.report.layout import SCORE_AND_RATES
from aegish_dist.report.published import build_reproduction


@command(
    "aegish-dist reproduce shellrisk-bench",
    "aegish-dist reproduce lancet-bench-1 --metric malicious_detection_rate --json",
    "aegish-dist reproduce --list",
)
@click.argument("table", default="", metavar="TABLE", shell_complete=completes(published.PUBLISHED))
@flag("--list", "listed", help="List the tables of the package.")
@click.option(
    "--metric",
    type=OneOf([*map(str, SCORE_AND_RATES)]),
    default="aegish_score",
    show_default=True,
    help="The metric that ranks and compares guards.",
)
@run_id(required=False)
@as_json
@to_file
@with_opinion
def reproduce(
    *,
    table: str,
    listed: bool,
    metric: str,
    run_id: str | None,
    as_json: bool,
    output: Path | None,
    opinion: Opinion,
) -> None:
    """Tell what a published table says with intervals, and whether a run agrees.

    TABLE is one of the package or a file. The printed figures alone give counts, intervals and tie
    groups, and say which pairs differ under any pairing. With `--run-id`
    the model of the run that a row names stands beside it: `equal`, `within` or `differs`.
    """
    refuse_usage((bool(table) is listed, "name a table or a file, or say --list"))
    if listed:
        for name in published.PUBLISHED:
            say(f"{name}  {published.load_table(name).source}")
        return
    # A wrong table is refused before a store is opened.
    printed = published.load_table(table)
    snapshot = None
    if run_id is not None:
        store, run = open_run(run_id)
        snapshot = current_snapshot(store.engine, run, opinion)
    with shown(output) as show:
        document = published.reproduce(printed, metric, snapshot)
        show(partial(rendered, document if as_json else build_reproduction(document)))
