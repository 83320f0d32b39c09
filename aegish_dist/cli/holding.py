"""The part that `pause` and `cancel` have in common."""

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.status_view import Shown
from aegish_dist.core.printable import counted
from aegish_dist.core.run import Held
from aegish_dist.pipeline.hold import Holding, hold_run
from aegish_dist.pipeline.runs import find_run


def hold_and_say(run_id: str, reason: Held, *, as_json: bool) -> None:
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
