"""How far a run is: counted once, or watched until nothing moves.

A watched run is counted only as often as its size allows, through restarts of the store, with the
time left by the rate of the last minute.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple, TypeVar

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.batches import BatchTotals
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.run import Run
from aegish_dist.core.status import (
    HELD,
    LATELY,
    FailedCalls,
    ModelStatus,
    RunStatus,
    State,
    cost_at_end_usd,
    model_eta_s,
    run_eta_s,
    total_usd,
)
from aegish_dist.db.aggregations import newest_aggregation
from aegish_dist.db.batches import batch_totals, batch_work_left
from aegish_dist.db.engine import transaction
from aegish_dist.db.failures import failed_kinds
from aegish_dist.db.progress import Progress, costs_of, model_progress
from aegish_dist.db.runs import load_run
from aegish_dist.db.workers import Fleet, ModelBlock, living_fleet
from aegish_dist.errors import QueueError, StoreAwayError
from aegish_dist.pipeline.batches.budget import is_out_of_money


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
    halt = ModelBlock.OVER_BUDGET if over else fleet.halt(run.run_id, model)
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


SMOOTHED_S = 60.0
"""Seconds of counts that a rate is taken from, where there are as many."""
LEAST_S = 10.0
"""Seconds of counts below which the rate of the last count is the better one."""


class _Count(NamedTuple):
    at_s: float
    verdicts: Mapping[str, int]


class Pace:
    """Follows the counts of a run that is watched."""

    def __init__(self) -> None:
        self._counts: deque[_Count] = deque()

    def smoothed(self, status: RunStatus, now_s: float) -> RunStatus:
        """Return a count with the time left by the rate of the last minute.

        A model without a verdict in that time has no end in sight.
        """
        verdicts = {model.model: model.done + model.replaced for model in status.models}
        before = self._counts[-1].verdicts if self._counts else verdicts
        if any(verdicts[model] < before.get(model, 0) for model in verdicts):
            self._counts.clear()  # a retry plans items again
        self._counts.append(_Count(now_s, verdicts))
        while len(self._counts) > 2 and now_s - self._counts[1].at_s >= SMOOTHED_S:
            self._counts.popleft()
        models = tuple(map(self._with_eta, status.models))
        return replace(status, models=models, eta_s=run_eta_s(models))

    def _with_eta(self, model: ModelStatus) -> ModelStatus:
        first, last = self._counts[0], self._counts[-1]
        passed_s, rate = last.at_s - first.at_s, model.rate_per_s
        if passed_s >= LEAST_S and model.model in first.verdicts:
            rate = (last.verdicts[model.model] - first.verdicts[model.model]) / passed_s
        if model.in_batches:  # their verdicts come all at once
            rate = 0.0
        return replace(model, eta_s=model_eta_s(model.state, model.planned - model.done, rate))


def paced(
    count: Callable[[], RunStatus], clock: Callable[[], float] = time.monotonic
) -> Callable[[], RunStatus]:
    """Return a function that counts a run likewise, with the time left as `Pace` has it.

    Args:
        clock: Tells seconds.
    """
    pace = Pace()
    return lambda: pace.smoothed(count(), clock())


T = TypeVar("T")

WATCH_INTERVAL_S = 1.0
"""Seconds between two counts of a run that is only watched, at least."""
RETRY_S = 0.5
"""Seconds between two attempts to reach a database or a broker that is away."""
OUTLAST_S = 60.0
"""Seconds for which a restart of either is waited out."""
COUNTS_PER_S = 0.02
"""Seconds of counting per second of waiting at most: a large run takes seconds to count."""
COUNTS_PER_S_OF_SMALL = 0.25
"""The same for small runs: those take long only while the machine is busy with something else."""
ITEMS_PER_PAUSE_S = 3000
"""A run is small if the first of these asks for a longer pause than a second for so many items."""
LONGEST_PAUSE_S = 60.0
"""Seconds between two counts at most, however long one takes."""
SETTLED_S = 5.0
"""For so long a run that lacks verdicts has to look ended: workers report a parked model for a
moment longer after `resume` or `retry` had it probed."""


class Counts:
    """The status of a run, counted again only where that is worth its time."""

    def __init__(
        self, count: Callable[[], RunStatus], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Watch a run.

        Args:
            clock: Tells seconds.
        """
        self._count = count
        self._clock = clock
        self._due_at = -math.inf
        self._was_quiet = False
        self._ended_at: float | None = None

    def look(self, *, quiet: bool) -> RunStatus | None:
        """Return the status, None when it is too early to count again.

        Args:
            quiet: Whether no item waits and none is held, so that nothing can have been added
                since a count that began in quiet. When quiet begins, it is counted at once.
        """
        began, begins_now = self._clock(), quiet and not self._was_quiet
        self._was_quiet = quiet
        if began < self._due_at and not begins_now:
            return None
        status = self._count()
        ended = self._clock()
        self._due_at = ended + _pause_s(ended - began, status.planned)
        if not status.ended:
            self._ended_at = None
        elif self._ended_at is None:
            self._ended_at = ended
        return status

    def has_ended(self, status: RunStatus) -> bool:
        """Return whether a run is complete, or has looked ended for long enough."""
        if not status.missing or status.held or self._ended_at is None:
            return status.ended
        return self._clock() - self._ended_at >= SETTLED_S


def _pause_s(took_s: float, planned: int) -> float:
    """Return the seconds until the next count."""
    for_small = max(took_s / COUNTS_PER_S_OF_SMALL, planned / ITEMS_PER_PAUSE_S)
    return min(took_s / COUNTS_PER_S, for_small, LONGEST_PAUSE_S)


def watch(engine: Engine, first: RunStatus, on_status: Callable[[RunStatus], None]) -> RunStatus:
    """Count a run again and again until it is complete or nothing moves by itself.

    Args:
        on_status: Called about every second with the latest count.

    Returns:
        The last count.

    Raises:
        StoreAwayError: The database was away for a minute.
    """
    counts = Counts(paced(lambda: patiently(lambda: run_status(engine, first.run_id))))
    status = counts.look(quiet=False) or first
    while not counts.has_ended(status):
        time.sleep(WATCH_INTERVAL_S)
        status = counts.look(quiet=False) or status
        on_status(status)
    return status


def patiently(call: Callable[[], T]) -> T:
    """Call, and again for up to a minute while the database or the broker is away.

    Raises:
        StoreAwayError: The database was away for all of it.
    """
    until = time.monotonic() + OUTLAST_S
    while True:
        try:
            return call()
        except (QueueError, StoreAwayError):
            if time.monotonic() > until:
                raise
        time.sleep(RETRY_S)
