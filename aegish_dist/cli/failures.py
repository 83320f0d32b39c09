"""`aegish-dist errors`: when and why calls failed."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from aegish_dist.cli.command import command
from aegish_dist.cli.options import (
    LIST_FORMATS,
    chosen_form,
    in_a_form,
    limited,
    names,
    open_run,
    run_id,
)
from aegish_dist.cli.printing import (
    TextTable,
    form_of,
    in_columns,
    note,
    note_written,
    print_table,
    put_out,
)
from aegish_dist.core.failures import TimedFailures, timeline, totals
from aegish_dist.core.text import printable_json, shortened
from aegish_dist.pipeline.verdicts import failure_times
from aegish_dist.report.csv import failures_csv, failures_document


@command("aegish-dist errors", "aegish-dist errors --models openai/gpt-5.1 --format csv")
@run_id(default="latest")
@names("--models", "ID[,ID...]", "Only these models. Default: all.")
@limited("Rows by minute in a table, the newest; 0: all.", default=50)
@in_a_form
def errors(
    run_id: str,
    models: Sequence[str],
    limit: int,
    *,
    form: str | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """Show when and why calls failed.

    Failed attempts of every minute by model and reason, also those that a retry made good, such as
    429s, and verdicts without an answer. Attempts appear once their item has a verdict; for a model
    parked from the start, see the worker log. `status` counts attempts in progress.
    """
    workspace, found = open_run(run_id)
    rows = failure_times(workspace.engine, found, models)
    form = chosen_form(form, as_json) or form_of(output, LIST_FORMATS)
    if output is not None or form != "table":
        put_out([_text(form, found, rows)], output)
    elif rows:
        listed = rows[-limit:]
        print_table(_summary(rows), _by_time(listed))
        if len(listed) < len(rows):
            note(f"{len(rows) - len(listed):,} earlier; `--limit` lists more of them, 0 all")
    if output is not None:
        note_written(output)
    if not rows:
        note("no failed call is stored; unreadable answers: `verdicts list --outcome FORMAT_ERROR`")


def _text(form: str, run_id: str, rows: Sequence[TimedFailures]) -> str:
    if form == "csv":
        return failures_csv(rows)
    if form == "json":
        head = {"run_id": run_id, "by": "minute"}
        return printable_json(head | failures_document(rows)) + "\n"
    tables = (_summary(rows), _by_time(rows))
    return "\n\n".join(map(in_columns, tables)) + "\n" if rows else ""


def _summary(rows: Sequence[TimedFailures]) -> TextTable:
    sums = totals(rows)
    first = min((each.first_at for each in sums if each.first_at), default=None)
    last = max((each.last_at for each in sums if each.last_at), default=None)

    def row(each: TimedFailures) -> tuple[str, ...]:
        alike = [r for r in rows if (r.model, r.error_class) == (each.model, each.error_class)]
        drawn = timeline(alike, first, last, width=40) if first and last else ""
        return each.model, *_why(each), f"|{drawn}|", *_numbers(each)

    columns = ("Model", "Reason", "Status", "Newest message", "Timeline")
    span = f"Timeline: {_moment(first)} to {_moment(last)} UTC" if first and last else ""
    return TextTable(columns, map(row, sums), ("Attempts", "Verdicts"), caption=span)


def _by_time(rows: Sequence[TimedFailures]) -> TextTable:
    columns = ("Time (UTC)", "Model", "Reason", "Status", "Newest message")
    cells = ((_moment(each.time), each.model, *_why(each), *_numbers(each)) for each in rows)
    return TextTable(columns, cells, ("Attempts", "Verdicts"))


def _why(each: TimedFailures) -> tuple[str, str, str]:
    message = " ".join(each.message.split())
    statuses = " ".join(map(str, each.statuses))
    return each.error_class.words, statuses or "-", shortened(message, 80) or "-"


def _numbers(each: TimedFailures) -> tuple[str, str]:
    return f"{each.attempts:,}", f"{each.verdicts:,}"


def _moment(time: datetime | None) -> str:
    return "unknown" if time is None else f"{time:%Y-%m-%d %H:%M}"
