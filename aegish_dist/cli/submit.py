"""`aegish-dist submit` and `extend`: start a run, or ask more of one."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import click

from aegish_dist.cli.options import (
    Duration,
    Function,
    Utf8,
    as_each_call,
    as_json,
    call_parameters,
    comma_list,
    cost_cap,
    open_workspace,
    run_id,
    usd,
    wait,
)
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.status_view import Shown, aggregated, halted, left_to_retry
from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.sample import Dataset
from aegish_dist.core.status import RunStatus
from aegish_dist.models import RunEstimate
from aegish_dist.pipeline.plan import Request, RunPlan, takes_batches
from aegish_dist.pipeline.runs import find_run
from aegish_dist.pipeline.submit import RunOutcome, extend_run, first_reports, start_run

_OF_ASKING = (
    click.option(
        "--keys-on-workers",
        is_flag=True,
        help="Do not look for API keys here; the workers have them.",
    ),
    click.option(
        "--skip-preflight",
        is_flag=True,
        help="Do not ask each model one harmless question beforehand.",
    ),
    click.option(
        "--dry-run", is_flag=True, help="Show the plan and its estimated cost, then stop."
    ),
    wait,
)


def with_checks(function: Function) -> Function:
    """Add the options about what is checked before money is spent, and how long to stay."""
    for option in reversed(_OF_ASKING):
        function = option(function)
    return function


def asked_document(
    models: Iterable[ModelSpec], datasets: Iterable[Dataset], estimate: RunEstimate
) -> dict[str, Any]:
    """Return what is asked of whom, and its expected cost, in JSON types."""
    cost = estimate.cost_usd
    return {
        "tasks": estimate.calls,
        "models": [spec.id for spec in models],
        "datasets": [
            {"name": d.name, "fingerprint": d.fingerprint, "samples": len(d.samples)}
            for d in datasets
        ],
        "estimate": {
            "input_tokens": estimate.input_tokens,
            "output_tokens": estimate.output_tokens,
            "cost_usd": None if cost is None else float(cost),
        },
    }


_TAKEN_OVER = ("limit", "epochs", "prompt", "cot", "name", "keys_on_workers", "dry_run", "wait")
"""Options that are fields of a request under the same name."""

EXAMPLES = """\b
Examples:
  aegish-dist submit --models baseline/keyword,openai/gpt-5.1 --limit 50
  aegish-dist submit --models all --epochs 3 --dry-run
  aegish-dist submit --models openai/gpt-5.1,anthropic/claude-haiku-5-5 --batch"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--models",
    required=True,
    callback=comma_list,
    metavar="ID[,ID...]|all|available",
    help="Models to ask; `models list` shows them. `available`: those of `all` with a key here.",
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=Utf8(),
    callback=comma_list,
    metavar="NAME",
    help="Datasets to ask, repeatable; NAME@RUN for those of a run. Default: all bundled ones.",
)
@click.option(
    "--categories",
    multiple=True,
    callback=comma_list,
    metavar="NAME[,NAME...]",
    help="Only malicious samples of these categories; harmless samples stay.",
)
@click.option("--limit", type=click.IntRange(1), help="At most this many samples of each dataset.")
@click.option(
    "--epochs",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Ask every sample this often.",
)
@as_each_call
@cost_cap(
    "--max-cost",
    "Begin no further call once the run has cost this much; `resume` can raise it.",
)
@cost_cap("--max-cost-per-model", "The same for each model.")
@click.option(
    "--batch",
    is_flag=True,
    help="Ask in batches where the provider takes them: half the price, answers within a day.",
)
@click.option(
    "--batch-after",
    type=Duration(),
    metavar="T",
    help="Ask live for so long, such as 30m or 2h, and the rest in batches.",
)
@click.option(
    "--name", type=Utf8(), default="", help="A name for the run, which `--run-id` takes too."
)
@with_checks
@as_json
def submit(**options: Any) -> int:
    """Ask models about commands: start a run.

    Before any money is spent it prints the number of calls, their estimated tokens and cost, and
    which models lack a key, and asks each model one harmless question with the run's own prompt
    and parameters: when one refuses them, nothing is started. Without a configured broker the run
    is worked on here until it is complete; on a cluster the command returns as soon as everything
    is enqueued.
    """
    workspace = open_workspace()
    started = start_run(
        workspace, _request(options), Shown(here=workspace.settings.embedded_broker)
    )
    if options["as_json"]:
        say_json(_document(started))
    elif started.run is not None:
        say(started.run.run_id)
    if started.run is None:
        return 0
    if started.status is None and (reports := first_reports(workspace, started)) is not None:
        for line in halted(reports):
            note(line)
    _advise(started.run.run_id, started.status)
    ended = started.status
    return 1 if ended is not None and ended.missing else 0


