"""`aegish-dist runs`: list, rename, archive and delete runs."""

from importlib import import_module
from typing import Any

import click
from msgspec.structs import asdict

from aegish_dist.cli.command import Group
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

_ELSEWHERE = ("archive", "delete", "prune", "restore")
"""Commands of `cli.archive`, which brings half the package: `runs` alone does not need them."""


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
def runs(context: click.Context, /, **options: Any) -> None:
    """List, rename, archive and delete runs; `runs` alone lists them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, **options)


@runs.command("list", examples=("aegish-dist runs list --limit 5", "aegish-dist runs list --json"))
@_limit
@as_json
def list_(limit: int, as_json: bool) -> None:
    """List the runs, newest first."""
    found = recent_runs(open_store().engine, limit and limit + 1)
    more = 0 < limit < len(found)
    found = found[: limit or None]
    if as_json:
        say_json([{**asdict(r), "created_at": r.created_at.isoformat()} for r in found])
    else:
        narrow = on_terminal(stderr=False) and list_width() < 100
        columns = ("Run", "Name", "Created (UTC)", "Held", "Origin")[: 4 if narrow else 5]
        numbers = ("Models", "Samples", "Epochs", "Verdicts")[3 if narrow else 0 :]
        rows = [_row(run, len(columns), len(numbers)) for run in found]
        say_table(columns, rows, numbers, ids=3)
    if more:
        note("there are older runs: --limit 0 lists all")


def _row(run: RunSummary, texts: int, counts: int) -> tuple[str, ...]:
    numbers = (run.models, run.samples, run.epochs, run.verdicts)
    created = f"{run.created_at:%Y-%m-%d %H:%M}"
    words = (run.run_id, run.name, created, run.held or "", run.origin)
    return *words[:texts], *(f"{number:,}" for number in numbers[-counts:])


@runs.command(
    "show", examples=("aegish-dist runs show latest", "aegish-dist runs show nightly --as-file")
)
@one_run
@click.option("--as-file", is_flag=True, help="As a run file, for `submit --run-file`.")
def show_(run: str, as_file: bool) -> None:
    """Show what a run asks of whom.

    `--as-file` prints it as a run file that asks the same questions again: models with their arms,
    prompts with their fingerprints, datasets, parameters and caps.
    """
    from aegish_dist.pipeline.run_file import describe_run, run_file  # noqa: PLC0415  with reports

    workspace, found = open_run(run)
    if as_file:
        say_lines(run_file(workspace.engine, found))
    else:
        say(*(f"{label:<11} {text}" for label, text in describe_run(workspace.engine, found)))


@runs.command("rename", examples=("aegish-dist runs rename --run-id latest nightly",))
@click.argument("words", nargs=-1, type=Utf8(), metavar="[RUN] NAME")
@run_id(required=False)
def rename_(words: tuple[str, ...], run_id: str | None) -> None:
    """Give a run another name; "" takes its name away."""
    named = (*filter(None, (run_id,)), *words)
    refuse_usage((len(named) != 2, "name one run and its new name: --run-id R NAME"))
    run, name = named
    workspace, found = open_run(run)
    given = rename(workspace.engine, found, name)
    say(f"{found}: {given}" if given else f"{found}: no name")
