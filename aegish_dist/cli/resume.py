"""`aegish-dist resume`: enqueue whatever of a run has no verdict."""

import click

from aegish_dist.cli.context import Workspace
from aegish_dist.cli.halts import halted, left_to_retry
from aegish_dist.cli.options import as_json, cost_cap, run_id, usd
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.progress import enqueue_line, status_line
from aegish_dist.pipeline import resume as resuming
from aegish_dist.pipeline.find_run import find_run
from aegish_dist.pipeline.raise_caps import raise_caps
from aegish_dist.pipeline.run_here import run_embedded
from aegish_dist.pipeline.status import run_status


@click.command()
@run_id()
@cost_cap(
    "--max-cost",
    "Raise the cap of a run that was submitted with one; what it has cost so far counts.",
)
@cost_cap("--max-cost-per-model", "The same for the cap of each model.")
@as_json
def resume(
    run_id: str, max_cost: float | None, max_cost_per_model: float | None, as_json: bool
) -> int:
    """Enqueue whatever of a run has no verdict.

    After a crash, a flushed broker, an interrupt, a cap on the cost that was reached or a model
    that was parked, which is tried again at once: nothing that is stored is asked again, and
    nothing is stored twice. What ended in an error has its verdict: `retry` asks it again.
    """
    workspace = Workspace()
    found = find_run(workspace.engine, run_id)
    raise_caps(workspace.engine, found, usd(max_cost), usd(max_cost_per_model))
    run = resuming.load_submitted_run(workspace.engine, found)
    enqueued = None
    if workspace.settings.embedded_broker:
        with status_line() as line:
            status = run_embedded(workspace.engine, workspace.app, run, line.show)
    else:
        limiter_url = workspace.settings.shared_limiter_url
        with enqueue_line() as published:
            enqueued = resuming.resume(workspace.engine, workspace.app, run, limiter_url, published)
        status = run_status(workspace.engine, found)
    missing = status.missing if enqueued is None else enqueued
    if as_json:
        say_json({"run_id": found, "enqueued": enqueued, "missing": missing})
    elif enqueued is not None:
        say(f"{found}: {enqueued:,} items enqueued")
    else:
        say(f"{found}: {missing:,} verdicts missing")
    for reason in (*(halted(status) if enqueued is None else ()), *left_to_retry(status)):
        note(reason)
    return 1 if enqueued is None and missing else 0
