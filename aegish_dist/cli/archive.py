"""`aegish-dist runs delete`, `prune`, `archive` and `restore`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from aegish_dist.cli.command import FOLDER, command, flag
from aegish_dist.cli.options import MAX_INTEGER, one_run, without_collector
from aegish_dist.cli.printing import confirmed, note, say, say_table
from aegish_dist.cli.status import Shown
from aegish_dist.cli.verdicts import note_unread
from aegish_dist.cli.workspace import open_run_to_ask, open_workspace
from aegish_dist.core.run import Run
from aegish_dist.core.text import counted
from aegish_dist.errors import DatasetError, OutputError, StoreError, StoreUnusableError
from aegish_dist.pipeline.archives import (
    LeavingRun,
    archive_run,
    delete_run,
    look_at,
    old_runs,
    parsed_age,
    prunable,
    prune_completions,
    restore_run,
)
from aegish_dist.pipeline.observer import Observer
from aegish_dist.pipeline.workspace import Workspace

T = TypeVar("T")

_yes = flag("--yes", help="Do not ask.")


@command(
    "aegish-dist runs prune --older-than 90d --dry-run",
    "aegish-dist runs prune --older-than 30d --completions --archive-to archive --yes",
)
@click.option("--older-than", required=True, metavar="AGE", help="Such as 12h, 90d or 8w.")
@flag(
    "--completions",
    help="Delete the texts of the answers alone: their verdicts and all numbers stay.",
)
@click.option(
    "--keep",
    type=click.IntRange(0, MAX_INTEGER),
    metavar="N",
    help="Keep the N newest runs, however old they are.",
)
@click.option(
    "--archive-to",
    type=FOLDER,
    metavar="FOLDER",
    help="Archive each run there first, read that back and compare it; `runs restore` undoes.",
)
@flag("--dry-run", help="List them, then stop.")
@_yes
def prune(
    older_than: str,
    keep: int | None,
    archive_to: Path | None,
    *,
    completions: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete runs older than an age, including imported ones.

    With --completions the runs stay, with outcome, reason, tokens, cost, times and every metric;
    `reparse` and the texts of reports then lack the answers. Runs in progress are left out.
    """
    workspace = open_workspace()
    runs = []
    for run in old_runs(workspace.engine, parsed_age(older_than), keep or 0):
        if run.busy is None:
            runs.append(run)
        else:
            note(f"left out: {run.busy}")
    if not runs:
        say("no run is that old")
        return
    shrink = _delete
    numbers = ["Models", "Verdicts", "Snapshots"]
    if completions:
        shrink = _prune
        numbers = ["Completions", "MB"]
        runs = prunable(workspace.engine, runs)
        if not runs:
            say("no run that old has completions to delete")
            return
    say_table(("Run", "Created (UTC)", "Name"), map(_row, runs), numbers)
    if not dry_run:
        shrink(workspace, runs, archive_to, yes=yes)


@command("aegish-dist runs delete --run-id nightly --yes")
@one_run
@_yes
def delete(run: str, *, yes: bool) -> None:
    """Delete a run with its verdicts and snapshots.

    Pause or cancel a run in progress first. Its samples and prompt are deleted too, unless
    another run uses them. Imported datasets stay.
    """
    workspace, run_id = open_run_to_ask(run)
    leaving = _idle(look_at(workspace.engine, run_id))
    _delete(workspace, [leaving], archive_to=None, yes=yes)


@command(
    "aegish-dist runs archive --run-id nightly --to archive",
    "aegish-dist runs archive --run-id nightly --to archive --delete --yes",
)
@one_run
@click.option("--to", "to", type=FOLDER, required=True, help="The archive is a folder in this one.")
@flag("--delete", "deletes", help="Delete the run once that is compared.")
@_yes
def archive(run: str, to: Path, *, deletes: bool, yes: bool) -> None:
    """Write a run to a folder of plain files, and read them back.

    It holds parameters, prompt, prices, samples, verdicts and snapshots. Nothing is deleted
    without --delete, and with it only what the files were compared with.
    """
    workspace, run_id = open_run_to_ask(run)
    leaving = look_at(workspace.engine, run_id)
    if deletes:
        # Refused before the archive is written, which may take minutes.
        _idle(leaving)
    place = archive_run(workspace.engine, run_id, to, Shown())
    say(f"{place}: {counted(leaving.size.verdicts, 'verdict')}, read back and compared")
    name = _name_of(leaving.run)
    if deletes and _agreed(name, yes=yes):
        delete_run(workspace, leaving, Shown(), place)
        say(f"deleted {name}")