def _caps(options: dict[str, Any], parameters: CallParameters) -> CallParameters:
    return replace(
        parameters,
        max_cost_usd=usd(options["max_cost"]),
        max_cost_per_model_usd=usd(options["max_cost_per_model"]),
    )


def _request(options: dict[str, Any]) -> Request:
    batch_after_s = 0.0 if options["batch"] else options["batch_after"]
    if options["batch"] and options["batch_after"] is not None:
        raise click.UsageError("--batch asks everything in batches: leave out --batch-after")
    return Request(
        models=options["models"],
        parameters=_caps(options, call_parameters(options)),
        datasets=options["datasets"],
        categories=options["categories"],
        preflight=not options["skip_preflight"],
        batch_after_s=batch_after_s,
        **{name: options[name] for name in _TAKEN_OVER},
    )


def _advise(run_id: str, status: RunStatus | None) -> None:
    if status is None:
        note(f"follow it with: aegish-dist status --run-id {run_id} --watch")
        return
    if status.ended and status.missing:
        for line in (*halted(status), *aggregated(status)):
            note(line)
    elif status.missing:
        note(
            f"{status.missing} verdicts are missing, the log says why;"
            f" try again with: aegish-dist resume --run-id {run_id}"
        )
    else:
        lines = list(aggregated(status))
        for line in lines or ["no worker has made a snapshot of it yet: `report` makes one"]:
            note(line)
        note(f"see the results with: aegish-dist report --run-id {run_id}")
    for line in left_to_retry(status):
        note(line)


def _document(started: RunOutcome) -> dict[str, Any]:
    plan = started.plan
    return {
        "run_id": started.run.run_id if started.run else None,
        "snapshot_id": started.status.snapshot_id if started.status else None,
        **asked_document(plan.models, plan.datasets, started.estimate),
        "batches": _batches(plan),
    }


def _batches(plan: RunPlan) -> dict[str, Any] | None:
    estimated = plan.batch_estimate()
    if estimated is None:
        return None
    cost = estimated.cost_usd
    return {
        "after_s": plan.batch_after_s,
        "models": [spec.id for spec in plan.models if takes_batches(spec)],
        "cost_usd": None if cost is None else float(cost),
    }


EXAMPLES_EXTEND = """\b
Examples:
  aegish-dist extend --run-id latest --epochs 3
  aegish-dist extend --run-id nightly --models openai/gpt-5.1 --dry-run"""


@click.command(epilog=EXAMPLES_EXTEND)
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
    calls = extended.estimate.calls
    if options["as_json"]:
        say_json(_extend_document(found, extended))
    elif extended.run is not None:
        say(f"{found}: {calls:,} items added")
    else:
        say(f"{found}: {calls:,} items would be added")
    for line in _advice(found, extended):
        note(line)
    status = extended.status
    return 1 if extended.waited and status is not None and status.missing else 0


def _addition(options: dict[str, Any]) -> Request:
    if not (options["models"] or options["epochs"] or options["datasets"]):
        raise click.UsageError("say what to add: --models, --epochs or --dataset")
    return Request(
        models=tuple(options["models"]),
        epochs=options["epochs"],
        datasets=tuple(options["datasets"]),
        parameters=_caps(options, CallParameters()),
        keys_on_workers=options["keys_on_workers"],
        preflight=not options["skip_preflight"],
        dry_run=options["dry_run"],
        wait=options["wait"],
    )


def _advice(run_id: str, extended: RunOutcome) -> tuple[str, ...]:
    """Return lines about what is left."""
    status = extended.status
    if extended.waited and status is not None:
        return (*halted(status), *left_to_retry(status))
    if extended.run is not None:
        return (f"follow it with: aegish-dist status --run-id {run_id} --watch",)
    return ()


def _extend_document(run_id: str, extended: RunOutcome) -> dict[str, Any]:
    plan, status = extended.plan, extended.status
    return {
        "run_id": run_id,
        **asked_document(plan.models, plan.datasets, extended.estimate),
        "epochs": plan.epochs,
        "stored": extended.run is not None,
        "missing": None if status is None else status.missing,
    }
