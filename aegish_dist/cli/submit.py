"""`aegish-dist submit`: start a run."""

from dataclasses import replace
from typing import Any

import click

from aegish_dist.cli.context import Workspace
from aegish_dist.cli.halts import halted, left_to_retry
from aegish_dist.cli.options import (
    Utf8,
    as_each_call,
    as_json,
    call_parameters,
    comma_list,
    cost_cap,
    usd,
)
from aegish_dist.cli.preflight import (
    may_be_unserved,
    preflight,
    require_keys,
    unserved,
    warn_by_catalog,
)
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.progress import enqueue_line, status_line
from aegish_dist.core.run import Run
from aegish_dist.datasets.bundled import bundled_names
from aegish_dist.errors import ConfigError
from aegish_dist.models import Estimate
from aegish_dist.pipeline.datasets import choose_dataset, narrow, require_categories
from aegish_dist.pipeline.run_here import run_embedded, wait_for_workers
from aegish_dist.pipeline.status import RunStatus
from aegish_dist.pipeline.submit import Submission, create_run
from aegish_dist.pipeline.submit import submit as submit_run
from aegish_dist.prompts.loading import load_prompt

ASSUMED_CALL_S = 2.0


EXAMPLES = """\b
Examples:
  aegish-dist submit --models baseline/keyword,openai/gpt-5.1 --limit 50
  aegish-dist submit --models all --epochs 3 --dry-run"""


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
@click.option("--name", type=Utf8(), default="", help="A name for the run.")
@click.option(
    "--keys-on-workers", is_flag=True, help="Do not look for API keys here; the workers have them."
)
@click.option(
    "--skip-preflight",
    is_flag=True,
    help="Do not ask each model one harmless question beforehand.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and its estimated cost, then stop.")
@click.option("--wait", is_flag=True, help="On a cluster: return when the run has ended.")
@as_json
def submit(**options: Any) -> int:
    """Ask models about commands: start a run.

    Before any money is spent it prints the number of calls, their estimated tokens and cost, and
    which models lack a key, and asks each model one harmless question with the run's own prompt
    and parameters: when one refuses them, nothing is started. Without a configured broker the run
    is worked on here until it is complete; on a cluster the command returns as soon as everything
    is enqueued.
    """
    workspace = Workspace()
    submission = _plan(workspace, options)
    estimate = submission.estimate()
    _require_prices(estimate, options)
    require_keys(workspace, submission.models, options)
    warn_by_catalog(workspace, submission)
    if not (options["dry_run"] or workspace.settings.embedded_broker):
        _check_broker(workspace)
    _announce(submission, estimate, workspace.settings.concurrency)
    if options["dry_run"]:
        if options["as_json"]:
            say_json(_document(None, submission, estimate))
        return 0
    preflight(workspace, submission, options)
    run, status = _start(workspace, submission, wait=options["wait"])
    if options["as_json"]:
        say_json(_document(run, submission, estimate))
    else:
        say(run.run_id)
    if status is None and may_be_unserved(submission.models):
        for line in unserved(workspace.engine, run.run_id):
            note(line)
    _advise(run, status)
    return 1 if status is not None and status.missing else 0


def _check_broker(workspace: Workspace) -> None:
    from aegish_dist.broker.connection import check_broker  # noqa: PLC0415  a dry run does without

    check_broker(workspace.app)


def _plan(workspace: Workspace, options: dict[str, Any]) -> Submission:
    models = workspace.catalog.resolve(options["models"], workspace.environ)
    prompt = load_prompt(options["prompt"], cot=options["cot"])
    chosen = [
        choose_dataset(workspace.engine, name)
        for name in dict.fromkeys(options["datasets"] or bundled_names())
    ]
    require_categories(chosen, options["categories"])
    datasets = tuple(narrow(each, options["categories"], options["limit"]) for each in chosen)
    parameters = replace(
        call_parameters(options),
        max_cost_usd=usd(options["max_cost"]),
        max_cost_per_model_usd=usd(options["max_cost_per_model"]),
    )
    return Submission(models, datasets, prompt, parameters, options["epochs"], options["name"])


def _require_prices(estimate: Estimate, options: dict[str, Any]) -> None:
    if estimate.unpriced and (options["max_cost"] or options["max_cost_per_model"]):
        raise ConfigError(
            f"the cost of {', '.join(estimate.unpriced)} cannot be bounded, its price is unknown:"
            " give it one in your catalog, or leave it out"
        )


def _announce(submission: Submission, estimate: Estimate, calls: int) -> None:
    samples = sum(len(dataset.samples) for dataset in submission.datasets)
    note(
        f"{submission.tasks:,} calls: {len(submission.models)} models x {samples:,} samples"
        f" x {submission.epochs} epochs"
    )
    note(
        f"estimated: {estimate.input_tokens:,} input and {estimate.output_tokens:,} output tokens,"
        f" ${estimate.known_cost_usd:.2f}{_if_cached(estimate)}{_unpriced(estimate)},"
        f" at least {_duration_s(submission, calls):.0f} s with one worker process"
    )


def _if_cached(estimate: Estimate) -> str:
    if estimate.cached_cost_usd == estimate.known_cost_usd:
        return ""
    return f" (${estimate.cached_cost_usd:.2f} if the prompt is cached)"


def _unpriced(estimate: Estimate) -> str:
    return f" plus {', '.join(estimate.unpriced)} at unknown price" if estimate.unpriced else ""


def _duration_s(submission: Submission, calls: int) -> float:
    per_model = submission.tasks / len(submission.models)
    of_one = max(per_model / min(spec.max_in_flight or calls, calls) for spec in submission.models)
    return max(of_one, submission.tasks / calls) * ASSUMED_CALL_S


def _start(
    workspace: Workspace, submission: Submission, *, wait: bool
) -> tuple[Run, RunStatus | None]:
    if workspace.settings.embedded_broker:
        run = create_run(workspace.engine, submission)
        with status_line() as line:
            return run, run_embedded(workspace.engine, workspace.app, run, line.show)
    with enqueue_line(submission.tasks) as published:
        run = submit_run(workspace.engine, workspace.app, submission, published)
    if not wait:
        return run, None
    with status_line() as line:
        return run, wait_for_workers(workspace.engine, workspace.app, run, line.show)


def _advise(run: Run, status: RunStatus | None) -> None:
    if status is None:
        note(f"follow it with: aegish-dist status --run-id {run.run_id} --watch")
    elif status.ended and status.missing:
        for line in halted(status):
            note(line)
    elif status.missing:
        note(
            f"{status.missing} verdicts are missing, the log says why;"
            f" try again with: aegish-dist resume --run-id {run.run_id}"
        )
    else:
        note(f"see the results with: aegish-dist report --run-id {run.run_id}")
    for line in () if status is None else left_to_retry(status):
        note(line)


def _document(run: Run | None, submission: Submission, estimate: Estimate) -> dict[str, Any]:
    cost = estimate.cost_usd
    return {
        "run_id": run.run_id if run else None,
        "tasks": submission.tasks,
        "models": [spec.id for spec in submission.models],
        "datasets": [
            {"name": d.name, "fingerprint": d.fingerprint, "samples": len(d.samples)}
            for d in submission.datasets
        ],
        "estimate": {
            "input_tokens": estimate.input_tokens,
            "output_tokens": estimate.output_tokens,
            "cost_usd": None if cost is None else float(cost),
        },
    }
