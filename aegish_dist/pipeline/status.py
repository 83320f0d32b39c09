"""How far a run is."""

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.batches import BatchTotals
from aegish_dist.core.forecast import run_eta_s, total_usd
from aegish_dist.core.run import Run
from aegish_dist.core.status import HELD, LATELY, ModelStatus, RunStatus, State
from aegish_dist.core.verdict import Outcome
from aegish_dist.db.aggregations import newest_aggregation
from aegish_dist.db.batches import batch_totals, batch_work_left
from aegish_dist.db.engine import transaction
from aegish_dist.db.failures import failed_kinds
from aegish_dist.db.progress import costs_of, model_progress
from aegish_dist.db.runs import load_run
from aegish_dist.db.workers import living_fleet
from aegish_dist.pipeline.batches.budget import is_out_of_money
from aegish_dist.pipeline.model_status import RunFacts, all_failures, model_statuses

RATE_WINDOW_S = 15.0
"""Seconds over which verdicts per second are taken."""
LAST_ERRORS = 8
"""Kinds of failed calls that a status names."""


def run_status(engine: Engine, run_id: str) -> RunStatus:
    """Count a run."""
    with transaction(engine) as session:
        run = load_run(session, run_id)
        progress = model_progress(session, run, RATE_WINDOW_S)
        fleet = living_fleet(session)
        batches = batch_totals(session, run_id)
        stored = failed_kinds(session, run_id, LATELY.total_seconds(), LAST_ERRORS)
        facts = RunFacts(
            run=run,
            progress=progress,
            fleet=fleet,
            failures=all_failures(stored, fleet.failing.get(run_id, ())),
            batches=batches,
            out_of_money=_out_of_money(session, run, costs_of(progress), batches),
        )
        aggregation = newest_aggregation(session, run_id)
    models = model_statuses(facts)
    planned, done = sum(m.planned for m in models), sum(m.done for m in models)
    caps = run.parameters
    costs = [model.cost_usd for model in models if model.cost_usd is not None]
    return RunStatus(
        run_id=run_id,
        origin=run.origin,
        state=_joint_state(models),
        planned=planned,
        done=done,
        missing=planned - done,
        outcomes=_summed(each.outcomes for each in progress.values()),
        failed=_summed(each.failed for each in progress.values()),
        replaced=sum(model.replaced for model in models),
        retrying=sum(each.awaiting_retry for each in progress.values()),
        models=models,
        eta_s=run_eta_s(models),
        workers=fleet.workers,
        snapshot_id=None if aggregation is None else aggregation.snapshot_id,
        aggregation_problem=None if aggregation is None else aggregation.problem,
        name=run.name,
        cost_usd=round(sum(costs), 6) if costs else None,
        cost_at_end_usd=total_usd(model.cost_at_end_usd for model in models),
        max_cost_usd=None if caps is None else _usd(caps.max_cost_usd),
        max_cost_per_model_usd=None if caps is None else _usd(caps.max_cost_per_model_usd),
        rate_limited=sum(model.rate_limited for model in models),
        rate_limited_last_minute=sum(model.rate_limited_last_minute for model in models),
        last_errors=facts.failures[:LAST_ERRORS],
    )


def _out_of_money(
    session: Session, run: Run, spent: Mapping[str, Decimal], batches: Mapping[str, BatchTotals]
) -> set[str]:
    """Return the models that have no open batch and no room for one."""
    idle = {model for model, each in batches.items() if not each.starts_in_s and not each.open}
    return {
        spec.id
        for spec in run.models
        if spec.id in idle and is_out_of_money(session, run, spec, spent, batches)
    }


def _usd(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def items_held(engine: Engine, run_id: str) -> int:
    """Return how many items of a run living workers hold, without counting its verdicts."""
    with transaction(engine) as session:
        held = living_fleet(session).in_flight
    return sum(items for (run, _), items in held.items() if run == run_id)


def has_batches_to_do(engine: Engine, run_id: str) -> bool:
    """Return whether batches of a run are open or are to be made, without counting its verdicts."""
    with transaction(engine) as session:
        return batch_work_left(session, run_id)


def _summed(counts: Iterable[Mapping[Outcome, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _joint_state(models: tuple[ModelStatus, ...]) -> State:
    states = {model.state for model in models}
    for state in (State.RUNNING, State.WAITING, State.PARKED, State.OVER_BUDGET, *HELD):
        if state in states:
            return state
    return State.COMPLETE


def retry_command(status: RunStatus) -> str | None:
    """Return the command that asks again where calls brought no answer; None without such.

    Answers that cannot be read are not asked again by it: they are the models' own, and asking
    until one can be read would favour models that are unreliable.
    """
    if status.origin == "import" or sum(status.failed.values()) <= status.retrying:
        return None  # no model can be asked, or all are being asked again
    return f"aegish-dist retry --run-id {status.run_id} --outcome {','.join(status.failed)}"
