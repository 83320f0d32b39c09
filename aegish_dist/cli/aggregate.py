"""`aegish-dist aggregate`: score a run's verdicts."""

import click

from aegish_dist.cli.context import open_workspace, without_collector
from aegish_dist.cli.options import as_json, run_id
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.core.scoring import DEFAULT_RULE, RULES
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.pipeline.aggregate import ALL, rules_named
from aegish_dist.pipeline.aggregate import aggregate as aggregate_run
from aegish_dist.pipeline.runs import find_run


@click.command()
@run_id(default="latest")
@click.option(
    "--scoring",
    default=DEFAULT_RULE.name,
    show_default=True,
    metavar="|".join((*RULES, ALL)),
    help="The rule set to apply.",
)
@click.option("--recount", is_flag=True, help="Count also what has not changed.")
@as_json
def aggregate(run_id: str, scoring: str, recount: bool, as_json: bool) -> None:
    """Score a run's verdicts and store a snapshot of the metrics.

    No model is called. The same verdicts under the same rule give the same numbers, so a run can
    be scored again at any time, under any rule. Models whose verdicts have not changed since the
    last snapshot are not counted again. With `--scoring all --json` a list is printed.
    """
    workspace = open_workspace()
    rules = rules_named(scoring)
    found = find_run(workspace.engine, run_id)
    with without_collector():
        snapshots = aggregate_run(workspace.engine, found, rules, recount=recount)
    if as_json:
        documents = [document(snapshot) for snapshot in snapshots]
        say_json(documents if scoring == ALL else documents[0])
        return
    for snapshot in snapshots:
        say(
            f"snapshot {snapshot.snapshot_id}: run {found} under {snapshot.scoring}, "
            f"{snapshot.verdicts:,} verdicts"
        )
    note(f"print one with: aegish-dist report --run-id {found}")


def document(snapshot: Snapshot) -> dict[str, object]:
    """Return the machine interface of a snapshot."""
    return {
        "run_id": snapshot.run_id,
        "snapshot_id": snapshot.snapshot_id,
        "scoring": snapshot.scoring,
        "scoring_version": snapshot.scoring_version,
        "created_at": snapshot.created_at.isoformat(),
        "verdicts": snapshot.verdicts,
        "verdicts_hash": snapshot.verdicts_hash,
        **snapshot.document,
    }
