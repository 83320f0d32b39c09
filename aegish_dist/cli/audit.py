"""`aegish-dist audit`: which commands and labels deserve a second look."""

from pathlib import Path
from typing import Any

import click

from aegish_dist.cli.command import command
from aegish_dist.cli.opinions import with_opinion
from aegish_dist.cli.options import Utf8, as_json, open_run, run_id, without_collector
from aegish_dist.cli.printing import TextTable, note, print_table, say_json, say_rendered
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.text import counted
from aegish_dist.pipeline.audit import audit_run, require_new, write_overlay
from aegish_dist.report.audit import audit_csv, audit_document, audit_sections
from aegish_dist.report.layout import Section
from aegish_dist.report.markdown import section_markdown
from aegish_dist.report.quality import overlay_section


@command(
    "aegish-dist audit --top 10",
    "aegish-dist audit --write-overlay doubtful.toml --author me",
)
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
@click.option(
    "--write-overlay",
    "overlay_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the doubtful labels of the list into a new file, to be edited and given as"
    " `--overlay`.",
)
@click.option(
    "--author", type=Utf8(), default="audit", show_default=True, help="Author of these changes."
)
@as_json
def audit(run_id: str, opinion: Opinion, as_json: bool, **asked: Any) -> None:
    """List the commands and labels that deserve a second look.

    Lists labels that the models' answers contradict, with the probability that they are wrong,
    and commands that models dispute, that all models miss, or that a model answers differently
    between epochs. No model is called.
    """
    path: Path | None = asked["overlay_file"]
    if path is not None:
        require_new(path)
    workspace, run = open_run(run_id)
    engine = workspace.engine
    with without_collector():
        found = audit_run(engine, run, opinion, asked["top"])
    written = None
    if path is not None:
        written = write_overlay(engine, run, opinion, found, path, author=asked["author"])
    if as_json:
        effect = {} if written is None else {"overlay_effect": list(written.effect)}
        say_json(audit_document(run, opinion, found) | effect)
    elif asked["form"] == "csv":
        say_rendered(audit_csv(found))
    else:
        sections = audit_sections(found)
        if written is not None and written.effect:
            sections.append(overlay_section(written.effect))
        if asked["form"] == "table":
            print_table(*map(_table, sections))
        else:
            say_rendered("\n\n".join(map(section_markdown, sections)) + "\n")
    if written is not None:
        note(
            f"{counted(written.changes, 'change')} of labels written to {path}:"
            " a draft for you to decide"
        )


def _table(section: Section) -> TextTable:
    headings = [column.text for column in section.columns]
    rows = [[f"{cell.text} {cell.detail}".strip() for cell in row] for row in section.rows]
    return TextTable(headings, rows, title=section.title, caption=section.note)
