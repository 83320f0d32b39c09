"""How far a run is."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from sqlalchemy import Engine

from aegish_dist.core.run import Run
from aegish_dist.core.stop_rule import Decision, StopRule
from aegish_dist.core.verdict import Outcome
from aegish_dist.db.aggregations import newest_aggregation
from aegish_dist.db.engine import transaction
from aegish_dist.db.progress import Progress, model_progress
from aegish_dist.db.runs import load_run
from aegish_dist.db.stop_rules import load_decision
from aegish_dist.db.workers import Fleet, Halt, living_fleet

RATE_WINDOW_S = 15.0


class State(StrEnum):
    """The state of a run, or of a model of it."""

    COMPLETE = "complete"
    """Nothing is missing, or nothing more will come because the run was imported."""
    RUNNING = "running"
    """Living workers hold items of it, or finished some lately."""
    WAITING = "waiting"
    """Something is missing and no worker is at it."""
    PARKED = "parked"
    """Something is missing, and the model failed so often that it is only probed now and then."""
    OVER_BUDGET = "over budget"
    """Something is missing, and the run has spent what it may."""
    PAUSED = "paused"
    """Something is missing, and a user stopped the run for a while."""
    CANCELLED = "cancelled"
    """Something is missing, and a user stopped the run."""
    DECIDED = "decided"
    """Something is missing, and the run's stop rule found the question settled."""


HELD = (State.PAUSED, State.CANCELLED, State.DECIDED)
"""Workers ask nothing of the run; calls in flight may still end."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model of a run."""

    model: str
    """Canonical model id."""
    planned: int
    """Samples times epochs."""
    done: int
    """Items that have a verdict."""
    in_flight: int
    """Items that workers hold now."""
    state: State
    """Of this model."""
    rate_per_s: float
    """Verdicts per second over the last `RATE_WINDOW_S` seconds."""
    cost_usd: float | None
    """So far; None when unknown."""
    failed: int
    """Newest verdicts whose call brought no answer."""
    replaced: int
    """Verdicts that a retry has replaced."""
    reason: str | None = None
    """Of a waiting model why no living worker may call it, of a parked one the provider's words."""


@dataclass(frozen=True, slots=True)
class RuleReading:
    """The stop rule of a run, and what it says about the answers so far."""

    rule: StopRule
    """The rule."""
    decision: Decision
    """The last reading."""
    settled: bool
    """Whether every question is answered."""
    saved_calls: int
    """Planned items that are not asked because their questions are answered."""
    saved_usd: float | None
    """Their cost, by what the others of their model have cost on average; None when unknown."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run as a whole."""

    run_id: str
    """Full id."""
    origin: str
    """`submit`, or `import`: then no model can be asked."""
    state: State
    """The most active state of any model."""
    planned: int
    """Over all models."""
    done: int
    """Over all models."""
    missing: int
    """Planned items without a verdict."""
    outcomes: Mapping[str, int]
    """Verdicts by outcome, of each item the newest one."""
    failed: Mapping[str, int]
    """Those of them whose call brought no answer."""
    replaced: int
    """Verdicts that a retry has replaced."""
    retrying: int
    """Items that a retry asks again and has not answered yet; they count as missing."""
    models: tuple[ModelStatus, ...]
    """In the order of the run."""
    eta_s: float | None
    """Seconds until complete at the present rate; None when nothing moves."""
    workers: int
    """Running workers, also those busy with other runs."""
    snapshot_id: int | None = None
    """Newest snapshot that workers made of the run as it is planned; None until it is complete or a
    user asks for one."""
    aggregation_problem: str | None = None
    """Why they made none; None when they did, or have not yet."""
    reading: RuleReading | None = None
    """Of a run with a stop rule the last reading; None before the first, and without a rule."""

    @property
    def ended(self) -> bool:
        """Whether nothing moves by itself: all that is missing is halted or cannot be called."""
        return not any(map(_moves, self.models))

    @property
    def held(self) -> bool:
        """Whether workers ask nothing of the run, and all calls in flight have ended."""
        return self.state in HELD and self.ended


def _moves(model: ModelStatus) -> bool:
    if model.state in HELD:
        return model.in_flight > 0
    waits = model.state is State.WAITING and model.reason is None
    return waits or model.state is State.RUNNING


