"""Facts that workers and servers report of themselves: versions, clocks, limits."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.db.schema import head
from aegish_dist.db.statements import statement
from aegish_dist.db.workers import ALIVE_S

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
