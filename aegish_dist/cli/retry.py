"""`aegish-dist retry`: ask again what ended in some outcomes."""

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import Utf8, as_json, comma_list, run_id, wait
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.status_view import Shown, aggregated, halted, left_to_retry
from aegish_dist.core.printable import counted
from aegish_dist.core.verdict import Outcome
from aegish_dist.pipeline.retry import Retried, outcomes_named, retry_run
from aegish_dist.pipeline.runs import find_run


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
