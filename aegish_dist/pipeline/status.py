"""How far a run is."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.db.engine import connection_errors_in_one_line
from aegish_dist.db.progress import Progress, model_progress
from aegish_dist.db.runs import load_run
from aegish_dist.db.workers import Fleet, living_fleet

RATE_WINDOW_S = 15.0


class State(StrEnum):
    """What a run or a model of it is doing."""

    COMPLETE = "complete"
    """Nothing is missing."""
    RUNNING = "running"
    """Workers hold items of it, or finished some lately."""
    WAITING = "waiting"
    """Something is missing and no worker is at it."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model of a run."""

    model: str
    planned: int
    done: int
    in_flight: int
    """Items that workers hold now."""
    state: State
    rate_per_s: float
    """Verdicts per second over the last `RATE_WINDOW_S` seconds."""
    cost_usd: float | None
    """So far; None when unknown."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run as a whole."""

    run_id: str
    state: State
    planned: int
    done: int
    missing: int
    outcomes: Mapping[str, int]
    """Verdicts by outcome."""
    models: tuple[ModelStatus, ...]
    eta_s: float | None
    """Seconds until complete at the present rate; None when nothing moves."""
    workers: int
    """Workers alive, whatever they are busy with."""


def run_status(engine: Engine, run_id: str) -> RunStatus:
    """Count a run.

    Args:
        engine: The store.
        run_id: A full run id.
    """
    with connection_errors_in_one_line(), Session(engine) as session:
        run = load_run(session, run_id)
        progress = model_progress(session, run, RATE_WINDOW_S)
        fleet = living_fleet(session)
    models = tuple(_model_status(run, spec.id, progress[spec.id], fleet) for spec in run.models)
    planned, done = sum(m.planned for m in models), sum(m.done for m in models)
    rate = sum(model.rate_per_s for model in models)
    total: Counter[str] = Counter()
    for each in progress.values():
        total.update(each.outcomes)
    return RunStatus(
        run_id=run_id,
        state=_joint_state(models),
        planned=planned,
        done=done,
        missing=planned - done,
        outcomes=dict(sorted(total.items())),
        models=models,
        eta_s=0.0 if planned == done else (round((planned - done) / rate, 1) if rate else None),
        workers=fleet.workers,
    )


def _model_status(run: Run, model: str, progress: Progress, fleet: Fleet) -> ModelStatus:
    done = sum(progress.outcomes.values())
    held = fleet.in_flight.get((run.run_id, model), 0)
    if done >= run.planned_per_model:
        state = State.COMPLETE
    else:
        state = State.RUNNING if held or progress.rate_per_s else State.WAITING
    return ModelStatus(
        model=model,
        planned=run.planned_per_model,
        done=done,
        in_flight=held,
        state=state,
        rate_per_s=round(progress.rate_per_s, 2),
        cost_usd=None if progress.cost_usd is None else float(progress.cost_usd),
    )


def _joint_state(models: tuple[ModelStatus, ...]) -> State:
    states = {model.state for model in models}
    for state in (State.RUNNING, State.WAITING):
        if state in states:
            return state
    return State.COMPLETE
