"""`aegish-dist runs archive` and `restore`: a run to a folder of Parquet files, and back."""

from pathlib import Path

import click

from aegish_dist.cli.options import Utf8, open_workspace
from aegish_dist.cli.printing import confirmed, note, say
from aegish_dist.cli.status_view import Shown
from aegish_dist.core.text import counted
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.archives import archive_run, delete_archived, restore_run
from aegish_dist.pipeline.delete_runs import look_at
from aegish_dist.pipeline.runs import find_run

folder = click.Path(path_type=Path, file_okay=False)


@click.command("archive")
@click.argument("run", type=Utf8())
@click.option("--to", "to", type=folder, required=True, help="The archive is a folder in this one.")
@click.option("--delete", "deletes", is_flag=True, help="Delete the run once that is compared.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def archive(run: str, to: Path, *, deletes: bool, yes: bool) -> None:
    """Write a run to Parquet files, and compare them with the store.

    Everything goes along: samples, prompt, verdicts, attempts, retries and snapshots. Nothing is
    deleted without --delete, and then only what the archive was compared with.
    """
    workspace = open_workspace()
    found = look_at(workspace.engine, find_run(workspace.engine, run))
    if deletes and found.busy is not None:
        raise StoreError(found.busy)
    place = archive_run(workspace.engine, found.run.run_id, to, Shown())
    say(f"{place}: {counted(found.size.verdicts, 'verdict')}, read back and compared")
    if not deletes:
        return
    named = f"run {found.run.run_id} {found.run.name}".strip()
    if yes or confirmed(f"Delete {named}?"):
        delete_archived(workspace, [(found, place)], Shown())
        say(f"deleted {named}")
    else:
        note("nothing was deleted")


@click.command("restore")
@click.argument("archive", type=click.Path(path_type=Path, file_okay=False, exists=True))
def restore(archive: Path) -> None:
    """Bring a run back from its archive, whole or not at all.

    A run that is in the store and lacks completions gets these back.
    """
    restored = restore_run(open_workspace().engine, archive, Shown())
    named = f"run {restored.run_id} {restored.name}".strip()
    if restored.completions is None:
        say(f"restored {named} with {counted(restored.verdicts, 'verdict')}")
    else:
        say(f"restored {counted(restored.completions, 'completion')} of {named}")
    if restored.still_pruned:
        note(f"{counted(restored.still_pruned, 'completion')} of it had been pruned before")
