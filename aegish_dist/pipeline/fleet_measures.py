"""Measures of a fleet from what its database, its broker and its limiter say; pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from aegish_dist.broker.messages import model_of
from aegish_dist.broker.queue_readings import QueueReadings
from aegish_dist.core.batches import BatchState
from aegish_dist.db.fleet_state import CountedModel, FleetState, OpenRun
from aegish_dist.db.workers import Fleet, Halt
from aegish_dist.telemetry.metrics import Readings, Series

MOST_RUNS = 50
"""Open runs that get series of their own, the newest ones."""


def of_database(state: FleetState) -> Readings:
    """Return the measures that one reading of the database gives."""
    return {
        **_of_workers(state.fleet),
        **_of_parked(state),
        **_of_batches(state),
        "aegish_open_runs": {
            ("asked",): sum(not run.held for run in state.runs),
            ("held",): sum(run.held for run in state.runs),
        },
        "aegish_run_items_planned": {
            (run.run_id,): run.planned_per_model * len(run.models) for run in state.runs[:MOST_RUNS]
        },
        # A run that is held spends nothing more: no alert on its cap has to stay until it is gone.
        "aegish_run_cost_cap_usd": {
            (run.run_id,): run.cap_usd
            for run in state.runs[:MOST_RUNS]
            if run.cap_usd is not None and not run.held
        },
        "aegish_aggregations_due": {(): state.aggregations_due},
        "aegish_aggregation_oldest_seconds": {(): state.aggregation_oldest_s or 0.0},
        "aegish_table_bytes": {(table.name,): table.bytes for table in state.tables},
        "aegish_table_dead_rows": {(table.name,): table.dead_rows for table in state.tables},
        "aegish_database_connections": {(): state.connections},
        "aegish_database_connections_max": {(): state.connections_max},
    }


def _of_workers(fleet: Fleet) -> Readings:
    held: Counter[tuple[str, ...]] = Counter()
    for (_, model), items in fleet.in_flight.items():
        if model:
            held[model,] += items
    return {
        "aegish_workers": {(version or "unknown",): n for version, n in fleet.versions.items()}
        or {("none",): 0},
        "aegish_fleet_items_in_flight": held,
        "aegish_heartbeat_age_seconds": {(): fleet.oldest_report_s},
    }


def _of_parked(state: FleetState) -> Readings:
    parked: dict[tuple[str, ...], int] = {}
    for run in state.runs:
        for each in run.opened:
            halted = state.fleet.halt(run.run_id, each.model) is Halt.PARKED
            parked[each.model,] = max(parked.get((each.model,), 0), int(halted))
    return {"aegish_fleet_models_parked": parked}


def _of_batches(state: FleetState) -> Readings:
    open_states = [each for each in BatchState if each is not BatchState.ENDED]
    batches: dict[tuple[str, ...], int] = {(each.value,): 0 for each in open_states}
    items: Counter[tuple[str, ...]] = Counter()
    for each in state.batches:
        batches[each.state,] += each.batches
        items[each.model,] += each.requests
    creating = [
        each.creating_s or 0.0 for each in state.batches if each.state == BatchState.CREATING
    ]
    return {
        "aegish_batches": batches,
        "aegish_batch_items": items,
        "aegish_batch_oldest_seconds": {
            (): max((each.oldest_s for each in state.batches), default=0.0)
        },
        "aegish_batch_creating_seconds": {(): max(creating, default=0.0)},
    }


def of_counts(runs: Sequence[OpenRun], counted: Mapping[int, CountedModel]) -> Readings:
    """Return how far runs are, those of which every model is counted."""
    done: dict[tuple[str, ...], float] = {}
    cost: dict[tuple[str, ...], float] = {}
    for run in runs:
        if all(key in counted for key in run.models):
            each = [counted[key] for key in run.models]
            done[run.run_id,] = sum(model.done for model in each)
            known = [model.cost_usd for model in each if model.cost_usd is not None]
            if known:
                cost[run.run_id,] = sum(known)
    return {"aegish_run_items_done": done, "aegish_run_cost_usd": cost}


def of_broker(queues: QueueReadings, state: FleetState | None, now: float) -> Readings:
    """Return the measures that one reading of the broker gives.

    Args:
        state: The latest reading of the database; None: there is none.
    """
    waiting: Counter[tuple[str, ...]] = Counter()
    for queue, messages in queues.waiting.items():
        waiting[model_of(queue) or "",] += messages
    oldest: dict[tuple[str, ...], float] = {}
    if queues.unacknowledged is not None:  # else the broker does not show it
        oldest = dict.fromkeys(waiting, 0.0)
    for queue, at in queues.oldest_at.items():
        model = model_of(queue) or ""
        oldest[model,] = max(oldest.get((model,), 0.0), now - at)
    held: Counter[tuple[str, ...]] = Counter()
    for queue, share in queues.unacknowledged_of.items():
        held[model_of(queue) or "other",] += round(share)
    found: dict[str, Series] = {
        "aegish_queue_messages": waiting,
        "aegish_queue_oldest_seconds": oldest,
        "aegish_queue_unacknowledged": held,
    }
    if state is not None:
        found["aegish_scaling_items"] = {(): scaling_items(queues, state)}
    if queues.memory_bytes is not None:
        found["aegish_redis_memory_bytes"] = {("broker",): queues.memory_bytes}
        found["aegish_redis_memory_max_bytes"] = {("broker",): queues.memory_max_bytes or 0}
    return found


def scaling_items(queues: QueueReadings, state: FleetState) -> int:
    """Return the items that workers are wanted for.

    All that waits or is held counts. An open model counts as one item at least: a worker has to
    probe it where it is parked, to follow its batches, and to notice that it is finished. So does
    an aggregation, and each batch that is not ended. Messages of killed workers are held until
    another worker requeues them: with none left, they would stay.
    """
    wanted = 0
    for run in state.runs:
        for each in run.opened if not run.held else ():
            parked = state.fleet.halt(run.run_id, each.model) is Halt.PARKED
            wanted += 1 if parked else max(1, queues.waiting.get(each.queue, 0))
    held = queues.unacknowledged
    if held is None:  # RabbitMQ requeues the messages of a killed worker by itself
        held = sum(state.fleet.in_flight.values())
    batches = sum(each.batches for each in state.batches)
    return wanted + held + state.aggregations_due + batches


class VerdictClock:
    """Follows how long no verdict has come although runs are asked."""

    def __init__(self) -> None:
        """Know of nothing."""
        self._inserted: int | None = None
        self._asked: frozenset[int] | None = None
        self._moved_at: datetime | None = None

    def last_verdict_age_s(self, state: FleetState, now: datetime) -> float | None:
        """Return the seconds since the newest verdict, or since more was asked if that is later.

        Returns:
            None when no run is asked.
        """
        runs = [run for run in state.runs if not run.held]
        asked = frozenset(each.key for run in runs for each in run.opened)
        inserted = sum(table.inserted for table in state.tables if table.name == "verdicts")
        begun = self._asked is not None and asked - self._asked
        if begun or (self._inserted is not None and inserted != self._inserted):
            self._moved_at = now
        self._asked, self._inserted = asked, inserted
        if not runs:
            return None
        ages = [(now - run.created_at).total_seconds() for run in runs]
        if state.newest_verdict_age_s is not None:
            ages.append(state.newest_verdict_age_s)
        if self._moved_at is not None:
            ages.append((now - self._moved_at).total_seconds())
        return max(0.0, min(ages))
