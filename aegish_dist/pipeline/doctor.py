"""Examines an installation, and a fleet that runs for months; each failure says how to mend it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from sqlalchemy import Engine

from aegish_dist import __version__
from aegish_dist.broker.connection import check_broker
from aegish_dist.db.embedded import embedded_version
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import DatabaseFacts, ReportedWorker, database_facts, reported_workers
from aegish_dist.db.schema import current, head, require_current
from aegish_dist.db.workers import Fleet, ModelBlock, living_fleet
from aegish_dist.errors import AegishError, ConfigError
from aegish_dist.models import Catalog, missing_key
from aegish_dist.ratelimit.shared_limiter import check_limiter, server_facts

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
        if halt is ModelBlock.PARKED
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


SKEW_S = 2.0
"""Seconds between clocks from which times and leases are wrong; reports take milliseconds."""
FULL = 0.8
"""Share of a limit from which it is nearly met."""
OLD_TRANSACTION_S = 3600
OLD_IDS = 1_000_000_000
"""Half of the ids after which PostgreSQL refuses to write."""
LARGE = 8 * 2**30
"""Bytes of a database from which the settings of a fresh installation are too small."""
SMALL_CACHE = 512 * 2**20
KEPT_WAL = 2**30
DEAD_SHARE = 0.2
_NAMES = {
    "broker": ("AEGISH_DIST_BROKER_URL", "the broker's Redis"),
    "limits": ("AEGISH_DIST_LIMITER_URL", "the limiter's Redis"),
}
"""Setting and name of a Redis, by its part."""


def examine_fleet(engine: Engine, app: Celery | None, limiter_url: str | None) -> list[Check]:
    """Look at workers, database and Redis.

    Args:
        app: The queue; None where runs are worked on in the submitting process.
        limiter_url: The Redis that holds the fleet's rate limits, if there is one.
    """
    try:
        require_current(engine)  # what is asked needs the tables
        here = datetime.now(UTC)
        with transaction(engine) as session:
            facts = database_facts(session)
            workers = reported_workers(session)
    except AegishError as error:
        return [Check("database", ok=False, detail=str(error))]
    checks = [*judge_workers(workers, (facts.clock - here).total_seconds()), *judge_database(facts)]
    for part, url in _servers(app, limiter_url).items():
        try:
            before = datetime.now(UTC)
            found = server_facts(url, *_NAMES[part])
            behind_s = (found.pop("clock") - before).total_seconds()
            behind_s -= (facts.clock - here).total_seconds()
            checks += judge_redis(part, found, behind_s)
        except AegishError as error:
            checks.append(Check(part, ok=False, detail=str(error)))
    return checks


def _servers(app: Celery | None, limiter_url: str | None) -> dict[str, str]:
    """Return the URL of each Redis by its part; one that is both is the broker."""
    found: dict[str, str] = {}
    broker = None if app is None else str(app.conf.broker_url or "")
    if broker is not None and broker.startswith("redis"):
        found["broker"] = broker
    if limiter_url is not None and limiter_url not in found.values():
        found["limits"] = limiter_url
    return found


def judge_workers(workers: Sequence[ReportedWorker], database_ahead_s: float) -> Iterator[Check]:
    """Judge versions and clocks.

    Args:
        database_ahead_s: Seconds by which the database's clock is ahead of this machine's.
    """
    kinds = Counter((each.version, each.schema) for each in workers)
    said = ", ".join(f"{number} {_kind(*kind)}" for kind, number in sorted(kinds.items(), key=str))
    if not workers:
        yield Check("versions", ok=True, detail="no worker runs")
    elif kinds.keys() == {(__version__, head())}:
        yield Check("versions", ok=True, detail=said)
    else:
        remedy = f"the upgrade ends when all are {_kind(__version__, head())}"
        yield Check("versions", ok=False, detail=f"{said}: {remedy}")
    ahead = {each.name: each.ahead_s for each in workers if each.ahead_s is not None}
    ahead["this machine"] = -database_ahead_s
    wrong = {name: s for name, s in ahead.items() if abs(s) > SKEW_S}
    most = max(map(abs, ahead.values()))
    if wrong:
        named = ", ".join(f"{name} {s:+.1f} s" for name, s in sorted(wrong.items())[:3])
        detail = f"off from the database's: {named}; set them by NTP, times of calls are wrong"
        yield Check("clocks", ok=False, detail=detail)
    else:
        yield Check(
            "clocks", ok=True, detail=f"{len(ahead)}, at most {most:.1f} s from the database's"
        )


def _kind(version: str | None, schema: str | None) -> str:
    return "of an older version" if version is None else f"of {version} (schema {schema})"


def judge_database(facts: DatabaseFacts) -> Iterator[Check]:
    """Judge limits and state of the database's server."""
    used = f"{facts.connections} of {facts.max_connections} connections"
    remedy = "raise max_connections, or put a pooler in between"
    yield _check("sessions", facts.connections < FULL * facts.max_connections, used, remedy)
    size = f"{_gb(facts.size)}, {_gb(facts.verdicts_size)} of it verdicts"
    cache = f"{size}; shared_buffers {_gb(facts.shared_buffers)}"
    roomy = facts.size < LARGE or facts.shared_buffers >= SMALL_CACHE
    yield _check("memory", roomy, cache, "give shared_buffers a quarter of the machine's memory")
    yield _check(
        "durability",
        facts.durable,
        "commits survive a loss of power"
        if facts.durable
        else "commits may be lost with the power",
        "set fsync, full_page_writes and synchronous_commit to on",
    )
    log = f"max_wal_size {_gb(facts.max_wal_size)}"
    if facts.archiving_fails:
        yield Check(
            "wal",
            ok=False,
            detail=f"{log}; archiving fails: mend archive_command before the disk is full",
        )
    else:
        kept = f"{log}, {_gb(facts.kept_wal)} kept for replicas that are away"
        yield _check(
            "wal", facts.kept_wal < KEPT_WAL, kept, "drop the slot with pg_drop_replication_slot"
        )
    yield from _vacuum(facts)


