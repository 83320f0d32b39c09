"""`aegish-dist runs delete` and `prune`: delete a run, old runs, or their completions alone."""

from collections.abc import Sequence
from pathlib import Path

import click

from aegish_dist.cli.options import MAX_INTEGER, Utf8, open_workspace
from aegish_dist.cli.printing import TextTable, confirmed, note, print_table, say
from aegish_dist.cli.status_view import Shown
from aegish_dist.core.text import counted
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.archives import (
    archive_run,
    delete_archived,
    read_manifest,
    require_unchanged,
)
from aegish_dist.pipeline.delete_runs import (
    Doomed,
    Prunable,
    delete_runs,
    look_at,
    old_runs,
    parsed_age,
    prunable,
    prune_completions,
)
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.workspace import Workspace

_OF_RUN = ("Run", "Created (UTC)", "Name")

_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command("prune")
@click.option("--older-than", required=True, metavar="AGE", help="Such as 12h, 90d or 8w.")
@click.option(
    "--completions",
    is_flag=True,
    help="Delete the texts of the answers alone: their verdicts and all numbers stay.",
)
@click.option(
    "--keep",
    type=click.IntRange(0, MAX_INTEGER),
    default=0,
    metavar="N",
    help="Keep the N newest runs, however old they are.",
)
@click.option(
    "--archive-to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Archive each run there first, read that back and compare it; `runs restore` undoes.",
)
@click.option("--dry-run", is_flag=True, help="List them, then stop.")
@_yes
def prune(
    older_than: str,
    *,
    completions: bool,
    keep: int,
    archive_to: Path | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete the runs that are older than an age, imported ones too.

    With --completions the runs stay, with outcome, reason, tokens, cost, times and every metric;
    `reparse` and the texts of reports then lack the answers. Runs that workers are at are left out.
    """
    workspace = open_workspace()
    found = old_runs(workspace.engine, parsed_age(older_than), keep)
    for each in found:
        if each.busy is not None:
            note(f"left out: {each.busy}")
    old = [each for each in found if each.busy is None]
    if not old:
        say("no run is that old")
    elif completions:
        runs = prunable(workspace.engine, old)
        _prune(workspace, runs, archive_to, dry_run=dry_run, yes=yes)
    else:
        numbers = ("Models", "Verdicts", "Snapshots")
        print_table(TextTable(_OF_RUN, map(_doomed_row, old), numbers))
        if not dry_run:
            _delete(workspace, old, archive_to, yes=yes)


@click.command("delete")
@click.argument("run", type=Utf8())
@_yes
def delete(run: str, *, yes: bool) -> None:
    """Delete a run with its verdicts and snapshots.

    A run that workers are at has to be paused or cancelled first. Its samples and its prompt go
    with it, unless another run has them too; datasets that you imported stay.
    """
    workspace = open_workspace()
    doomed = look_at(workspace.engine, find_run(workspace.engine, run))
    if doomed.busy is not None:
        raise StoreError(doomed.busy)
    _delete(workspace, [doomed], yes=yes)


def _doomed_row(each: Doomed) -> tuple[str, ...]:
    size = each.size
    numbers = (size.models, size.verdicts, size.snapshots)
    return *_of_run(each), *(f"{number:,}" for number in numbers)


def _of_run(each: Doomed | Prunable) -> tuple[str, str, str]:
    return each.run.run_id, f"{each.run.created_at:%Y-%m-%d %H:%M}", each.run.name


def _delete(
    workspace: Workspace, doomed: Sequence[Doomed], archive_to: Path | None = None, *, yes: bool
) -> None:
    """Delete runs after a question.

    Args:
        archive_to: Folder to archive them to before; None: not at all.
    """
    verdicts = sum(each.size.verdicts for each in doomed)
    snapshots = sum(each.size.snapshots for each in doomed)
    held = f"{counted(verdicts, 'verdict')} and {counted(snapshots, 'snapshot')}"
    what = f"{_named(doomed)} with {held}"
    if not (yes or confirmed(f"Delete {what}?")):
        note("nothing was deleted")
        return
    if archive_to is None:
        delete_runs(workspace, doomed, Shown())
    else:
        places = _archived(workspace, doomed, archive_to)
        delete_archived(workspace, list(zip(doomed, places, strict=True)), Shown())
    say(f"deleted {what}")


def _archived(
    workspace: Workspace, runs: Sequence[Doomed | Prunable], archive_to: Path
) -> list[Path]:
    """Archive runs, and return the folders."""
    places = []
    for each in runs:
        places.append(archive_run(workspace.engine, each.run.run_id, archive_to, Shown()))
        say(f"{places[-1]}: read back and compared")
    return places


def _prune(
    workspace: Workspace,
    runs: Sequence[Prunable],
    archive_to: Path | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    if not runs:
        say("no run that old has completions to delete")
        return
    print_table(TextTable(_OF_RUN, map(_prunable_row, runs), ("Completions", "MB")))
    if dry_run:
        return
    number = sum(each.size.completions for each in runs)
    what = f"{counted(number, 'completion')} of {_named(runs)}"
    if not (yes or confirmed(f"Delete {what}?")):
        note("nothing was deleted")
        return
    if archive_to is not None:
        for place in _archived(workspace, runs, archive_to):
            require_unchanged(workspace.engine, read_manifest(place))
    pruned = prune_completions(workspace.engine, runs, Shown())
    say(f"deleted {counted(pruned, 'completion')} of {_named(runs)}; all numbers stay")


def _prunable_row(each: Prunable) -> tuple[str, ...]:
    return *_of_run(each), f"{each.size.completions:,}", f"{each.size.bytes / 1e6:,.1f}"


def _named(runs: Sequence[Doomed | Prunable]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} runs"
    return f"run {runs[0].run.run_id} {runs[0].run.name}".strip()
