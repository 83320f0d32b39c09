"""How a run has ended: its snapshot, or why something is missing and what to do about it."""

from collections.abc import Iterator

from aegish_dist.core.status import HELD, ModelStatus, RunStatus, State
from aegish_dist.pipeline.status import retry_command


def halted(status: RunStatus) -> Iterator[str]:
    """Say which models are not called any more, one line for each reason."""
    parked = ", ".join(_with_reason(m) for m in status.models if m.state is State.PARKED)
    if parked:
        yield (
            f"parked after too many failures in a row: {parked}; `aegish-dist models check` tells"
            f" what is wrong, then `aegish-dist resume --run-id {status.run_id}`"
        )
    for model in status.models:
        if model.state is State.WAITING and model.reason is not None:
            yield (
                f"no worker may call {model.model} ({status.workers} running):"
                f" {model.reason}; once one may, it goes on, at once after"
                f" `aegish-dist resume --run-id {status.run_id}`"
            )
    dear = ", ".join(m.model for m in status.models if m.state is State.OVER_BUDGET)
    if dear:
        yield (
            f"over budget, the rest of its items was not called: {dear}; with a higher cap it goes"
            f" on: `aegish-dist resume --run-id {status.run_id} --max-cost USD`"
        )

    yield from troubled_batches(status)
    if status.state in HELD:
        yield _HELD[status.state].format(run_id=status.run_id)


def troubled_batches(status: RunStatus) -> Iterator[str]:
    """Say which problems batches of models have, with which workers try them again."""
    for model in status.models:
        batches = model.batches
        if batches is not None and batches.problem is not None and model.in_batches:
            left = "workers try again" if batches.open else "what is left is asked again"
            if model.state is not State.COMPLETE:
                yield f"batches of {model.model}: {batches.problem}; {left}"


def next_steps(status: RunStatus, hint: str | None) -> Iterator[str]:
    """Say what a user could do about a run that is watched; each model's reason is shown there.

    Args:
        hint: What would have the run go on if it waits; None: nothing needs to be done for that.
    """
    resume = f"`aegish-dist resume --run-id {status.run_id}`"
    states = {model.state for model in status.models}
    if State.PARKED in states:
        yield f"parked: `aegish-dist models check` tells what is wrong, then {resume}"
    if any(m.state is State.WAITING and m.reason is not None for m in status.models):
        yield f"no worker may call it: once one may, it goes on, at once after {resume}"
    if State.OVER_BUDGET in states:
        yield f"over budget: {resume[:-1]} --max-cost USD` goes on with a higher cap"
    elif _reaches_cap(status):
        yield "the cap will be reached before the end: the rest will not be called"
    if status.state in HELD:
        yield _HELD[status.state].format(run_id=status.run_id)
    if hint is not None:
        yield hint
    yield from left_to_retry(status)


def _reaches_cap(status: RunStatus) -> bool:
    end, cap = status.cost_at_end_usd, status.max_cost_usd
    return bool(status.missing) and end is not None and cap is not None and end > cap


def waiting_hint(status: RunStatus, *, embedded: bool) -> str | None:
    """Say what would let a waiting run go on; None when nothing or more than one step would."""
    if status.state is not State.WAITING or status.ended:
        return None
    resume = f"`aegish-dist resume --run-id {status.run_id}`"
    if status.workers:
        return f"workers live but hold none of it: if its queues are empty, {resume} fills them"
    if embedded:
        return f"no command works on it: {resume} goes on"
    return "no worker is running: start one with `aegish-dist worker`"


_HELD = {
    State.PAUSED: "paused: `aegish-dist resume --run-id {run_id}` goes on",
    State.CANCELLED: "cancelled: `aegish-dist resume --run-id {run_id}` goes on",
}


def _with_reason(model: ModelStatus) -> str:
    return model.model if model.reason is None else f"{model.model} ({model.reason})"


def aggregated(status: RunStatus) -> Iterator[str]:
    """Say which snapshot workers made of a run, or why they made none."""
    if status.snapshot_id is not None:
        yield f"snapshot {status.snapshot_id} was made of it"
    elif status.aggregation_problem is not None:
        yield f"no snapshot was made of it: {status.aggregation_problem}"


def left_to_retry(status: RunStatus) -> Iterator[str]:
    """Say which calls brought no answer, and the command that makes them again."""
    command = retry_command(status)
    if command is not None:
        failed = ", ".join(f"{outcome} {number:,}" for outcome, number in status.failed.items())
        yield f"calls that brought no answer: {failed}; `{command}` makes them again"
