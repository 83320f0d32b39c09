"""`aegish-dist reparse`: read stored completions again with today's parser."""

from collections.abc import Sequence
from typing import Any

import click

from aegish_dist.cli.context import open_workspace, without_collector
from aegish_dist.cli.options import MAX_INTEGER, Utf8, as_json
from aegish_dist.cli.printing import TextTable, note, print_table, say, say_json
from aegish_dist.cli.status_view import Shown
from aegish_dist.core.parsing import PARSER_VERSION
from aegish_dist.core.words import counted
from aegish_dist.pipeline.reparse import ChangedVerdict, Reparsed, reparse_runs
from aegish_dist.pipeline.runs import all_runs, find_run


@click.command()
@click.option(
    "--run-id",
    type=Utf8(),
    metavar="R",
    help="A run's id, a unique prefix of it, its name, or `latest`.",
)
@click.option("--all", "every", is_flag=True, help="Every run.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--limit",
    type=click.IntRange(0, MAX_INTEGER),
    default=50,
    show_default=True,
    help="List at most this many changed verdicts; `--json` lists all.",
)
@as_json
def reparse(run_id: str | None, every: bool, dry_run: bool, limit: int, as_json: bool) -> None:
    """Read stored completions again with today's parser.

    No model is called, and completions never change: only what was read in them, which is outcome,
    reason and confidence. Lists the verdicts whose outcome is another one now. Snapshots of before
    stay; the next `report` or `aggregate` counts again.
    """
    if every == (run_id is not None):
        raise click.UsageError("name a run with --run-id, or say --all")
    engine = open_workspace().engine
    run_ids = all_runs(engine) if run_id is None else [find_run(engine, run_id)]
    with without_collector():
        found = reparse_runs(engine, run_ids, dry_run=dry_run, observer=Shown())
    if as_json:
        runs = list(map(_document, found))
        say_json({"parser_version": PARSER_VERSION, "dry_run": dry_run, "runs": runs})
        return
    for each in found:
        _print(each, dry_run)
    _list([(run.run_id, each) for run in found for each in run.changed], limit)


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


def _list(changed: Sequence[tuple[str, ChangedVerdict]], limit: int) -> None:
    if changed[:limit]:
        columns = ("Run", "Model", "Command", "From", "To")
        rows = [
            (run_id, each.model, each.sample.command, each.before.value, each.after.value)
            for run_id, each in changed[:limit]
        ]
        print_table(TextTable(columns, rows))
    if len(changed) > limit:
        note(f"{len(changed) - limit:,} more: `--json` lists all")


def _document(run: Reparsed) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "completions": run.completions,
        "updated": run.updated,
        "pruned": run.pruned,
        "changed": [
            {
                "model": each.model,
                "dataset": each.sample.dataset,
                "command": each.sample.command,
                "epoch": each.epoch,
                "generation": each.generation,
                "from": each.before,
                "to": each.after,
            }
            for each in run.changed
        ],
    }
