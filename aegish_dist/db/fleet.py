"""Facts of a fleet: what workers and servers report of themselves, and what the exporter reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.db.schema import head
from aegish_dist.db.statements import statement
from aegish_dist.db.workers import ALIVE_S, Fleet, living_fleet

_WORKERS = statement("reported_workers")
_DATABASE = statement("database_facts")


def about_worker(now: datetime) -> dict[str, str]:
    """Return what a worker reports of itself, to be stored as JSON."""
    return {"version": __version__, "schema": head(), "clock": now.isoformat()}


@dataclass(frozen=True, slots=True)
class ReportedWorker:
    """A living worker as it described itself last."""

    name: str
    version: str | None
    """Its version; None where it is older than this report."""
    schema: str | None
    """The schema that it was written for; None likewise."""
    ahead_s: float | None
    """Seconds by which its clock was ahead of the database's; None likewise."""


def reported_workers(session: Session) -> list[ReportedWorker]:
    """Return the living workers by name."""
    rows = session.execute(_WORKERS, {"alive_s": ALIVE_S}).mappings()
    return [ReportedWorker(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Limits and state of the database's server."""

    clock: datetime
    version: str
    max_connections: int
    connections: int
    shared_buffers: int
    max_wal_size: int
    size: int
    verdicts_size: int
    autovacuum: bool
    durable: bool
    """Whether what is committed survives a loss of power."""
    transactions: int
    """Age of the oldest transaction id that is not frozen; PostgreSQL stops writing at 2 * 10^9."""
    row_locks: int
    """The same of ids of shared row locks."""
    oldest_s: float
    archiving_fails: bool
    """Whether the last segment of its log could not be archived."""
    kept_wal: int
    """Bytes of log that a replication slot keeps which nothing reads."""
    dead_share: float


def database_facts(session: Session) -> DatabaseFacts:
    """Return limits and state of the database's server."""
    return DatabaseFacts(**session.execute(_DATABASE).mappings().one())


MOST_RUNS = 500
"""Open runs that are read, the newest ones."""
LAST_PAGES = 8
"""Pages of the table of verdicts that are read."""

_MODELS = statement("fleet_models")
_AGGREGATIONS = statement("fleet_aggregations")
_BATCHES = statement("fleet_batches")
_TABLES = statement("fleet_tables")
_CONNECTIONS = statement("fleet_connections")
_NEWEST_VERDICT = statement("fleet_newest_verdict")
_COUNT = statement("count_open_model")


@dataclass(frozen=True, slots=True)
class OpenRunModel:
    """An open model of a run."""

    key: int
    model: str
    queue: str


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run with an open model."""

    run_id: str
    held: bool
    created_at: datetime
    planned_per_model: int
    cap_usd: float | None
    """Cap on its cost; None: no cap."""
    models: tuple[int, ...]
    opened: tuple[OpenRunModel, ...]


@dataclass(frozen=True, slots=True)
class OpenBatches:
    """Batches of a model that are in one state and not ended; times in seconds."""

    model: str
    state: str
    batches: int
    requests: int
    oldest_s: float
    creating_s: float | None
    """Longest time since one was first handed over; None: none was."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table, by the server's own statistics."""

    name: str
    bytes: int
    dead_rows: int
    inserted: int


@dataclass(frozen=True, slots=True)
class FleetState:
    """State of a fleet by its database."""

    fleet: Fleet
    runs: tuple[OpenRun, ...]
    """Open runs, the newest first."""
    aggregations_due: int
    aggregation_oldest_s: float | None
    """Age of the oldest of them in seconds."""
    batches: tuple[OpenBatches, ...]
    tables: tuple[TableState, ...]
    connections: int
    connections_max: int
    newest_verdict_age_s: float | None
    """Age of the newest verdict at the end of its table; None: there is none."""


@dataclass(frozen=True, slots=True)
class CountedModel:
    """The verdicts of a model of a run."""

    done: int
    cost_usd: float | None
    """Cost of all; None when no price is known."""


def read_fleet(session: Session) -> FleetState:
    """Return the state of the fleet."""
    aggregations = session.execute(_AGGREGATIONS).one()
    connections = session.execute(_CONNECTIONS).one()
    return FleetState(
        fleet=living_fleet(session),
        runs=_open_runs(session),
        aggregations_due=aggregations.due,
        aggregation_oldest_s=aggregations.oldest_s,
        batches=tuple(OpenBatches(**row) for row in session.execute(_BATCHES).mappings()),
        tables=tuple(TableState(**row) for row in session.execute(_TABLES).mappings()),
        connections=connections.used,
        connections_max=connections.most,
        newest_verdict_age_s=session.scalar(_NEWEST_VERDICT, {"pages": LAST_PAGES}),
    )


def _open_runs(session: Session) -> tuple[OpenRun, ...]:
    rows = session.execute(_MODELS, {"limit": MOST_RUNS}).all()
    opened: dict[str, list[OpenRunModel]] = {}
    for row in rows:
        opened.setdefault(row.run_id, []).append(OpenRunModel(row.id, row.model, row.queue))
    runs = {row.run_id: row for row in rows}
    return tuple(
        OpenRun(
            run_id=run_id,
            held=row.held,
            created_at=row.created_at,
            planned_per_model=int(row.planned),
            cap_usd=row.cap_usd,
            models=tuple(row.models),
            opened=tuple(opened[run_id]),
        )
        for run_id, row in runs.items()
    )


def count_models(session: Session, keys: Sequence[int]) -> Mapping[int, CountedModel]:
    """Count the verdicts of models of runs: a tenth of a second for each 300,000 of them."""
    counted = {key: session.execute(_COUNT, {"model": key}).one() for key in keys}
    return {key: CountedModel(row.done, row.cost_usd) for key, row in counted.items()}