def run_status(engine: Engine, run_id: str) -> RunStatus:
    """Count a run.

    Args:
        engine: The store.
        run_id: A full run id.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        progress = model_progress(session, run, RATE_WINDOW_S)
        fleet = living_fleet(session)
        aggregation = newest_aggregation(session, run_id)
        rule, decision = load_decision(session, run_id)
    spent = {model: each.cost_usd or Decimal(0) for model, each in progress.items()}
    over = over_budget(run, spent)
    models = tuple(
        _model_status(
            run,
            spec.id,
            progress[spec.id],
            fleet,
            Halt.OVER_BUDGET if spec.id in over else fleet.halt(run_id, spec.id),
            stopped=decision is not None and rule is not None and spec.id in decision.stopped,
        )
        for spec in run.models
    )
    planned, done = sum(m.planned for m in models), sum(m.done for m in models)
    state = _joint_state(models)
    return RunStatus(
        run_id=run_id,
        origin=run.origin,
        state=state,
        planned=planned,
        done=done,
        missing=planned - done,
        outcomes=_summed(each.outcomes for each in progress.values()),
        failed=_summed(each.failed for each in progress.values()),
        replaced=sum(model.replaced for model in models),
        retrying=sum(each.awaiting_retry for each in progress.values()),
        models=models,
        eta_s=_eta_s(state, planned - done, sum(model.rate_per_s for model in models)),
        workers=fleet.workers,
        snapshot_id=None if aggregation is None else aggregation.snapshot_id,
        aggregation_problem=None if aggregation is None else aggregation.problem,
        reading=None if rule is None or decision is None else _reading(rule, decision, models),
    )


def _reading(rule: StopRule, decision: Decision, models: Sequence[ModelStatus]) -> RuleReading:
    saved = [model for model in models if model.state is State.DECIDED]
    left = {model.model: model.planned - model.done - model.in_flight for model in saved}
    costs = [
        None if model.cost_usd is None else model.cost_usd / max(1, model.done) * left[model.model]
        for model in saved
    ]
    known = [cost for cost in costs if cost is not None]
    usd = round(sum(known), 6) if len(known) == len(costs) else None
    return RuleReading(rule, decision, decision.settled, sum(left.values()), usd)


def items_held(engine: Engine, run_id: str) -> int:
    """Return how many items of a run living workers hold, without counting its verdicts."""
    with transaction(engine) as session:
        held = living_fleet(session).in_flight
    return sum(items for (run, _), items in held.items() if run == run_id)


def _summed(counts: Iterable[Mapping[Outcome, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _model_status(
    run: Run,
    model: str,
    progress: Progress,
    fleet: Fleet,
    halt: Halt | None,
    *,
    stopped: bool = False,
) -> ModelStatus:
    done = sum(progress.outcomes.values()) - progress.awaiting_retry
    held = fleet.in_flight.get((run.run_id, model), 0)
    unserved = fleet.unserved.get((run.run_id, model))
    planned = run.planned(model)
    if done >= planned or run.prompt is None:
        state = State.COMPLETE
    elif run.held is not None:
        state = State(run.held.value)
    elif stopped:
        state = State.DECIDED
    elif halt is not None:
        state = State(halt.value)
    else:
        # A worker also holds items that reached it of a model that it may not call.
        held_to_call = held if unserved is None else 0
        moves = held_to_call or (fleet.workers and progress.rate_per_s)
        state = State.RUNNING if moves else State.WAITING
    return ModelStatus(
        model=model,
        planned=planned,
        done=done,
        in_flight=held,
        state=state,
        rate_per_s=round(progress.rate_per_s, 2),
        cost_usd=None if progress.cost_usd is None else float(progress.cost_usd),
        failed=sum(progress.failed.values()),
        replaced=progress.replaced,
        reason=_reason(state, unserved, fleet.reason(run.run_id, model)),
    )


def _reason(state: State, unserved: str | None, words: str | None) -> str | None:
    if state is State.WAITING:
        return unserved
    return words or None if state is State.PARKED else None


def _eta_s(state: State, missing: int, rate_per_s: float) -> float | None:
    if state is State.COMPLETE:
        return 0.0
    moves = state is State.RUNNING and rate_per_s > 0
    return round(missing / rate_per_s, 1) if moves else None


def over_budget(run: Run, spent: Mapping[str, Decimal]) -> set[str]:
    """Return the models that have spent what they may, whether or not a worker lives.

    Args:
        run: The run.
        spent: USD by model.
    """
    parameters = run.parameters
    if parameters is None:
        return set()
    cap, model_cap = parameters.max_cost_usd, parameters.max_cost_per_model_usd
    if cap is not None and sum(spent.values()) >= cap:
        return set(spent)
    return {model for model, cost in spent.items() if model_cap is not None and cost >= model_cap}


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
