"""`aegish-dist audit`: which commands and labels deserve a second look."""

from collections.abc import Sequence
from pathlib import Path

import click

from aegish_dist.cli.command import advanced, command, file_option
from aegish_dist.cli.opinions import with_opinion
from aegish_dist.cli.options import (
    MAX_INTEGER,
    OneOf,
    Utf8,
    limited,
    open_run,
    or_as_json,
    run_id,
    without_collector,
)
from aegish_dist.cli.printing import (
    in_columns,
    list_width,
    note,
    say,
    say_columns,
    say_json,
    say_rendered,
)
from aegish_dist.core.audit import Audit
from aegish_dist.core.text import JsonObject, counted, shortened
from aegish_dist.files import require_new
from aegish_dist.opinions.opinion import DRAFT_AUTHOR, Opinion
from aegish_dist.pipeline.audit import audit_run, write_overlay
from aegish_dist.report.audit import audit_csv, audit_document, audit_sections, command_lists
from aegish_dist.report.drawing import section_markdown
from aegish_dist.report.layout import Section
from aegish_dist.report.quality import overlay_section
from aegish_dist.report.writing import short_names

LISTED = 20  # commands of each list
IN_A_TABLE = 3  # those of them that a table shows: one screen


@command(
    "aegish-dist audit --limit 10",
    "aegish-dist audit --write-overlay doubtful.toml --author me",
)
@run_id(default="latest")
@with_opinion
@limited(
    f"Commands on each list, 0 for all. Default: {IN_A_TABLE} in a table, else {LISTED}.", "--top"
)
@click.option(
    "--format",
    "form",
    type=OneOf(("table", "markdown", "csv", "json")),
    help="Default: table. `markdown` has the models too, `csv` and `json` unrounded numbers.",
)
@file_option(
    "--write-overlay",
    "overlay_file",
    help="Write the doubtful labels of the list into a new file, to be edited and given as"
    " `--overlay`.",
)
@advanced("--author", type=Utf8(), default=DRAFT_AUTHOR, help="Author of these changes.")
@or_as_json
def audit(
    *,
    run_id: str,
    opinion: Opinion,
    limit: int | None,
    form: str | None,
    overlay_file: Path | None,
    author: str,
) -> None:
    """List the commands and labels that deserve a second look.

    Lists labels that the models' answers contradict, with the probability of the other label, and
    commands that models dispute, that all models miss, or that a model answers differently
    between epochs. No model is called.
    """
    if overlay_file is not None:
        require_new(overlay_file)
    store, run = open_run(run_id)
    engine = store.engine
    asked = MAX_INTEGER if limit == 0 else limit  # None: not said
    read = LISTED if asked is None else asked
    in_a_table = IN_A_TABLE if asked is None else asked
    with without_collector():
        lists = audit_run(engine, run, opinion, read)
    changes = 0
    effect: Sequence[JsonObject] = ()
    if overlay_file is not None:
        changes, effect = write_overlay(engine, run, opinion, lists, overlay_file, author=author)
    form = form or "table"
    if form == "json":
        document = audit_document(run, opinion, lists)
        if overlay_file is not None:
            document["overlay_effect"] = effect
        say_json(document)
    elif form == "csv":
        if lists.warning is not None:
            note(lists.warning)
        say_rendered(audit_csv(lists))
    else:
        if lists.warning is not None:
            say(f"Warning: {lists.warning}.", "")
        sections = [overlay_section(effect)] if effect else []
        if form == "table":
            _print_lists(lists, in_a_table, sections)
        else:
            sections = [*audit_sections(lists), *sections]
            parts = [section_markdown(section) for section in sections]
            say_rendered("\n\n".join(parts) + "\n")
    if overlay_file is not None:
        written = f"{counted(changes, 'change')} of labels written to {overlay_file}"
        note(f"{written}: a draft for you to decide")


def _print_lists(audit: Audit, limit: int, effect: Sequence[Section]) -> None:
    """Print the commands of each list in the width of the terminal, and how many more there are."""
    width = list_width()
    names = short_names([guard.model for guard in audit.reliabilities], width=24)
    # What is left beside the probability and the id.
    room = width - 15
    lists = [_two_lines(section, room) for section in command_lists(audit, limit, room, names)]
    drawn = [_drawn(section, width) for section in (*lists, *effect)]
    if drawn:
        say_columns("\n\n".join(drawn))
    else:
        note("no command deserves a second look: the models agree with every label")
    more = sum(max(0, total - limit) for total in audit.totals.values())
    if more:
        note(f"{more:,} more on these lists: `--limit` lists more of them, 0 all")


def _two_lines(section: Section, room: int) -> Section:
    """Return a list with label and reason below each command, as wide as the terminal."""
    rows: list[tuple[str, str]] = []
    for cells in section.rows:
        command, label, score, why, sample = (cell.text for cell in cells)
        # Two lines of the terminal at most, which are folded between words.
        reason = shortened(f"{label}: {why}", 2 * room - 8)
        rows.append((command, score))
        rows.append((reason, sample))
    score_heading = section.columns[2].text
    columns = ("command, and its label: why", f"{score_heading}, id")
    return Section.of(section.title, columns, rows, note=section.note)


def _drawn(section: Section, width: int) -> str:
    headings = [column.text for column in section.columns]
    rows = []
    for row in section.rows:
        rows.append([f"{cell.text} {cell.detail}".strip() for cell in row])
    return in_columns(headings, rows, title=section.title, caption=section.note, width=width)
