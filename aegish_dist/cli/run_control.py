"""`aegish-dist pause`, `cancel`, `resume` and `retry`: control of a stored run."""

import click

from aegish_dist.cli.options import (
    Utf8,
    as_json,
    comma_list,
    cost_cap,
    open_workspace,
    run_id,
    usd,
    wait,
)
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.status_view import Shown, aggregated, halted, left_to_retry
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import RunPause
from aegish_dist.core.text import counted
from aegish_dist.pipeline.control import (
    Holding,
    Retried,
    hold_run,
    outcomes_named,
    resume_run,
    retry_run,
)
from aegish_dist.pipeline.runs import find_run


def hold_and_say(run_id: str, reason: RunPause, *, as_json: bool) -> None:
    """Hold a run and print what came of it."""
    workspace = open_workspace()
    found = find_run(workspace.engine, run_id)
    holding = hold_run(workspace, found, reason, Shown())
    status = holding.status
    if as_json:
        in_flight = sum(model.in_flight for model in status.models)
        document = {"run_id": found, "held": holding.now, "missing": status.missing}
        say_json({**document, "in_flight": in_flight})
        return
    say(f"{found}: {_words(holding)}")
    if holding.before is None and holding.now is not None:
        note(f"calls in flight end by themselves: `aegish-dist status --run-id {found}` shows them")


def _words(holding: Holding) -> str:
    if not holding.status.missing:
        return "complete, no worker asks anything of it"
    already = " already" if holding.before is holding.now else ""
    return f"{holding.now}{already}, {counted(holding.status.missing, 'verdict')} missing"


@click.command()
@run_id()
@as_json
def pause(run_id: str, as_json: bool) -> None:
    """Stop asking a run's models for a while.

    Workers begin no further call of it within a second, wherever they run. Calls in flight finish
    and are stored, and nothing is lost or paid for twice. `resume` goes on.
    """
    hold_and_say(run_id, RunPause.PAUSED, as_json=as_json)


@click.command()
@run_id()
@as_json
def cancel(run_id: str, as_json: bool) -> None:
    """Stop asking a run's models.

    Workers begin no further call of it within a second, wherever they run. Calls in flight finish
    and are stored, and nothing is lost or paid for twice. Waiting messages are dropped; `resume`
    goes on.
    """
    hold_and_say(run_id, RunPause.CANCELLED, as_json=as_json)


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
@wait
@as_json
def retry(run_id: str, outcome: list[str], models: list[str], wait: bool, as_json: bool) -> int:
    """Ask again what ended in some outcomes.

    After a wrong key, a provider that was away or a time limit that was too short. Earlier verdicts
    stay, and reports count the newest of each item. What an earlier retry is still to ask is not
    planned a second time; `resume` enqueues it again. TIMEOUT_ERROR and FORMAT_ERROR also hold what
    a model answered without a verdict: asking that again favours models that are unreliable.
    """
    outcomes = outcomes_named(outcome)
    workspace = open_workspace()
    found = find_run(workspace.engine, run_id)
    here = workspace.settings.embedded_broker
    follow = Shown(here=here) if as_json else _Aloud(here=here)
    retried = retry_run(workspace, found, outcomes, models, wait=wait, observer=follow)
    planned, status = retried.retry, retried.status
    if as_json:
        say_json(
            {
                "run_id": found,
                "generation": None if planned is None else planned.generation,
                "asked": retried.items,
                "missing": status.missing,
            }
        )
    for line in _advice(retried):
        note(line)
    return 1 if retried.waited and status.missing else 0


class _Aloud(Shown):
    """Says how many items are asked again, before the wait for the answers."""

    def asked_again(self, run_id: str, items: int) -> None:
        """Print the number of items as the result of the command."""
        say(f"{run_id}: {counted(items, 'item')} asked again")


def _advice(retried: Retried) -> tuple[str, ...]:
    """Return lines about what is left."""
    status = retried.status
    if retried.waited:
        return (*halted(status), *aggregated(status), *left_to_retry(status))
    if retried.items:
        return (f"follow it with: aegish-dist status --run-id {status.run_id} --watch",)
    if status.missing:
        return (f"{status.missing:,} items of the run are still to be answered",)
    return ("no verdict ended so",)
