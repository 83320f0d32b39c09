"""`aegish-dist extend`: ask more of a run."""

from typing import Any

import click

from aegish_dist.cli.asking import asked_document, with_checks
from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import Utf8, as_json, comma_list, cost_cap, run_id, usd
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.status_view import Shown, halted, left_to_retry
from aegish_dist.pipeline.extend import Extended, extend_run
from aegish_dist.pipeline.extension import Addition
from aegish_dist.pipeline.runs import find_run

EXAMPLES = """\b
Examples:
  aegish-dist extend --run-id latest --epochs 3
  aegish-dist extend --run-id nightly --models openai/gpt-5.1 --dry-run"""


@click.command(epilog=EXAMPLES)
@run_id()
@click.option(
    "--models",
    multiple=True,
    type=Utf8(),
    callback=comma_list,
    metavar="ID[,ID...]",
    help="Models to ask as well.",
)
@click.option("--epochs", type=click.IntRange(1, 1000), help="Ask every sample this often, in all.")
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=Utf8(),
    callback=comma_list,
    metavar="NAME",
    help="Datasets to ask as well, repeatable; NAME@RUN for those of a run.",
)
@cost_cap(
    "--max-cost",
    "Raise the cap of a run that was submitted with one; what it has cost so far counts.",
)
@cost_cap("--max-cost-per-model", "The same for the cap of each model.")
@with_checks
@as_json
def extend(**options: Any) -> int:
    """Ask more of a run: further models, repeats or datasets.

    What is new is checked and estimated as by `submit`, and only that is asked: with the prompt and
    the parameters of the run, so that all its verdicts can be compared. Without a configured broker
    it is worked on here until the run is complete.
    """
    workspace = open_workspace()
    found = find_run(workspace.engine, options["run_id"])
    extended = extend_run(
        workspace, found, _addition(options), Shown(here=workspace.settings.embedded_broker)
    )
    calls = extended.extension.estimate.calls
    if options["as_json"]:
        say_json(_document(extended))
    elif extended.stored:
        say(f"{found}: {calls:,} items added")
    else:
        say(f"{found}: {calls:,} items would be added")
    for line in _advice(extended):
        note(line)
    return 1 if extended.waited and extended.status.missing else 0


def _addition(options: dict[str, Any]) -> Addition:
    if not (options["models"] or options["epochs"] or options["datasets"]):
        raise click.UsageError("say what to add: --models, --epochs or --dataset")
    return Addition(
        models=tuple(options["models"]),
        epochs=options["epochs"],
        datasets=tuple(options["datasets"]),
        run_cap=usd(options["max_cost"]),
        model_cap=usd(options["max_cost_per_model"]),
        keys_on_workers=options["keys_on_workers"],
        preflight=not options["skip_preflight"],
        dry_run=options["dry_run"],
        wait=options["wait"],
    )


def _advice(extended: Extended) -> tuple[str, ...]:
    """Return lines about what is left."""
    status = extended.status
    if extended.waited:
        return (*halted(status), *left_to_retry(status))
    if extended.stored:
        return (f"follow it with: aegish-dist status --run-id {status.run_id} --watch",)
    return ()


def _document(extended: Extended) -> dict[str, Any]:
    extension, status = extended.extension, extended.status
    return {
        "run_id": extension.run.run_id,
        **asked_document(extension.models, extension.datasets, extension.estimate),
        "epochs": extension.epochs,
        "stored": extended.stored,
        "missing": status.missing,
    }
