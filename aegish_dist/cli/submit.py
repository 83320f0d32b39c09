"""`aegish-dist submit`, `extend`, `pause`, `cancel`, `resume`, `retry`: start and steer a run."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import click
from msgspec.structs import replace

from aegish_dist.cli.command import Advanced, advanced, command, flag
from aegish_dist.cli.options import (
    Duration,
    Utf8,
    as_json,
    completes,
    cost_cap,
    guards,
    names,
    read_into,
    run_file,
    run_id,
    together,
    wait,
    with_call_parameters,
    with_prompts,
)
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.status import Shown, aggregated, halted, left_to_retry
from aegish_dist.cli.workspace import models, open_run_to_ask, open_workspace
from aegish_dist.core.model import CallParameters
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import RunPause
from aegish_dist.core.status import RunStatus
from aegish_dist.core.text import JsonObject, as_number, counted
from aegish_dist.datasets.bundled import bundled_names
from aegish_dist.pipeline.control import RunOutcome, hold_run, outcomes_named, resume_run, retry_run
from aegish_dist.pipeline.plan import Request, RunPlan, takes_batches
from aegish_dist.pipeline.submit import Submission, extend_run, first_reports, start_run


def _request(*, keys_on_workers: bool, skip_preflight: bool, dry_run: bool, wait: bool) -> Request:
    return Request(
        keys_on_workers=keys_on_workers,
        preflight=not skip_preflight,
        dry_run=dry_run,
        wait=wait,
    )


# Adds what is checked before money is spent, and whether the end of the run is waited for. The
# command gets a request that says this, and lacks what is asked of whom.
with_care = read_into(
    "request",
    _request,
    advanced(
        "--keys-on-workers",
        is_flag=True,
        help="Do not look for API keys here; the workers have them.",
    ),
    advanced(
        "--skip-preflight",
        is_flag=True,
        help="Do not ask each model one harmless question beforehand.",
    ),
    flag("--dry-run", help="Show the plan and its estimated cost, then stop."),
    wait,
)

raised_caps = together(
    cost_cap(
        "--max-cost",
        "Raise the cap of a run that was submitted with one; what it has cost so far counts.",
    ),
    cost_cap("--max-cost-per-model", "The same for the cap of each model.", cls=Advanced),
)


@command(
    "aegish-dist submit --models baseline/keyword,openai/gpt-5.1 --limit 50",
    "aegish-dist submit --run-file experiment.toml --limit 20",
    "aegish-dist submit --models openai/gpt-5.1 --prompt guard,guard+cot --limit 50",
    "aegish-dist submit --models all --epochs 3 --dry-run",
    "aegish-dist submit --models openai/gpt-5.1,anthropic/claude-haiku-5-5 --batch",
)
@models(
    "ID[,ID...]|all|available",
    "Models to ask; `models list` shows them. `available`: the models of `all` with a key here.",
    required=True,
)
@click.option("--limit", type=click.IntRange(1), help="At most this many samples of each dataset.")
@names(
    "--dataset",
    "NAME",
    "Datasets to ask, repeatable; NAME@RUN takes one of a run. Default: malicious, harmless and"
    " harmless-hard.",
    shell_complete=completes(bundled_names),
)
@names(
    "--categories",
    "NAME[,NAME...]",
    "Only malicious samples of these categories; harmless samples stay.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1, 1000),
    default=1,
    help="Ask every sample this often.",
)
@with_prompts
@with_call_parameters
@cost_cap(
    "--max-cost", "Begin no further call once the run has cost this much; `resume` can raise it."
)
@cost_cap(
    "--max-cost-per-model", "The same cap for each model; an arm counts as a model.", cls=Advanced
)
@click.option(
    "--batch/--no-batch",
    show_default=False,
    help="Ask in batches where the provider takes them: half the price, answers within a day.",
)
@advanced(
    "--batch-after",
    type=Duration(),
    metavar="T",
    help="Ask live for so long, such as 30m or 2h, and the rest in batches.",
)
@click.option(
    "--name",
    type=Utf8(),
    default="",
    show_default=False,
    help="A name for the run, which `--run-id` takes too.",
)
@run_file
@with_care
@as_json
def submit(
    *,
    models: list[str],
    limit: int | None,
    dataset: list[str],
    categories: list[str],
    epochs: int,
    prompt: list[str],
    parameters: CallParameters,
    max_cost: Decimal | None,
    max_cost_per_model: Decimal | None,
    batch: bool,
    batch_after: float | None,
    name: str,
    request: Request,
    as_json: bool,
) -> int:
    """Ask models about commands: start a run.

    First it prints calls, tokens and estimated cost, and asks each model one harmless question;
    when a model refuses, nothing is stored. Without a broker the run is worked on here until it is
    complete; on a fleet the command returns once everything is enqueued.
    """
    if batch and batch_after is not None:
        raise click.UsageError("with --batch leave out --batch-after, or say --no-batch")
    workspace = open_workspace()
    observer = Shown(here=workspace.settings.embedded_broker)
    request = replace(
        request,
        models=models,
        parameters=replace(
            parameters, max_cost_usd=max_cost, max_cost_per_model_usd=max_cost_per_model
        ),
        datasets=dataset,
        categories=categories,
        limit=limit,
        epochs=epochs,
        prompt=prompt,
        name=name,
        batch_after_s=0.0 if batch else batch_after,
    )
    started = start_run(workspace, request, observer)
    run = started.run
    status = started.status
    if as_json:
        say_json(
            {
                "run_id": run.run_id if run else None,
                "snapshot_id": status.snapshot_id if status else None,
                **_asked_document(started),
                "batches": _batches(started.plan),
            }
        )
    elif run is not None:
        say(run.run_id)
    # A dry run ends here.
    if run is None:
        return 0
    if status is not None:
        note(*_after_work(run.typed, status))
        return 1 if status.missing else 0
    reports = first_reports(workspace.engine, started)
    if reports is not None:
        note(*halted(reports))
    note(_follow_it(run.typed))
    return 0


def _after_work(run_id: str, status: RunStatus) -> Iterator[str]:
    """Say what came of a run that was waited for, and what to do next."""
    if status.ended and status.missing:
        yield from (*halted(status), *aggregated(status))
    elif status.missing:
        yield (
            f"{status.missing} verdicts are missing, the log says why;"
            f" try again with: aegish-dist resume --run-id {run_id}"
        )
    else:
        scores = list(aggregated(status))
        yield from scores or ["no worker has made a snapshot of it yet: `report` makes one"]
        yield f"see the results with: aegish-dist report --run-id {run_id}"
    yield from left_to_retry(status)


def _follow_it(run_id: str) -> str:
    return f"follow it with: aegish-dist status --run-id {run_id} --watch"


def _asked_document(asked: Submission) -> JsonObject:
    """Return what is asked of whom, and its expected cost, in JSON types."""
    plan = asked.plan
    estimate = plan.estimate()
    cost = estimate.cost_usd
    datasets = []
    for dataset in plan.datasets:
        datasets.append(
            {
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "samples": len(dataset.samples),
            }
        )
    return {
        "tasks": estimate.calls,
        "models": [spec.id for spec in plan.models],
        "datasets": datasets,
        "estimate": {
            "input_tokens": estimate.input_tokens,
            "output_tokens": estimate.output_tokens,
            "cost_usd": as_number(cost),
        },
    }


def _batches(plan: RunPlan) -> JsonObject | None:
    if plan.batch_after_s is None:
        return None
    cost = plan.estimate(in_batches=True).cost_usd
    return {
        "after_s": plan.batch_after_s,
        "models": [spec.id for spec in plan.models if takes_batches(spec)],
        "cost_usd": as_number(cost),
    }


@command(
    "aegish-dist extend --run-id latest --epochs 3",
    "aegish-dist extend --run-id nightly --models openai/gpt-5.1 --dry-run",
)
@run_id()
@models("ID[,ID...]", "Models to ask as well.")
@click.option("--epochs", type=click.IntRange(1, 1000), help="Ask every sample this often, in all.")
@names("--dataset", "NAME", "Datasets to ask as well, repeatable; NAME@RUN takes one of a run.")
@raised_caps
@with_care
@as_json
def extend(
    *,
    run_id: str,
    models: list[str],
    epochs: int | None,
    dataset: list[str],
    max_cost: Decimal | None,
    max_cost_per_model: Decimal | None,
    request: Request,
    as_json: bool,
) -> int:
    """Add models, repeats or datasets to a run.

    Only the additions are priced and asked, with the prompt and parameters of the run, so that all
    its verdicts can be compared. Without a broker this command works until the run is complete.
    """
    if not (models or epochs or dataset):
        raise click.UsageError("say what to add: --models, --epochs or --dataset")
    workspace, run = open_run_to_ask(run_id)
    # The run keeps its other parameters.
    caps = CallParameters(max_cost_usd=max_cost, max_cost_per_model_usd=max_cost_per_model)
    request = replace(request, models=models, parameters=caps, datasets=dataset, epochs=epochs)
    here = workspace.settings.embedded_broker
    extended = extend_run(workspace, run, request, Shown(here=here))
    stored = extended.run is not None
    status = extended.status
    if as_json:
        say_json(
            {
                "run_id": run,
                **_asked_document(extended),
                "epochs": extended.plan.epochs,
                "stored": stored,
                "missing": None if status is None else status.missing,
            }
        )
    else:
        would_be = "" if stored else "would be "
        say(f"{run}: {extended.plan.estimate().calls:,} items {would_be}added")
    if not stored:
        return 0
    if status is not None and (here or request.wait):
        note(*halted(status), *left_to_retry(status))
        return 1 if status.missing else 0
    note(_follow_it(run))
    return 0


@command("aegish-dist pause --run-id latest")
@run_id()
@as_json
def pause(run_id: str, as_json: bool) -> None:
    """Stop asking a run's models for a while.

    Within a second no further call begins. Calls in flight finish and are stored: nothing is lost
    or paid for twice. `resume` continues the run.
    """
    _hold(run_id, RunPause.PAUSED, as_json=as_json)


@command("aegish-dist cancel --run-id latest")
@run_id()
@as_json
def cancel(run_id: str, as_json: bool) -> None:
    """Stop asking a run's models.

    As `pause`, and waiting messages are dropped. `resume` enqueues what is missing again.
    """
    _hold(run_id, RunPause.CANCELLED, as_json=as_json)


def _hold(run_id: str, reason: RunPause, *, as_json: bool) -> None:
    workspace, run = open_run_to_ask(run_id)
    outcome = hold_run(workspace, run, reason, Shown())
    before = outcome.held_before
    held = outcome.held
    missing = outcome.status.missing
    if as_json:
        in_flight = sum(model.in_flight for model in outcome.status.models)
        say_json({"run_id": run, "held": held, "missing": missing, "in_flight": in_flight})
        return
    state = "complete, no worker asks anything of it"
    if missing:
        already = " already" if before is held else ""
        state = f"{held}{already}, {counted(missing, 'verdict')} missing"
    say(f"{run}: {state}")
    if before is None and held is not None:
        note(f"calls in flight end by themselves: `aegish-dist status --run-id {run}` shows them")


@command("aegish-dist resume --run-id latest")
@run_id()
@raised_caps
@as_json
def resume(
    run_id: str, max_cost: Decimal | None, max_cost_per_model: Decimal | None, as_json: bool
) -> int:
    """Continue a run after a pause, crash, lost broker, Ctrl-C, cost cap or parked model.

    Every item without a verdict is asked; stored answers are not asked again. Parked models are
    tried at once, and `--max-cost` raises a cap. For items that ended in an error there is `retry`.
    """
    workspace, run = open_run_to_ask(run_id)
    here = workspace.settings.embedded_broker
    resumed = resume_run(workspace, run, max_cost, max_cost_per_model, Shown(here=here))
    status = resumed.status
    # On a fleet the command does not wait: what is missing is what was enqueued just now.
    enqueued = None if here else resumed.items
    missing = status.missing if enqueued is None else enqueued
    if as_json:
        say_json({"run_id": run, "enqueued": enqueued, "missing": missing})
    elif not here:
        say(f"{run}: {counted(missing, 'item')} enqueued")
    elif missing:
        say(f"{run}: {counted(missing, 'verdict')} missing")
    else:
        say(f"{run}: complete")
    if here:
        note(*halted(status), *aggregated(status))
    note(*left_to_retry(status))
    return 1 if here and missing else 0


@command("aegish-dist retry --run-id latest --outcome TIMEOUT_ERROR,API_ERROR")
@run_id()
@names(
    "--outcome",
    "NAME[,NAME...]",
    f"Ask again what ended so: {', '.join(Outcome)}.",
    shell_complete=completes(tuple(Outcome)),
    required=True,
)
@guards("--models", "ID[,ID...]", "Only these models of the run. Default: all.")
@wait
@as_json
def retry(run_id: str, outcome: list[str], models: list[str], wait: bool, as_json: bool) -> int:
    """Ask items again that ended in the given outcomes.

    Use it after a wrong key, an outage or too short a time limit. Earlier verdicts stay; reports
    count the newest verdict of each item. Retries that are still pending are not repeated; `resume`
    continues them. TIMEOUT_ERROR and FORMAT_ERROR include answers without a verdict: asking again
    gives unreliable models a second chance and flatters them.
    """
    outcomes = outcomes_named(outcome)
    workspace, run = open_run_to_ask(run_id)
    here = workspace.settings.embedded_broker
    retried = retry_run(workspace, run, outcomes, models, wait=wait, observer=Shown(here=here))
    items = retried.items
    missing = retried.status.missing
    if as_json:
        document = {"run_id": run, "generation": retried.generation}
        say_json({**document, "asked": items, "missing": missing})
    else:
        say(f"{run}: {counted(items, 'item')} asked again")
    waited = wait or here
    note(*_after_retry(retried, waited=waited))
    return 1 if waited and missing else 0


def _after_retry(retried: RunOutcome, *, waited: bool) -> Iterator[str]:
    status = retried.status
    if not (retried.items or status.missing):
        yield "no verdict ended so"
    elif waited:
        yield from (*halted(status), *aggregated(status), *left_to_retry(status))
    elif retried.items:
        yield _follow_it(status.run_id)
    else:
        yield f"{status.missing:,} items of the run are still to be answered"
