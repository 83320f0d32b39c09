"""`aegish-dist runs`: list, rename, archive and delete runs."""

from collections.abc import Sequence
from importlib import import_module

import click
from msgspec.structs import asdict

from aegish_dist.cli.command import Group, flag
from aegish_dist.cli.options import (
    Utf8,
    as_json,
    limited,
    one_run,
    open_run,
    open_store,
    refuse_usage,
    run_id,
)
from aegish_dist.cli.printing import (
    list_width,
    note,
    on_terminal,
    say,
    say_json,
    say_lines,
    say_table,
)
from aegish_dist.core.run import RunSummary
from aegish_dist.pipeline.runs import recent_runs, rename

_limit = limited("At most this many, 0 for all.", default=20)

# Commands of `cli.archive`, which brings half the package: `runs` alone does not need them.
_ELSEWHERE = ("archive", "delete", "prune", "restore")


class _Runs(Group):
    """Imports the commands that delete and archive when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, *_ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module("aegish_dist.cli.archive"), cmd_name)
        return command


@click.group(
    cls=_Runs,
    invoke_without_command=True,
    examples=("aegish-dist runs", "aegish-dist runs list --json"),
)
@_limit
@as_json
@click.pass_context
def runs(context: click.Context, limit: int, as_json: bool) -> None:
    """List, rename, archive and delete runs; `runs` alone lists them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, limit=limit, as_json=as_json)


@runs.command("list", examples=("aegish-dist runs list --limit 5", "aegish-dist runs list --json"))
@_limit
@as_json
def list_(limit: int, as_json: bool) -> None:
    """List the runs, newest first."""
    # One run more than is shown tells whether there are older ones.
    asked = limit + 1 if limit else 0
    runs = recent_runs(open_store().engine, asked)
    shown = runs[:limit] if limit else runs
    if as_json:
        say_json([{**asdict(run), "created_at": run.created_at.isoformat()} for run in shown])
    else:
        _say_table(shown)
    if len(shown) < len(runs):
        note("there are older runs: --limit 0 lists all")


def _say_table(runs: Sequence[RunSummary]) -> None:
    """Print a table of runs; a narrow terminal shows only some of its columns."""
    texts = ["Run", "Name", "Created (UTC)", "Held"]
    numbers = ["Verdicts"]
    # What reads a pipe gets every column: it looks for a column by its place.
    wide = list_width() >= 100 or not on_terminal(stderr=False)
    if wide:
        texts.append("Origin")
        numbers = ["Models", "Samples", "Epochs", "Verdicts"]
    rows = []
    for run in runs:
        created = f"{run.created_at:%Y-%m-%d %H:%M}"
        row = [run.run_id, run.name, created, run.held or ""]
        if wide:
            row += [run.origin, f"{run.models:,}", f"{run.samples:,}", f"{run.epochs:,}"]
        rows.append([*row, f"{run.verdicts:,}"])
    say_table(texts, rows, numbers, ids=3)


@runs.command(
    "show", examples=("aegish-dist runs show latest", "aegish-dist runs show nightly --as-file")
)
@one_run
@flag("--as-file", help="As a run file, for `submit --run-file`.")
def show_(run: str, as_file: bool) -> None:
    """Show what a run asks of whom.

    `--as-file` prints it as a run file that asks the same questions again: models with their arms,
    prompts with their fingerprints, datasets, parameters and caps.
    """
    from aegish_dist.pipeline.run_file import describe_run, run_file  # noqa: PLC0415  with reports

    store, run_id = open_run(run)
    if as_file:
        say_lines(run_file(store.engine, run_id))
        return
    for label, text in describe_run(store.engine, run_id):
        say(f"{label:<11} {text}")


@runs.command("rename", examples=("aegish-dist runs rename --run-id latest nightly",))
@click.argument("words", nargs=-1, type=Utf8(), metavar="[RUN] NAME")
@run_id(required=False)
def rename_(words: tuple[str, ...], run_id: str | None) -> None:
    """Give a run another name; "" takes its name away."""
    # The run may be named by its option or by the first word.
    named = (run_id, *words) if run_id else words
    refuse_usage((len(named) != 2, "name one run and its new name: --run-id R NAME"))
    run, new_name = named
    store, renamed = open_run(run)
    given = rename(store.engine, renamed, new_name) or "no name"
    say(f"{renamed}: {given}")
