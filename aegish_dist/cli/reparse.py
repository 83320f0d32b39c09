"""`aegish-dist reparse`: read stored completions again with today's parser."""

from typing import Any

import click

from aegish_dist.cli.options import (
    MAX_INTEGER,
    as_json,
    open_workspace,
    run_id,
    without_collector,
)
from aegish_dist.cli.printing import TextTable, note, print_table, say, say_json
from aegish_dist.cli.status_view import Shown
from aegish_dist.core.parsing import PARSER_VERSION
from aegish_dist.core.text import counted
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.verdicts import Reparsed, reparse_run


@click.command()
@run_id()
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--limit",
    type=click.IntRange(0, MAX_INTEGER),
    default=50,
    show_default=True,
    help="List at most this many changed verdicts; `--json` lists all.",
)
@as_json
def reparse(run_id: str, dry_run: bool, limit: int, as_json: bool) -> None:
    """Read stored completions again with today's parser.

    No model is called, and completions never change: only what was read in them, which is outcome,
    reason and confidence. Lists the verdicts whose outcome is another one now. Snapshots of before
    stay; the next `report` or `aggregate` counts again.
    """
    engine = open_workspace().engine
    with without_collector():
        found = reparse_run(engine, find_run(engine, run_id), dry_run=dry_run, observer=Shown())
    if as_json:
        document = _document(found)
        say_json({"parser_version": PARSER_VERSION, "dry_run": dry_run, "runs": [document]})
        return
    _print(found, dry_run)
    _list(found, limit)


def _print(run: Reparsed, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    say(
        f"{run.run_id}: {counted(run.completions, 'completion')} read by parser {PARSER_VERSION},"
        f" {run.updated:,} {would}updated, {counted(len(run.changed), 'outcome')} {would}changed"
    )
    if run.pruned:
        note(
            f"{run.run_id}: {counted(run.pruned, 'completion')} pruned; their verdicts stay as an"
            " earlier parser read them"
        )


def _list(run: Reparsed, limit: int) -> None:
    if run.changed[:limit]:
        columns = ("Run", "Model", "Command", "From", "To")
        rows = [
            (run.run_id, each.model, each.command, each.before.value, each.after.value)
            for each in run.changed[:limit]
        ]
        print_table(TextTable(columns, rows))
    if len(run.changed) > limit:
        note(f"{len(run.changed) - limit:,} more: `--json` lists all")


def _document(run: Reparsed) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "completions": run.completions,
        "updated": run.updated,
        "pruned": run.pruned,
        "changed": [
            {
                "model": each.model,
                "dataset": each.dataset,
                "command": each.command,
                "epoch": each.epoch,
                "generation": each.generation,
                "from": each.before,
                "to": each.after,
            }
            for each in run.changed
        ],
    }
