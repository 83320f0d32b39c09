"""Examining an installation: each part is tried, and a failure says how to mend it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from celery import Celery
from sqlalchemy import Engine

from aegish_dist.broker.connection import check_broker
from aegish_dist.db.embedded import embedded_version
from aegish_dist.db.engine import transaction
from aegish_dist.db.schema import current, require_current
from aegish_dist.db.workers import Fleet, Halt, living_fleet
from aegish_dist.errors import AegishError, ConfigError
from aegish_dist.models import Catalog, missing_key
from aegish_dist.ratelimit.shared_limiter import check_limiter

MOST_NAMED = 3
"""Models that wait and are named one by one."""


@dataclass(frozen=True, slots=True)
class Check:
    """One part of the installation, tried."""

    part: str
    ok: bool
    detail: str
    """The state it is in, with the remedy when it does not work."""


def examine(
    *,
    database: Callable[[], Engine],
    app: Celery | None,
    limiter_url: str | None,
    catalog: Callable[[], Catalog],
    environ: Mapping[str, str],
    embedded_database: bool,
) -> list[Check]:
    """Try every part.

    Args:
        app: The queue; None when runs are worked on in the submitting process.
        limiter_url: The Redis that holds the fleet's rate limits, if there is one.
        embedded_database: Whether the store is the one this package starts, which migrates itself.
    """
    checks = [
        _tried("database", lambda: _database(database(), embedded_database)),
        _tried("broker", lambda: _broker(app)),
        _tried("limits", lambda: _limits(app, limiter_url)),
        _tried("catalog", lambda: f"{len(catalog().models)} models"),
        _tried("keys", lambda: _keys(catalog(), environ)),
    ]
    if app is not None and checks[0].ok:
        checks.append(_tried("workers", lambda: _workers(database())))
        checks.append(_tried("runs", lambda: _served(database())))
    return checks


def _tried(part: str, attempt: Callable[[], str]) -> Check:
    try:
        return Check(part, ok=True, detail=attempt())
    except AegishError as error:
        return Check(part, ok=False, detail=str(error))


def _database(engine: Engine, embedded: bool) -> str:
    found = current(engine)
    if embedded:
        return (
            f"embedded PostgreSQL {embedded_version()}, schema {found or 'made on first use'};"
            " security releases reach its wheel late: AEGISH_DIST_DATABASE_URL names a server of"
            " your own"
        )
    require_current(engine)
    return f"reachable, schema {found}"


def _broker(app: Celery | None) -> str:
    if app is None:
        return "none configured: `submit` works on its runs itself"
    check_broker(app)
    return "reachable"


def _limits(app: Celery | None, limiter_url: str | None) -> str:
    if limiter_url is not None:
        check_limiter(limiter_url)
        return "shared by all workers through Redis"
    if app is None:
        return "held in the submitting process"
    return "each worker has its own: set AEGISH_DIST_LIMITER_URL to a Redis to share them"


def _keys(catalog: Catalog, environ: Mapping[str, str]) -> str:
    missing = sorted(set(_missing_keys(catalog, environ)))
    return f"not set: {', '.join(missing)}" if missing else "every listed model has its key"


def _missing_keys(catalog: Catalog, environ: Mapping[str, str]) -> Iterator[str]:
    for entry in catalog.entries(environ):
        variable = missing_key(entry.spec, environ)
        if variable is not None:
            yield variable


def _fleet(engine: Engine) -> Fleet:
    with transaction(engine) as session:
        return living_fleet(session)


def _served(engine: Engine) -> str:
    """Name the models that none of the living workers may call, and those that are parked."""
    fleet = _fleet(engine)
    named = [
        f"no worker may call {model} of {run_id}: {reason}"
        for (run_id, model), reason in sorted(fleet.unserved.items())
    ] + [
        f"{model} is parked: {fleet.reason(run_id, model) or 'no reason is known'}"
        for (run_id, model), halt in sorted(fleet.halts.items())
        if halt is Halt.PARKED
    ]
    if not named:
        return "no open run waits for a key or a permission that no worker has"
    more = "" if len(named) <= MOST_NAMED else f"; and {len(named) - MOST_NAMED} more"
    raise ConfigError("; ".join(named[:MOST_NAMED]) + more)


def _workers(engine: Engine) -> str:
    fleet = _fleet(engine)
    if not fleet.workers:
        return "none running: start one with `aegish-dist worker`"
    return f"{fleet.workers} running, {sum(fleet.in_flight.values())} items in flight"
