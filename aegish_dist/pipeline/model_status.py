"""How far one model of a run is: its state, and what is worked out from its counts."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from aegish_dist.core.batches import BatchTotals
from aegish_dist.core.forecast import cost_at_end_usd, model_eta_s
from aegish_dist.core.run import Run
from aegish_dist.core.status import FailedCalls, ModelStatus, State
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.db.progress import Progress, costs_of
from aegish_dist.db.workers import Fleet, Halt


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Everything about a run that was read from the store."""

    run: Run
    progress: Mapping[str, Progress]
    fleet: Fleet
    failures: tuple[FailedCalls, ...]
    """Failed calls of all models by kind, those of items that workers still hold included."""
    batches: Mapping[str, BatchTotals]
    """Batches of the models that are asked so, now or later."""
    out_of_money: Collection[str]
    """Models whose caps leave no room for a further batch."""


def model_statuses(facts: RunFacts) -> tuple[ModelStatus, ...]:
    """Return how far each model of a run is, in the order of the run."""
    over = over_budget(facts.run, costs_of(facts.progress)) | set(facts.out_of_money)
    return tuple(_status(facts, spec.id, over=spec.id in over) for spec in facts.run.models)


def _status(facts: RunFacts, model: str, *, over: bool) -> ModelStatus:
    run, progress, fleet = facts.run, facts.progress[model], facts.fleet
    verdicts = sum(progress.outcomes.values())
    planned = verdicts if run.imported else run.planned(model)
    done, held = verdicts - progress.awaiting_retry, fleet.in_flight.get((run.run_id, model), 0)
    failed = sum(progress.failed.values())
    missing = planned - done
    state = _state(facts, model, missing, held, over=over)
    cost = None if progress.cost_usd is None else float(progress.cost_usd)
    kinds = [kind for kind in facts.failures if kind.model == model]
    calls = sum(kind.calls for kind in kinds)
    batches = facts.batches.get(model)
    rate = 0.0 if batches is not None and not batches.starts_in_s else progress.rate_per_s
    limited = [kind for kind in kinds if kind.error_class is ErrorClass.RATE_LIMIT]
    return ModelStatus(
        model=model,
        planned=planned,
        done=done,
        in_flight=held,
        state=state,
        rate_per_s=round(progress.rate_per_s, 2),
        cost_usd=cost,
        failed=failed,
        replaced=progress.replaced,
        reason=_reason(state, fleet, (run.run_id, model)),
        waiting=fleet.waiting.get((run.run_id, model)),
        eta_s=model_eta_s(state, missing, rate),
        cost_at_end_usd=cost_at_end_usd(
            cost, verdicts + progress.replaced, state, missing, batches
        ),
        failed_calls=calls,
        retries=max(0, calls - failed),
        rate_limited=sum(kind.calls for kind in limited),
        rate_limited_last_minute=sum(kind.calls_lately for kind in limited),
        batches=batches,
    )


def _state(facts: RunFacts, model: str, missing: int, held: int, *, over: bool) -> State:
    run, fleet = facts.run, facts.fleet
    if missing <= 0 or run.prompt is None:
        return State.COMPLETE
    if run.held is not None:
        return State(run.held.value)
    batches = facts.batches.get(model)
    if batches is not None and not batches.starts_in_s and missing > batches.live:
        return _state_in_batches(facts, model, over=over and not batches.open)
    halt = Halt.OVER_BUDGET if over else fleet.halt(run.run_id, model)
    if halt is not None:
        return State(halt.value)
    # A worker also holds items that reached it of a model that it may not call.
    held_to_call = held if (run.run_id, model) not in fleet.unserved else 0
    moves = held_to_call or (fleet.workers and facts.progress[model].rate_per_s)
    return State.RUNNING if moves else State.WAITING


def _state_in_batches(facts: RunFacts, model: str, *, over: bool) -> State:
    """Return the state of a model that is not called: any worker plans and follows its batches."""
    if over:
        return State.OVER_BUDGET
    may_ask = facts.fleet.workers and (facts.run.run_id, model) not in facts.fleet.unserved
    return State.RUNNING if may_ask else State.WAITING


def _reason(state: State, fleet: Fleet, key: tuple[str, str]) -> str | None:
    if state is State.WAITING:
        return fleet.unserved.get(key)
    return fleet.reason(*key) or None if state is State.PARKED else None


def all_failures(
    stored: Iterable[FailedCalls], held: Iterable[FailedCalls]
) -> tuple[FailedCalls, ...]:
    """Return failed calls by kind, the newest kind first."""
    kinds: dict[tuple[object, ...], FailedCalls] = {}
    for each in (*stored, *held):
        key = (each.model, each.error_class, each.status)
        other = kinds.get(key)
        kinds[key] = each if other is None else _joined(each, other)
    return tuple(sorted(kinds.values(), key=lambda each: each.at, reverse=True))


def _joined(a: FailedCalls, b: FailedCalls) -> FailedCalls:
    newest = a if a.at >= b.at else b
    return replace(newest, calls=a.calls + b.calls, calls_lately=a.calls_lately + b.calls_lately)


def over_budget(run: Run, spent: Mapping[str, Decimal]) -> set[str]:
    """Return the models that have spent what they may, whether or not a worker lives.

    Args:
        spent: USD by model.
    """
    parameters = run.parameters
    if parameters is None:
        return set()
    cap, model_cap = parameters.max_cost_usd, parameters.max_cost_per_model_usd
    if cap is not None and sum(spent.values()) >= cap:
        return set(spent)
    return {model for model, cost in spent.items() if model_cap is not None and cost >= model_cap}
