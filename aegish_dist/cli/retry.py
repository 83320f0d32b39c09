"""`aegish-dist retry`: ask again what ended in some outcomes."""

import click

from aegish_dist.cli.context import Workspace
from aegish_dist.cli.halts import halted, left_to_retry
from aegish_dist.cli.options import Utf8, as_json, comma_list, run_id
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.progress import enqueue_line, status_line
from aegish_dist.core.run import Run
from aegish_dist.core.verdict import Outcome
from aegish_dist.db.retries import Retry
from aegish_dist.pipeline import retry as retrying
from aegish_dist.pipeline.find_run import find_run
from aegish_dist.pipeline.resume import load_submitted_run
from aegish_dist.pipeline.run_here import run_embedded, wait_for_workers
from aegish_dist.pipeline.status import RunStatus, run_status


@click.command()
@run_id()
@click.option(
    "--outcome",
    required=True,
    multiple=True,
    type=Utf8(),
    callback=comma_list,
    metavar="NAME[,NAME...]",
    help=f"Ask again what ended so: {', '.join(Outcome)}.",
)
@click.option(
    "--models",
    multiple=True,
    type=Utf8(),
    callback=comma_list,
    metavar="ID[,ID...]",
    help="Only these models of the run. Default: all.",
)
@click.option("--wait", is_flag=True, help="On a cluster: return when the run has ended.")
@as_json
def retry(run_id: str, outcome: list[str], models: list[str], wait: bool, as_json: bool) -> int:
    """Ask again what ended in some outcomes.

    After a wrong key, a provider that was away or a time limit that was too short. Earlier verdicts
    stay, and reports count the newest of each item. What an earlier retry is still to ask is not
    planned a second time; `resume` enqueues it again. TIMEOUT_ERROR and FORMAT_ERROR also hold what
    a model answered without a verdict: asking that again favours models that are unreliable.
    """
    outcomes = retrying.outcomes_named(outcome)
    workspace = Workspace()
    run = load_submitted_run(workspace.engine, find_run(workspace.engine, run_id))
    planned, status = _ask_again(workspace, run, outcomes, models, wait=wait, quiet=as_json)
    asked = 0 if planned is None else planned.items
    if as_json:
        generation = None if planned is None else planned.generation
        missing = status.missing
        say_json(
            {"run_id": run.run_id, "generation": generation, "asked": asked, "missing": missing}
        )
    return _advise(workspace, status, asked, waited=wait or workspace.settings.embedded_broker)


def _ask_again(
    workspace: Workspace,
    run: Run,
    outcomes: frozenset[Outcome],
    models: list[str],
    *,
    wait: bool,
    quiet: bool,
) -> tuple[Retry | None, RunStatus]:
    if workspace.settings.embedded_broker:
        planned = retrying.plan_retry(workspace.engine, run, outcomes, models)
        _say_asked(run, planned, quiet=quiet)
        with status_line() as line:
            return planned, run_embedded(workspace.engine, workspace.app, run, line.show)
    with enqueue_line() as published:
        planned = retrying.retry(
            workspace.engine,
            workspace.app,
            run,
            outcomes,
            models=models,
            limiter_url=workspace.settings.shared_limiter_url,
            on_progress=published,
        )
    _say_asked(run, planned, quiet=quiet)
    if not wait:
        return planned, run_status(workspace.engine, run.run_id)
    with status_line() as line:
        return planned, wait_for_workers(workspace.engine, workspace.app, run, line.show)


def _say_asked(run: Run, planned: Retry | None, *, quiet: bool) -> None:
    """Say it before the wait for the answers."""
    if not quiet:
        say(f"{run.run_id}: {0 if planned is None else planned.items:,} items asked again")


def _advise(workspace: Workspace, status: RunStatus, asked: int, *, waited: bool) -> int:
    """Say on standard error what is left; return the exit code."""
    if not waited:
        follow = f"follow it with: aegish-dist status --run-id {status.run_id} --watch"
        idle = (
            f"{status.missing:,} items of the run are still to be answered"
            if status.missing
            else "no verdict ended so"
        )
        note(follow if asked else idle)
        return 0
    for line in (*halted(status), *left_to_retry(status)):
        note(line)
    return 1 if status.missing else 0
