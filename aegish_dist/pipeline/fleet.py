"""The exporter: measures of what only the database, the broker and the limiter know.

Threads read each source every few seconds, and a scrape shows the latest readings: neither the
number of scrapers nor a source that hangs changes what the others cost. Readings of a source that
fails are dropped, so that no rule follows a number that is not true any more.
"""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from time import monotonic, time
from typing import Any

from celery import Celery
from msgspec import Struct, field
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from aegish_dist.broker.client import QueueReadings, read_queues
from aegish_dist.broker.messages import model_of
from aegish_dist.core.run import BatchState
from aegish_dist.db.engine import in_transaction, open_engine
from aegish_dist.db.fleet import FleetState, ModelBlock, OpenRun, count_model, read_fleet
from aegish_dist.errors import AegishError
from aegish_dist.logs import get_logger
from aegish_dist.ratelimit.shared_limiter import server_facts
from aegish_dist.telemetry.metrics import (
    EXPORTER,
    Readings,
    Series,
    TelemetryPage,
    TelemetryServer,
    families,
    metrics_page,
)

MOST_RUNS = 50  # open runs that get series of their own, the newest ones


def of_database(state: FleetState) -> Readings:
    """Return the measures that one reading of the database gives."""
    fleet = state.fleet
    workers = _summed((version or "unknown", n) for version, n in fleet.versions.items())
    in_flight = [(model, items) for (_, model), items in fleet.in_flight.items() if model]
    return {
        "aegish_workers": workers or {("none",): 0},
        "aegish_fleet_items_in_flight": _summed(in_flight),
        "aegish_heartbeat_age_seconds": {(): fleet.oldest_report_s},
        **_of_batches(state.batches),
        **_of_runs(state),
        "aegish_aggregations_due": {(): state.aggregations_due},
        "aegish_aggregation_oldest_seconds": {(): state.aggregation_oldest_s or 0.0},
        "aegish_table_bytes": {(table.name,): table.bytes for table in state.tables},
        "aegish_table_dead_rows": {(table.name,): table.dead_rows for table in state.tables},
        "aegish_database_connections": {(): state.connections},
        "aegish_database_connections_max": {(): state.connections_max},
    }


def _of_batches(batches: Sequence[Any]) -> Readings:
    # States without a batch are shown with 0.
    states = [(state.value, 0) for state in BatchState if state is not BatchState.ENDED]
    oldest_s = creating_s = 0.0
    for batch in batches:
        states.append((batch.state, batch.batches))
        oldest_s = max(oldest_s, batch.oldest_s)
        if batch.state == BatchState.CREATING:
            creating_s = max(creating_s, batch.creating_s or 0.0)
    return {
        "aegish_batches": _summed(states),
        "aegish_batch_items": _summed((batch.model, batch.requests) for batch in batches),
        "aegish_batch_oldest_seconds": {(): oldest_s},
        "aegish_batch_creating_seconds": {(): creating_s},
    }


def _of_runs(state: FleetState) -> Readings:
    newest = state.runs[:MOST_RUNS]
    # A run that is held spends nothing more: no alert on its cap has to stay until it is gone.
    capped = [run for run in newest if run.cap_usd is not None and not run.held]
    held = sum(run.held for run in state.runs)
    parked: dict[tuple[str, ...], bool] = {}
    for run in state.runs:
        for model in run.opened:
            is_parked = state.fleet.halt(run.run_id, model.model) is ModelBlock.PARKED
            parked[model.model,] = is_parked or parked.get((model.model,), False)
    return {
        "aegish_fleet_models_parked": parked,
        "aegish_open_runs": {("asked",): len(state.runs) - held, ("held",): held},
        "aegish_run_items_planned": {
            (run.run_id,): run.planned_per_model * len(run.models) for run in newest
        },
        "aegish_run_cost_cap_usd": {(run.run_id,): run.cap_usd or 0.0 for run in capped},
    }


def _summed(parts: Iterable[tuple[str, int]]) -> Counter[tuple[str, ...]]:
    """Return the sum of each label, those of 0 included."""
    total: Counter[tuple[str, ...]] = Counter()
    for label, number in parts:
        total[label,] += number
    return total


def of_counts(runs: Sequence[OpenRun], counted: Mapping[int, Any]) -> Readings:
    """Return how far runs are, those of which every model is counted."""
    done: dict[tuple[str, ...], int] = {}
    cost: dict[tuple[str, ...], float] = {}
    for run in runs:
        if not counted.keys() >= set(run.models):
            continue
        models = [counted[key] for key in run.models]
        done[run.run_id,] = sum(model.done for model in models)
        costs = [model.cost_usd for model in models if model.cost_usd is not None]
        if costs:
            cost[run.run_id,] = sum(costs)
    return {"aegish_run_items_done": done, "aegish_run_cost_usd": cost}


