"""`aegish-dist cancel`: stop asking a run's models."""

import click

from aegish_dist.cli.holding import hold_and_say
from aegish_dist.cli.options import as_json, run_id
from aegish_dist.core.run import Held


@click.command()
@run_id()
@as_json
def cancel(run_id: str, as_json: bool) -> None:
    """Stop asking a run's models.

    Workers begin no further call of it within a second, wherever they run. Calls in flight finish
    and are stored, and nothing is lost or paid for twice. Waiting messages are dropped; `resume`
    goes on.
    """
    hold_and_say(run_id, Held.CANCELLED, as_json=as_json)
