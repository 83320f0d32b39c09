"""`aegish-dist runs`: list, rename and delete runs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import MAX_INTEGER, Utf8, as_json
from aegish_dist.cli.printing import confirmed, note, say, say_json
from aegish_dist.cli.progress import Shown
from aegish_dist.cli.tables import TextTable, print_table
from aegish_dist.core.run import RunSummary
from aegish_dist.core.words import counted
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.delete_runs import Doomed, delete_runs, look_at, old_runs, parsed_age
from aegish_dist.pipeline.runs import find_run, recent_runs, rename
from aegish_dist.pipeline.workspace import Workspace

_limit = click.option(
    "--limit",
    type=click.IntRange(1, MAX_INTEGER),
    default=20,
    show_default=True,
    help="At most this many.",
)


_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group(invoke_without_command=True)
@_limit
@as_json
@click.pass_context
def runs(context: click.Context, /, **options: Any) -> None:
    """List, rename and delete runs; `runs` alone lists them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, **options)


@runs.command("list")
@_limit
@as_json
def list_(limit: int, as_json: bool) -> None:
    """List the runs, newest first."""
    found = recent_runs(open_workspace().engine, limit)
    if as_json:
        say_json([{**asdict(r), "created_at": r.created_at.isoformat()} for r in found])
        return
    columns = ("Run", "Created (UTC)", "Origin", "Name", "Held")
    numbers = ("Models", "Samples", "Epochs", "Verdicts")
    print_table(TextTable(columns, map(_row, found), numbers))


def _row(run: RunSummary) -> tuple[str, ...]:
    numbers = (run.models, run.samples, run.epochs, run.verdicts)
    created = f"{run.created_at:%Y-%m-%d %H:%M}"
    words = (run.run_id, created, run.origin, run.name, run.held or "")
    return *words, *(f"{number:,}" for number in numbers)


@runs.command("rename")
@click.argument("run", type=Utf8())
@click.argument("name", type=Utf8())
def rename_(run: str, name: str) -> None:
    """Give a run another name; "" takes its name away."""
    engine = open_workspace().engine
    found = find_run(engine, run)
    given = rename(engine, found, name)
    say(f"{found}: {given}" if given else f"{found}: no name")


@runs.command("delete")
@click.argument("run", type=Utf8())
@_yes
def delete_(run: str, yes: bool) -> None:
    """Delete a run with its verdicts and snapshots.

    A run that workers are at has to be paused or cancelled first. Its samples and its prompt go
    with it, unless another run has them too; datasets that you imported stay.
    """
    workspace = open_workspace()
    doomed = look_at(workspace.engine, find_run(workspace.engine, run))
    if doomed.busy is not None:
        raise StoreError(doomed.busy)
    _delete(workspace, [doomed], yes)


@runs.command("prune")
@click.option("--older-than", required=True, metavar="AGE", help="Such as 12h, 90d or 8w.")
@click.option(
    "--keep",
    type=click.IntRange(0, MAX_INTEGER),
    default=0,
    metavar="N",
    help="Keep the N newest runs, however old they are.",
)
@click.option("--dry-run", is_flag=True, help="List them, then stop.")
@_yes
def prune_(older_than: str, keep: int, dry_run: bool, yes: bool) -> None:
    """Delete the runs that are older than an age, imported ones too.

    Runs that workers are at are left out.
    """
    workspace = open_workspace()
    found = old_runs(workspace.engine, parsed_age(older_than), keep)
    for each in found:
        if each.busy is not None:
            note(f"left out: {each.busy}")
    doomed = [each for each in found if each.busy is None]
    if not doomed:
        say("no run is that old")
        return
    columns = ("Run", "Created (UTC)", "Name")
    print_table(TextTable(columns, map(_doomed_row, doomed), ("Models", "Verdicts", "Snapshots")))
    if not dry_run:
        _delete(workspace, doomed, yes)


def _doomed_row(each: Doomed) -> tuple[str, ...]:
    run, size = each.run, each.size
    numbers = (size.models, size.verdicts, size.snapshots)
    created = f"{run.created_at:%Y-%m-%d %H:%M}"
    return run.run_id, created, run.name, *(f"{number:,}" for number in numbers)


def _delete(workspace: Workspace, doomed: Sequence[Doomed], yes: bool) -> None:
    [*runs] = (each.run for each in doomed)
    verdicts = sum(each.size.verdicts for each in doomed)
    snapshots = sum(each.size.snapshots for each in doomed)
    named = (
        f"run {runs[0].run_id} {runs[0].name}".strip() if len(runs) == 1 else f"{len(runs)} runs"
    )
    what = f"{named} with {counted(verdicts, 'verdict')} and {counted(snapshots, 'snapshot')}"
    if not (yes or confirmed(f"Delete {what}?")):
        note("nothing was deleted")
        return
    delete_runs(workspace, doomed, Shown())
    say(f"deleted {what}")
