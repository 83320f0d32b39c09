"""How far a run is: counted once, or watched until nothing moves.

A watched run is counted only as often as its size allows, through restarts of the store, with the
time left by the rate of the last minute. No time is given before there are verdicts to judge by.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.run import Run
from aegish_dist.core.status import (
    HELD,
    LATELY,
    BatchTotals,
    FailedCalls,
    ModelStatus,
    RunStatus,
    State,
    cost_at_end_usd,
    joined,
    model_eta_s,
    run_eta_s,
    tells_pace,
    total_usd,
)
from aegish_dist.core.text import as_number
from aegish_dist.db.batches import batch_totals
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.fleet import Fleet, ModelBlock, living_fleet
from aegish_dist.db.missing import newest_aggregation
from aegish_dist.db.progress import Progress, costs_of, failed_kinds, model_progress
from aegish_dist.db.runs import load_run
from aegish_dist.errors import QueueError, StoreAwayError
from aegish_dist.pipeline.batches.budget import is_out_of_money

RATE_WINDOW_S = 15.0  # seconds over which verdicts per second are taken
LAST_ERRORS = 8


def run_status(engine: Engine, run_id: str) -> RunStatus:
    with transaction(engine) as session:
        run = load_run(session, run_id)
        progress = model_progress(session, run, RATE_WINDOW_S)
        fleet = living_fleet(session)
        batches = batch_totals(session, run_id)
        stored = failed_kinds(session, run_id, LATELY.total_seconds(), LAST_ERRORS)
        spent = costs_of(progress)
        over = run.over_budget(spent) | _out_of_money(session, run, spent, batches)
        aggregation = newest_aggregation(session, run_id)
    # A worker reports what it held for a moment after its last verdict is stored.
    unfinished = {spec.id for spec in run.models if _missing(run, progress[spec.id], spec.id)}
    failing = fleet.failing.get(run_id, ())
    held = [failed for failed in failing if failed.model in unfinished]
    failures = joined((*stored, *held))
    facts = _RunFacts(
        run=run,
        progress=progress,
        fleet=fleet,
        failures=failures,
        batches=batches,
        over=over,
    )
    models = tuple(_model_status(facts, spec.id) for spec in run.models)
    planned = sum(m.planned for m in models)
    done = sum(m.done for m in models)
    cap, model_cap = map(as_number, run.caps)
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
        max_cost_usd=cap,
        max_cost_per_model_usd=model_cap,
        rate_limited=sum(model.rate_limited for model in models),
        rate_limited_last_minute=sum(model.rate_limited_last_minute for model in models),
        last_errors=failures[:LAST_ERRORS],
    )


def _summed(counts: Iterable[Mapping[Outcome, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for of_model in counts:
        total.update(of_model)
    return dict(sorted(total.items()))


def _joint_state(models: tuple[ModelStatus, ...]) -> State:
    states = {model.state for model in models}
    for state in (State.RUNNING, State.WAITING, State.PARKED, State.OVER_BUDGET, *HELD):
        if state in states:
            return state
    return State.COMPLETE


def _out_of_money(
    session: Session, run: Run, spent: Mapping[str, Decimal], batches: Mapping[str, BatchTotals]
) -> set[str]:
    """Return the models that have no open batch, and whose caps leave no room for one."""
    out_of_money = set()
    for spec in run.models:
        totals = batches.get(spec.id)
        if totals is None or totals.starts_in_s or totals.open:
            continue
        if is_out_of_money(session, run, spec, spent, batches):
            out_of_money.add(spec.id)
    return out_of_money


class _RunFacts(Struct, frozen=True):
    run: Run
    progress: Mapping[str, Progress]
    fleet: Fleet
    failures: tuple[FailedCalls, ...]
    batches: Mapping[str, BatchTotals]  # batches of the models that are asked so, now or later
    over: Collection[str]


def _missing(run: Run, progress: Progress, model: str) -> int:
    """Return how many items of a model have no verdict, or wait for another one."""
    missing = progress.awaiting_retry
    if not run.imported:
        missing += run.planned(model) - sum(progress.outcomes.values())
    return missing


def _model_status(facts: _RunFacts, model: str) -> ModelStatus:
    run = facts.run
    progress = facts.progress[model]
    fleet = facts.fleet
    verdicts = sum(progress.outcomes.values())
    missing = _missing(run, progress, model)
    done = verdicts - progress.awaiting_retry
    held = min(fleet.in_flight.get((run.run_id, model), 0), missing)
    failed = sum(progress.failed.values())
    state = _state(facts, model, missing, held)
    cost = as_number(progress.cost_usd)
    kinds = [kind for kind in facts.failures if kind.model == model]
    calls = sum(kind.calls for kind in kinds)
    batches = facts.batches.get(model)
    pace = progress.pace_per_s
    if batches is not None and not batches.starts_in_s:
        pace = 0.0  # verdicts of batches come all at once
    limited = [kind for kind in kinds if kind.error_class is ErrorClass.RATE_LIMIT]
    reasons = {
        State.WAITING: fleet.unserved.get((run.run_id, model)),
        State.PARKED: fleet.reason(run.run_id, model) or None,
    }
    return ModelStatus(
        model=model,
        planned=done + missing,
        done=done,
        in_flight=held,
        state=state,
        rate_per_s=round(progress.rate_per_s, 2),
        cost_usd=cost,
        failed=failed,
        replaced=progress.replaced,
        reason=reasons.get(state),
        waiting=fleet.waiting.get((run.run_id, model)),
        eta_s=model_eta_s(state, missing, pace),
        cost_at_end_usd=cost_at_end_usd(
            cost, verdicts + progress.replaced, state, missing, batches
        ),
        failed_calls=calls,
        retries=max(0, calls - failed),
        rate_limited=sum(kind.calls for kind in limited),
        rate_limited_last_minute=sum(kind.calls_lately for kind in limited),
        batches=batches,
    )


def _state(facts: _RunFacts, model: str, missing: int, held: int) -> State:
    run = facts.run
    fleet = facts.fleet
    over = model in facts.over
    if missing <= 0 or run.prompt is None:
        return State.COMPLETE
    if run.held is not None:
        return State(run.held.value)
    served = (run.run_id, model) not in fleet.unserved
    batches = facts.batches.get(model)
    if batches is not None and not batches.starts_in_s and missing > batches.live:
        # Any worker plans and follows its batches: no call is made of it.
        if over and not batches.open:
            return State.OVER_BUDGET
        moves = bool(fleet.workers and served)
    else:
        halt = ModelBlock.OVER_BUDGET if over else fleet.halt(run.run_id, model)
        if halt is not None:
            return State(halt.value)
        # A worker also holds items that reached it of a model that it may not call.
        stores = fleet.workers and facts.progress[model].rate_per_s
        moves = bool(stores or (held and served))
    return State.RUNNING if moves else State.WAITING


def items_held(engine: Engine, run_id: str) -> int:
    """Return how many items of a run living workers hold, without counting its verdicts."""
    held = in_transaction(engine, living_fleet).in_flight
    return sum(items for (run, _), items in held.items() if run == run_id)


SMOOTHED_S = 60.0  # seconds of counts that a rate is taken from, where there are as many
KEPT_S = 600.0  # seconds of counts that the rate of a slow model is taken from
# Seconds of counts below which the time left is that of the last count, if they do not tell it.
LEAST_S = 10.0


def paced(
    count: Callable[[], RunStatus], clock: Callable[[], float] = time.monotonic
) -> Callable[[], RunStatus]:
    """Return a counter that also estimates the time left, by the rate of the last minute.

    A model without a verdict in that time has no end in sight. For a slow model, as many minutes
    count as brought ten verdicts.
    """
    counts: deque[tuple[float, dict[str, int]]] = deque()

    def smoothed() -> RunStatus:
        status = count()
        now_s = clock()
        verdicts = {model.model: model.done + model.replaced for model in status.models}
        _, before = counts[-1] if counts else (now_s, verdicts)
        # A retry plans items again: what was counted before it tells no pace.
        if any(number < before.get(model, 0) for model, number in verdicts.items()):
            counts.clear()
        counts.append((now_s, verdicts))
        # A rate needs a first count and a last one.
        while len(counts) > 2 and now_s - counts[1][0] >= KEPT_S:
            counts.popleft()
        models = tuple(replace(model, eta_s=_eta_s(counts, model)) for model in status.models)
        return replace(status, models=models, eta_s=run_eta_s(models))

    return smoothed


# Verdicts by model, with the second of the clock at which they were counted.
Counted = Sequence[tuple[float, Mapping[str, int]]]


def _eta_s(counts: Counted, model: ModelStatus) -> float | None:
    rate = 0.0 if model.in_batches else _rate_per_s(counts, model.model)
    first_s, _ = counts[0]
    last_s, _ = counts[-1]
    if not rate and last_s - first_s < LEAST_S:
        return model.eta_s
    return model_eta_s(model.state, model.planned - model.done, rate)


def _rate_per_s(counts: Counted, model: str) -> float:
    """Return the verdicts per second of a model by counts; 0 where they are too few to tell."""
    now_s, newest = counts[-1]
    came: list[tuple[float, int]] = []  # seconds ago, and the verdicts that came since
    for at_s, verdicts_then in counts:
        number = newest[model] - verdicts_then.get(model, 0)
        if came and number == came[0][1]:
            came.clear()  # its turn had not begun
        came.append((now_s - at_s, number))
    in_a_minute = came[0][1]
    for seconds, number in came:
        if seconds >= SMOOTHED_S:
            in_a_minute = number
    enough = [(seconds, number) for seconds, number in came if tells_pace(number, seconds)]
    if not in_a_minute or not enough:
        return 0.0
    seconds, verdicts = enough[0]
    for of_seconds, number in enough:
        if of_seconds >= SMOOTHED_S:
            seconds = of_seconds
            verdicts = number
    return verdicts / seconds


T = TypeVar("T")

WATCH_INTERVAL_S = 1.0  # seconds between two counts of a run that is only watched, at least
RETRY_S = 0.5  # seconds between two attempts to reach a database or a broker that is away
OUTLAST_S = 60.0  # seconds for which a restart of either is waited out
# Seconds of counting per second of waiting at most: a large run takes seconds to count.
COUNTS_PER_S = 0.02
# The same for small runs: those take long only while the machine is busy with something else.
COUNTS_PER_S_OF_SMALL = 0.25
# A run is small if the first of these asks for a longer pause than a second for so many items.
ITEMS_PER_PAUSE_S = 3000
LONGEST_PAUSE_S = 60.0  # seconds between two counts at most, however long one takes
# For so long a run that lacks verdicts has to look ended: workers report a parked model for a
# moment longer after `resume` or `retry` had it probed.
SETTLED_S = 5.0


class Counts:
    """The status of a run, counted again only where that is worth its time."""

    def __init__(
        self, count: Callable[[], RunStatus], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Count nothing yet; the clock tells seconds."""
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
        began = self._clock()
        begins_now = quiet and not self._was_quiet
        self._was_quiet = quiet
        if began < self._due_at and not begins_now:
            return None
        status = self._count()
        ended = self._clock()
        took_s = ended - began
        for_small = max(took_s / COUNTS_PER_S_OF_SMALL, status.planned / ITEMS_PER_PAUSE_S)
        self._due_at = ended + min(took_s / COUNTS_PER_S, for_small, LONGEST_PAUSE_S)
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


def watch(engine: Engine, first: RunStatus, on_status: Callable[[RunStatus], None]) -> RunStatus:
    """Count a run again and again until it is complete or nothing moves by itself.

    `on_status` gets the latest count about every second; the last one is returned. It is a
    StoreAwayError if the database was away for a minute.
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

    After that its error is raised.
    """
    until = time.monotonic() + OUTLAST_S
    while True:
        try:
            return call()
        except (QueueError, StoreAwayError):
            if time.monotonic() > until:
                raise
        time.sleep(RETRY_S)
