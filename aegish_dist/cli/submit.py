"""`aegish-dist submit`: start a run."""

from dataclasses import replace
from typing import Any

import click

from aegish_dist.cli.asking import asked_document, with_checks
from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import (
    Duration,
    Utf8,
    as_each_call,
    as_json,
    call_parameters,
    comma_list,
    cost_cap,
    usd,
)
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.status_view import Shown, aggregated, halted, left_to_retry
from aegish_dist.core.status import RunStatus
from aegish_dist.pipeline.batch_prices import takes_batches
from aegish_dist.pipeline.plan import Request, Submission
from aegish_dist.pipeline.start_run import Started, first_reports, start_run

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


def _request(options: dict[str, Any]) -> Request:
    batch_after_s = 0.0 if options["batch"] else options["batch_after"]
    if options["batch"] and options["batch_after"] is not None:
        raise click.UsageError("--batch asks everything in batches: leave out --batch-after")
    return Request(
        models=options["models"],
        parameters=replace(
            call_parameters(options),
            max_cost_usd=usd(options["max_cost"]),
            max_cost_per_model_usd=usd(options["max_cost_per_model"]),
        ),
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


def _document(started: Started) -> dict[str, Any]:
    submission = started.submission
    return {
        "run_id": started.run.run_id if started.run else None,
        "snapshot_id": started.status.snapshot_id if started.status else None,
        **asked_document(submission.models, submission.datasets, started.estimate),
        "batches": _batches(submission),
    }


def _batches(submission: Submission) -> dict[str, Any] | None:
    estimated = submission.batch_estimate()
    if estimated is None:
        return None
    cost = estimated.cost_usd
    return {
        "after_s": submission.batch_after_s,
        "models": [spec.id for spec in submission.models if takes_batches(spec)],
        "cost_usd": None if cost is None else float(cost),
    }