def _vacuum(facts: DatabaseFacts) -> Iterator[Check]:
    age = max(facts.transactions, facts.row_locks)
    state = f"oldest id {age:,} old, {facts.dead_share:.0%} of the rows of verdicts to be vacuumed"
    if not facts.autovacuum:
        yield Check("vacuum", ok=False, detail=f"{state}; autovacuum is off: turn it on")
    else:
        fine = age < OLD_IDS and facts.dead_share < DEAD_SHARE
        yield _check(
            "vacuum", fine, state, "run VACUUM (FREEZE) verdicts, and look why autovacuum does not"
        )
    oldest = f"the oldest is {facts.oldest_s:,.0f} s old"
    remedy = "end it (pg_stat_activity, pg_terminate_backend): nothing behind it can be vacuumed"
    yield _check("transactions", facts.oldest_s < OLD_TRANSACTION_S, oldest, remedy)


def judge_redis(part: str, facts: Mapping[str, Any], ahead_s: float) -> Iterator[Check]:
    """Judge a Redis.

    Args:
        ahead_s: Seconds by which its clock is ahead of the database's.
    """
    version = f"Redis {facts['redis_version']}"
    clock = f"{version}, {ahead_s:+.1f} s from the database's clock"
    yield _check(part, abs(ahead_s) <= SKEW_S, clock, "set both by NTP")
    policy, limit, used = facts["maxmemory_policy"], facts["maxmemory"], facts["used_memory"]
    memory = (
        f"{used / 1e6:,.0f} MB of {f'{limit / 1e6:,.0f} MB' if limit else 'no limit'}, {policy}"
    )
    if policy != "noeviction":
        remedy = "set maxmemory-policy to noeviction: others drop messages and limits"
        yield Check(part, ok=False, detail=f"{memory}: {remedy}")
    else:
        yield _check(part, not limit or used < FULL * limit, memory, "raise maxmemory")
    clients, most = facts["connected_clients"], facts["maxclients"]
    yield _check(part, clients < FULL * most, f"{clients} of {most} clients", "raise maxclients")
    saved = facts["rdb_last_bgsave_status"] == "ok" and facts["aof_last_write_status"] == "ok"
    yield _check(
        part,
        saved,
        "its last save succeeded" if saved else "it cannot save",
        "look at its disk and its log",
    )


def _check(part: str, ok: bool, state: str, remedy: str) -> Check:
    return Check(part, ok, state if ok else f"{state}: {remedy}")


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