@command("aegish-dist runs restore archive/1rxj8g3gx")
@click.argument("archive", type=click.Path(path_type=Path, file_okay=False, exists=True))
def restore(archive: Path) -> None:
    """Bring a run back from its archive, whole or not at all.

    Its answers are read as those of an import. Snapshots stay in the archive. A run whose
    completions were pruned gets them back.
    """
    workspace = open_workspace()
    with without_collector():
        output_of = workspace.catalog.output_of
        restored = restore_run(workspace.engine, archive, output_of, Shown())
    run = restored.run
    name = _name_of(run)
    if restored.completions is None:
        say(f"restored {name} with {counted(restored.verdicts, 'verdict')}")
    else:
        say(f"restored {counted(restored.completions, 'completion')} of {name}")
    note_unread(run.run_id, restored.unread)
    if restored.completions is None and run.held:
        note(
            "it lacks verdicts and is held: nothing is asked before"
            f" `aegish-dist resume --run-id {run.run_id}`"
        )
    if run.pruned:
        note(f"{counted(run.pruned.completions, 'completion')} of it had been pruned before")


def _idle(leaving: LeavingRun) -> LeavingRun:
    if leaving.busy is not None:
        raise StoreError(leaving.busy)
    return leaving


def _row(leaving: LeavingRun) -> list[str]:
    run = leaving.run
    row = [run.run_id, f"{run.created_at:%Y-%m-%d %H:%M}", run.name]
    texts = leaving.texts
    if texts is not None:
        megabytes = texts.bytes / 1e6
        return [*row, f"{texts.completions:,}", f"{megabytes:,.1f}"]
    size = leaving.size
    numbers = (size.models, size.verdicts, size.snapshots)
    return [*row, *(f"{number:,}" for number in numbers)]


def _delete(
    workspace: Workspace, runs: Sequence[LeavingRun], archive_to: Path | None, *, yes: bool
) -> None:
    verdicts = sum(leaving.size.verdicts for leaving in runs)
    snapshots = sum(leaving.size.snapshots for leaving in runs)
    size = f"{counted(verdicts, 'verdict')} and {counted(snapshots, 'snapshot')}"
    runs_with_size = f"{_named(runs)} with {size}"
    if _agreed(runs_with_size, yes=yes):
        _run_by_run(workspace, runs, archive_to, partial(delete_run, workspace))
        say(f"deleted {runs_with_size}")


def _prune(
    workspace: Workspace, runs: Sequence[LeavingRun], archive_to: Path | None, *, yes: bool
) -> None:
    number = sum(run.texts.completions for run in runs if run.texts is not None)
    names = _named(runs)
    if _agreed(f"{counted(number, 'completion')} of {names}", yes=yes):
        prune = partial(prune_completions, workspace.engine)
        # Another command may have deleted some of them since they were counted.
        pruned = sum(_run_by_run(workspace, runs, archive_to, prune))
        say(f"deleted {counted(pruned, 'completion')} of {names}; all numbers stay")


def _agreed(what: str, *, yes: bool) -> bool:
    if yes or confirmed(f"Delete {what}?"):
        return True
    note("nothing was deleted")
    return False


def _run_by_run(
    workspace: Workspace,
    runs: Sequence[LeavingRun],
    archive_to: Path | None,
    shrink: Callable[[LeavingRun, Observer, Path | None], T],
) -> list[T]:
    """Archive each run, if a folder is named, and delete of it; one that is refused stays alone."""
    deleted: list[T] = []
    for leaving in runs:
        try:
            place = None
            if archive_to is not None:
                run_id = leaving.run.run_id
                place = archive_run(workspace.engine, run_id, archive_to, Shown())
                say(f"{place}: read back and compared")
            deleted.append(shrink(leaving, Shown(), place))
        except (StoreError, DatasetError, OutputError) as error:
            # Without a store no further run can be worked on either.
            if len(runs) == 1 or isinstance(error, StoreUnusableError):
                raise
            note(f"left as it is: {error}")
    refused = len(runs) - len(deleted)
    if refused:
        raise StoreError(f"{refused} of {len(runs)} runs were left as they are")
    return deleted


def _named(runs: Sequence[LeavingRun]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} runs"
    return _name_of(runs[0].run)


def _name_of(run: Run) -> str:
    return f"run {run.run_id} {run.name}".strip()
