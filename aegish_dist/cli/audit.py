"""`aegish-dist audit`: which commands and labels deserve a second look."""

import click

from aegish_dist.cli.context import open_workspace, without_collector
from aegish_dist.cli.options import as_json, run_id, with_opinion
from aegish_dist.cli.printing import say, say_json, say_rendered
from aegish_dist.cli.tables import TextTable, print_table
from aegish_dist.core.audit import Audit
from aegish_dist.core.opinion import Opinion
from aegish_dist.pipeline.audit import audit_run
from aegish_dist.pipeline.runs import find_run
from aegish_dist.render.audit import audit_csv, audit_document, audit_markdown, audit_sections


@click.command()
@run_id(default="latest")
@with_opinion
@click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Commands on each list.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("table", "markdown", "csv")),
    default="table",
    show_default=True,
    help="`csv` carries unrounded numbers.",
)
@as_json
def audit(run_id: str, opinion: Opinion, top: int, form: str, as_json: bool) -> None:
    """List the commands and labels that deserve a second look.

    Labels that the models' answers contradict, with the probability that they are wrong; commands
    that models dispute, that all of them miss, or about which they change their minds between
    epochs. No model is called.
    """
    engine = open_workspace().engine
    with without_collector():
        found = audit_run(engine, find_run(engine, run_id), opinion, top)
    if as_json:
        say_json(audit_document(found.run.run_id, opinion, found.audit))
    elif form == "markdown":
        say_rendered(audit_markdown(found.audit))
    elif form == "csv":
        say_rendered(audit_csv(found.audit))
    else:
        _print_tables(found.audit)


def _print_tables(found: Audit) -> None:
    for number, section in enumerate(audit_sections(found)):
        if number:
            say("")
        headings = [column.text for column in section.columns]
        rows = [[cell.text for cell in row] for row in section.rows]
        print_table(TextTable(headings, rows, title=section.title, caption=section.note))