def of_broker(queues: QueueReadings, state: FleetState | None, now: float) -> Readings:
    """Return the measures that one reading of the broker gives."""
    waiting = _summed((model_of(queue) or "", n) for queue, n in queues.waiting.items())
    # Where the broker does not show what is held, an age of 0 could be wrong.
    oldest = dict.fromkeys(() if queues.unacknowledged is None else waiting, 0.0)
    for queue, at in queues.oldest_at.items():
        model = model_of(queue) or ""
        oldest[model,] = max(oldest.get((model,), 0.0), now - at)
    found: dict[str, Series] = {
        "aegish_queue_messages": waiting,
        "aegish_queue_oldest_seconds": oldest,
        "aegish_queue_unacknowledged": _summed(
            (model_of(queue) or "other", round(n)) for queue, n in queues.unacknowledged_of.items()
        ),
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
    wanted: int = state.aggregations_due + sum(batch.batches for batch in state.batches)
    for run in state.runs:
        if run.held:
            continue
        for opened in run.opened:
            parked = state.fleet.halt(run.run_id, opened.model) is ModelBlock.PARKED
            wanted += 1 if parked else max(1, queues.waiting.get(opened.queue, 0))
    if queues.unacknowledged is None:  # RabbitMQ requeues the messages of a killed worker by itself
        return wanted + sum(state.fleet.in_flight.values())
    return wanted + queues.unacknowledged


class VerdictClock:
    """Follows how long no verdict has come although runs are asked."""

    def __init__(self) -> None:
        self._before: tuple[frozenset[int], int] | None = None
        self._moved_at: datetime | None = None

    def last_verdict_age_s(self, state: FleetState, now: datetime) -> float | None:
        """Return the seconds since the newest verdict, or since more was asked if that is later.

        Returns None when no run is asked.
        """
        runs = [run for run in state.runs if not run.held]
        opened = chain.from_iterable(run.opened for run in runs)
        asked = frozenset(model.key for model in opened)
        inserted = sum(table.inserted for table in state.tables if table.name == "verdicts")
        if self._before is not None:
            asked_before, inserted_before = self._before
            if asked - asked_before or inserted != inserted_before:
                self._moved_at = now
        self._before = asked, inserted
        if not runs:
            return None
        moments = [run.created_at for run in runs]
        if self._moved_at is not None:
            moments.append(self._moved_at)
        ages = [(now - moment).total_seconds() for moment in moments]
        if state.newest_verdict_age_s is not None:
            ages.append(state.newest_verdict_age_s)
        return max(0.0, min(ages))


log = get_logger(__name__)

# Seconds that the database may take to answer a statement that counts nothing.
REPLY_TIMEOUT_S = 10.0
# The same of one that counts: a connection that has gone silent is given up some time.
COUNT_TIMEOUT_S = 3600.0
# Share of the time that counting the verdicts of open runs may take: large ones are counted less
# often.
COUNTING_SHARE = 0.02
COUNTING_INTERVAL_S = 15.0  # seconds between two counts at least
KEPT_S = 60.0  # seconds that a reading is shown without a newer one


class _Source(Struct):
    read: Callable[[], Readings]
    # Empty before the first reading, and after one that failed.
    readings: Readings = field(default_factory=dict)
    seconds: float = 0.0
    read_at: float | None = None

    @property
    def fresh(self) -> Readings:
        current = self.read_at is not None and monotonic() - self.read_at <= KEPT_S
        return self.readings if current else {}

    def update(self, name: str) -> None:
        began = monotonic()
        try:
            self.readings, problem = self.read(), None
        except (AegishError, SQLAlchemyError) as error:
            problem = str(error).splitlines()[0]
        except Exception:
            # The thread has to outlive every error: without it, alerts follow old numbers.
            log.exception("reading_failed", source=name)
            problem = "a bug"
        if problem is not None:
            if self.readings or self.read_at is None:
                log.warning("source_away", source=name, problem=problem)
            self.readings = {}
        self.read_at = monotonic()
        self.seconds = self.read_at - began


class Exporter:
    """Reads the sources of a fleet, and keeps what it read last."""

    def __init__(
        self, engine: Engine, counting: Engine, app: Celery, limiter_url: str | None
    ) -> None:
        """Read nothing yet; without a `limiter_url` each worker limits by itself."""
        self._engine = engine
        self._counting = counting
        self._app = app
        self._state: FleetState | None = None
        self._verdict_clock = VerdictClock()
        self._counted: dict[int, Any] = {}
        self._sources = {
            "database": _Source(self._read_database),
            "broker": _Source(self._read_broker),
        }
        if limiter_url is not None:
            self._sources["limiter"] = _Source(partial(_read_limiter, limiter_url))
        self._counts = _Source(self._count)

    def refresh(self) -> None:
        for name, source in self._sources.items():
            source.update(name)

    def count(self) -> None:
        """Count the verdicts of the newest open runs; one that has changed nothing is kept."""
        self._counts.update("counts")

    @property
    def pages(self) -> dict[str, Callable[[], TelemetryPage]]:
        return {
            "/metrics": self._metrics,
            "/healthz": partial(TelemetryPage, "ok\n"),
            "/readyz": self._readyz,
        }

    def _metrics(self) -> TelemetryPage:
        sources = {**self._sources, "counts": self._counts}
        shown: dict[str, Series] = {}
        for source in sources.values():
            for name, series in source.fresh.items():
                shown[name] = {**shown.get(name, {}), **series}
        shown["aegish_up"] = {
            (name,): int(bool(source.fresh)) for name, source in self._sources.items()
        }
        shown["aegish_exporter_refresh_seconds"] = {
            (name,): source.seconds for name, source in sources.items()
        }
        return metrics_page(families(EXPORTER, shown))

    def _readyz(self) -> TelemetryPage:
        # A source that is away is a measure of its own, `aegish_up`: the exporter serves on.
        if all(source.read_at is not None for source in self._sources.values()):
            return TelemetryPage("ready\n")
        return TelemetryPage("not every source has been read yet\n", good=False)

    def _read_database(self) -> Readings:
        state = self._state = in_transaction(self._engine, read_fleet)
        age_s = self._verdict_clock.last_verdict_age_s(state, datetime.now(UTC))
        return {
            **of_database(state),
            "aegish_last_verdict_age_seconds": {} if age_s is None else {(): age_s},
        }

    def _read_broker(self) -> Readings:
        queues: list[str] = []
        for run in self._runs:
            queues += [model.queue for model in run.opened]
        state = self._state if self._sources["database"].readings else None
        return of_broker(read_queues(self._app, queues), state, time())

    def _count(self) -> Readings:
        runs = self._runs[:MOST_RUNS]
        counts: dict[int, Any] = {}
        closed: dict[int, Any] = {}
        for run in runs:
            opened = {model.key for model in run.opened}
            for key in run.models:
                # The verdicts of a closed model do not change until it is opened again.
                if key in opened or key not in self._counted:
                    counts[key] = in_transaction(self._counting, count_model, key)
                else:
                    counts[key] = self._counted[key]
                if key not in opened:
                    closed[key] = counts[key]
        self._counted = closed
        return of_counts(runs, counts)

    @property
    def _runs(self) -> Sequence[OpenRun]:
        """The open runs as the database had them last; none before it is read."""
        return () if self._state is None else self._state.runs


def _read_limiter(url: str) -> Readings:
    facts = server_facts(url)
    used, most = facts["used_memory"], facts["maxmemory"]
    return {
        "aegish_redis_memory_bytes": {("limiter",): used},
        "aegish_redis_memory_max_bytes": {("limiter",): most},
    }


def export_measures(
    *,
    database_url: str,
    app: Celery,
    limiter_url: str | None,
    host: str,
    port: int,
    interval_s: float,
    on_ready: Callable[[str], object],
) -> None:
    """Serve the measures until SIGINT or SIGTERM; once it listens, `on_ready` gets their root.

    The store may be away, and need not be migrated.
    """
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    exporter = Exporter(
        open_engine(database_url, pool_size=1, reply_timeout_s=REPLY_TIMEOUT_S),
        open_engine(database_url, pool_size=1, reply_timeout_s=COUNT_TIMEOUT_S),
        app,
        limiter_url,
    )
    with closing(TelemetryServer(host, port, exporter.pages)) as server:
        on_ready(server.url)
        for read, pause_s in ((exporter.refresh, interval_s), (exporter.count, None)):
            threading.Thread(
                target=_repeat, args=(read, stopped, pause_s), name=read.__name__, daemon=True
            ).start()
        stopped.wait()


def _repeat(read: Callable[[], None], stopped: threading.Event, interval_s: float | None) -> None:
    """Read until stopped; without an interval, so that reading takes its share of the time."""
    while not stopped.is_set():
        began = monotonic()
        read()
        spent_s = monotonic() - began
        pause_s = max(COUNTING_INTERVAL_S, spent_s / COUNTING_SHARE)
        stopped.wait(pause_s if interval_s is None else max(0.0, interval_s - spent_s))
