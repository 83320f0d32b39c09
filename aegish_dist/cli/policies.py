"""`aegish-dist policies`: guards made of several guards."""

import shlex
from functools import partial
from pathlib import Path

import click

from aegish_dist.cli.command import FILE, group
from aegish_dist.cli.opinions import note_overlay, with_bounds, with_opinion, with_suspicion
from aegish_dist.cli.options import (
    MAX_INTEGER,
    as_json,
    guards,
    limited,
    open_run,
    refuse_usage,
    run_id,
    without_collector,
)
from aegish_dist.cli.printing import note_next, note_written, say, shown, to_file
from aegish_dist.files import require_new
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.opinion_files import read_policy
from aegish_dist.opinions.policy import Requirements, explain
from aegish_dist.opinions.scoring import SuspicionRule
from aegish_dist.pipeline.policies import search_run, write_winner
from aegish_dist.report.drawing import rendered
from aegish_dist.report.systems import build_systems, systems_document


@group("aegish-dist policies search", "aegish-dist policies explain mine.toml")
def policies() -> None:
    """Find and explain systems made of several guards."""


@policies.command("explain", examples=("aegish-dist policies explain mine.toml",))
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
def explain_(files: tuple[Path, ...]) -> None:
    """Say in plain sentences what a policy file does.

    A policy makes one guard of several: who is asked when, and who decides. All files are checked
    before anything is printed.
    """
    policies = [read_policy(path) for path in files]
    for number, policy in enumerate(policies):
        if number:
            say("")
        say(*explain(policy))


@policies.command(
    "search",
    examples=(
        "aegish-dist policies search",
        "aegish-dist policies search --run-id nightly --max-fpr 0.01",
        "aegish-dist policies search --max-cost-per-1000 2 --max-p95-ms 3000 --write best.toml",
    ),
)
@run_id(default="latest")
@guards("--models", "ID[,ID...]", "Only these. Default: all that have answered, no baselines.")
@with_bounds
@click.option("--write", type=FILE, metavar="FILE", help="Write the winner into a new policy file.")
@limited("Systems of the Pareto line in the table, 0 for all.", default=6)
@as_json
@to_file
@with_opinion
@with_suspicion
def search(
    *,
    run_id: str,
    models: list[str],
    bounds: Requirements | None,
    write: Path | None,
    limit: int,
    as_json: bool,
    output: Path | None,
    opinion: Opinion,
    suspicion: SuspicionRule,
) -> None:
    """Find the best system of guards for a run.

    Tries single guards with a moved threshold, two guards side by side, and guards that ask a
    dearer one. Thresholds and system are chosen on some binaries and judged on others, so that the
    winner is not the luckiest. What a single guard does stands beside it. Calls no model. A file
    that `--write` makes knows these commands: no gate judges it on them.
    """
    if write is not None:
        refuse_usage((write == output, "--write and --output name the same file"))
        # A policy that a gate relies on is not replaced.
        require_new(write)
    needs = bounds or Requirements()
    store, run = open_run(run_id)
    note_overlay(store, run, opinion)
    with shown(output) as show:
        with without_collector():
            data = search_run(store.engine, run, opinion, suspicion, models, requirements=needs)
        if write is not None:
            write_winner(data, write)
        systems = build_systems(data, limit or MAX_INTEGER)
        show(partial(rendered, systems_document(data) if as_json else systems))
    if write is not None:
        note_written(write)
        note_next(f"aegish-dist policies explain {shlex.quote(str(write))}")
