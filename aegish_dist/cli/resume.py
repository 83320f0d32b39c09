"""`aegish-dist resume`: enqueue whatever of a run has no verdict."""

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import as_json, cost_cap, run_id, usd
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.status_view import Shown, aggregated, halted, left_to_retry
from aegish_dist.core.printable import counted
from aegish_dist.pipeline.resume import resume_run
from aegish_dist.pipeline.runs import find_run


@click.command()
@run_id()
@cost_cap(
    "--max-cost",
    "Raise the cap of a run that was submitted with one; what it has cost so far counts.",
)
@cost_cap("--max-cost-per-model", "The same for the cap of each model.")
@as_json
def resume(
    run_id: str,
    max_cost: float | None,
    max_cost_per_model: float | None,
    as_json: bool,
) -> int:
    """Enqueue whatever of a run has no verdict.

    After `pause`, a crash, a flushed broker, an interrupt, a cap on the cost that was reached or a
    model that was parked, which is tried again at once: nothing that is stored is asked again, and
    nothing is stored twice. What ended in an error has its verdict: `retry` asks it again.
    """
    workspace = open_workspace()
    found = find_run(workspace.engine, run_id)
    caps = usd(max_cost), usd(max_cost_per_model)
    resumed = resume_run(workspace, found, *caps, Shown(here=workspace.settings.embedded_broker))
    enqueued, missing = resumed.enqueued, resumed.missing
    if as_json:
        say_json({"run_id": found, "enqueued": enqueued, "missing": missing})
    elif enqueued is not None:
        say(f"{found}: {counted(enqueued, 'item')} enqueued")
    else:
        say(f"{found}: {counted(missing, 'verdict')} missing")
    status = resumed.status
    reasons = (*halted(status), *aggregated(status)) if enqueued is None else ()
    for reason in (*reasons, *left_to_retry(status)):
        note(reason)
    return 1 if enqueued is None and missing else 0
