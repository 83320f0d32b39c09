"""`aegish-dist aggregate`: score a run's verdicts."""

from pathlib import Path

from aegish_dist.cli.command import advanced, command
from aegish_dist.cli.opinions import note_overlay, with_opinion_options
from aegish_dist.cli.options import as_json, open_run, run_id, without_collector
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.core.text import JsonObject, counted
from aegish_dist.findings.snapshot import Snapshot
from aegish_dist.pipeline.aggregate import aggregate as aggregate_run
from aegish_dist.pipeline.opinions import load_opinions


@command("aegish-dist aggregate", "aegish-dist aggregate --run-id nightly --scoring all --json")
@run_id(default="latest")
@with_opinion_options
@advanced("--recount", is_flag=True, help="Count every model, also unchanged ones.")
@as_json
def aggregate(
    run_id: str,
    *,
    scoring: str,
    targets: Path | None,
    overlay: Path | None,
    recount: bool,
    as_json: bool,
) -> None:
    """Score a run's verdicts and store a snapshot of the metrics.

    Calls no model. The same verdicts under the same rule set give the same numbers; only models
    with new verdicts are counted again. `--scoring all` applies every named rule set, and `--json`
    then prints a list.
    """
    opinions = load_opinions(scoring, targets, overlay)
    store, run = open_run(run_id)
    # All of them have the same overlay.
    note_overlay(store, run, opinions[0])
    with without_collector():
        snapshots = aggregate_run(store.engine, run, opinions, recount=recount)
    if as_json:
        documents = [document(snapshot) for snapshot in snapshots]
        say_json(documents if len(documents) > 1 else documents[0])
    else:
        say(*(_line(run, snapshot) for snapshot in snapshots))
        note(f"print one with: aegish-dist report --run-id {run}")


def _line(run_id: str, snapshot: Snapshot) -> str:
    opinion = snapshot.scoring
    overlay = snapshot.opinion and snapshot.opinion.overlay
    if overlay:
        opinion += f" and overlay '{overlay.name}' version {overlay.version}"
    verdicts = counted(snapshot.verdicts, "verdict")
    return f"snapshot {snapshot.snapshot_id}: run {run_id} under {opinion}, {verdicts}"


def document(snapshot: Snapshot) -> JsonObject:
    """Return the machine interface of a snapshot."""
    return {
        "run_id": snapshot.run_id,
        "snapshot_id": snapshot.snapshot_id,
        "scoring": snapshot.scoring,
        "scoring_version": snapshot.scoring_version,
        "opinion": None if snapshot.opinion is None else snapshot.opinion.provenance,
        "created_at": snapshot.created_at.isoformat(),
        "verdicts": snapshot.verdicts,
        "verdicts_hash": snapshot.verdicts_hash,
        **snapshot.document,
    }
